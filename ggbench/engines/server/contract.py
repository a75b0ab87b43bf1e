"""What a server is asked for and what comes back, the same for every kind of server.

Times are `time.perf_counter_ns` of this machine in `at_ns`, and the server's own clock in every other field of
nanoseconds. A server's count, clock or name that is missing or impossible is None, never a guess.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.errors import GgbenchError
from ggbench.text import shorten

ServerClock = Literal["each token", "totals", "none"]
"""What a server's own clock times: each token, the prompt and the generation as wholes, or nothing."""


class OfferedModel(msgspec.Struct, frozen=True):
    """A model that a server offers. Names are a server's text: one line, without control characters."""

    name: str
    """To request it by."""
    quant: str | None = None
    """As the server names it: `Q4_K - Medium`, `Q4_K_M`, `awq`."""
    architecture: str | None = None
    n_ctx: int | None = None
    """Tokens that one request may have, prompt and generation together."""
    n_ctx_train: int | None = None
    n_params: int | None = None
    n_vocab: int | None = None
    tensor_bytes: int | None = None
    """Of all tensors."""
    file_bytes: int | None = None
    is_loaded: bool | None = None
    """None where the server does not say."""
    digest: str | None = None
    """SHA-256 of what it runs, by the server's word; hexadecimal."""


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server said of itself."""

    kind: str
    """`llama_server`, `tgi`, `lm_studio`, `vllm`, `llama_cpp_python`, `ollama` or `openai`."""
    title: str
    """For people: `llama-server`, `vLLM`, `OpenAI-compatible server`."""
    base_url: str
    """Without credentials, query and trailing slash; the same server has the same base URL."""
    models: tuple[OfferedModel, ...]
    """In the server's order, each name once."""
    clock: ServerClock
    takes_tokens: bool
    """Whether a prompt may be token ids, so that its length is exact."""
    version: str | None = None
    n_parallel: int | None = None
    """Most requests that it computes at once; None where it does not say."""


class Prompt(msgspec.Struct, frozen=True):
    """A prompt of known length: token ids, or a text for servers that take nothing else."""

    n_tokens: int
    tokens: tuple[int, ...] = ()
    """Empty where the prompt is a text."""
    text: str = ""


class Generate(msgspec.Struct, frozen=True):
    """A request for exactly `n_gen` tokens after a prompt, none of it from a cache, greedy, past any end of text."""

    model: str
    """As the server offers it."""
    prompt: Prompt
    n_gen: int


class Sent(msgspec.Struct, frozen=True):
    """The whole request is on its way: the origin of the client's clock."""

    at_ns: int
    connect_ns: int | None
    """For TCP and TLS before it; None where a connection was reused."""


class FirstByte(msgspec.Struct, frozen=True):
    """The head of the response arrived: of many servers before the prompt is read, of others after."""

    at_ns: int


class PromptProgress(msgspec.Struct, frozen=True):
    """How much of the prompt the server says it has read."""

    at_ns: int
    n_tokens: int


class Tokens(msgspec.Struct, frozen=True):
    """Generated tokens that arrived together."""

    at_ns: int
    """When the line with them was complete here."""
    n_tokens: int | None
    """How many, by the server's count or its token ids; None where the server counts only at the end."""
    decode_ns: int | None = None
    """The server's clock at the last of them, counted from the first token; None where it has none for each token.

    Tokens that one speculative step gave have the same clock, also where each comes in a chunk of its own."""
    text: str = ""
    """As generated: not yet safe for a terminal."""


class Ended(msgspec.Struct, frozen=True):
    """The server ended the generation and said so."""

    at_ns: int
    n_prompt: int | None
    """Tokens of the prompt by the server's count; None where it has none."""
    n_cached: int | None
    """Of those, taken from a cache."""
    n_gen: int | None
    """Tokens generated, by the server's count."""
    finish_reason: str
    """The server's word: `length`, `stop`; empty where it gives none."""
    prompt_ns: int | None = None
    """The server's time for the prompt, without what came from a cache."""
    decode_ns: int | None = None
    """The server's time for the generation; of which tokens is the kind's affair, see `decode_n`."""
    decode_n: int | None = None
    """Decode steps in `decode_ns`: llama-server's clock starts at the first token, so it is one less than `n_gen`."""
    load_ns: int | None = None
    """The server's time for loading the model."""
    n_drafted: int | None = None
    """Tokens that speculative decoding drafted; None where the server reports none."""
    n_accepted: int | None = None
    disobeyed: tuple[str, ...] = ()
    """What was asked and not done, one line each: `12 of 64 tokens generated (stop)`."""


class Failed(msgspec.Struct, frozen=True):
    """The request failed; what arrived before it stands."""

    at_ns: int
    error: GgbenchError


Item = Sent | FirstByte | PromptProgress | Tokens | Ended | Failed
"""A stream is Sent, FirstByte, any PromptProgress and Tokens, and last, exactly once, Ended or Failed. One that fails
may lack any of the first."""


class NetworkTimes(msgspec.Struct, frozen=True):
    """Time of requests that compute nothing; nanoseconds by the client's clock."""

    connect_ns: int
    """To open a connection, TLS included: the least of several."""
    empty_request_ns: tuple[int, ...]
    """From request sent to first byte, over an open connection, in the order they were made."""


_T = TypeVar("_T")

Progress = PromptProgress | Tokens | Ended


class InvalidStream(Exception):
    """A line that the kind of server does not send; the message says what is wrong with it."""


class ServerReported(Exception):
    """An error that the server reported in the stream; untrusted text."""


class StreamReader(Protocol):
    """Reads one stream. Raises InvalidStream and ServerReported."""

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        """Return what a line says; nothing for an empty one. The line has no line ending."""
        ...

    def finish(self, at_ns: int) -> Ended | None:
        """Return the end of a stream that was closed without one; None where the generation had not ended."""
        ...


MakePrompt = Callable[[Client, str, int, int, Callable[[], int]], Prompt]
"""Returns a prompt of a model, of so many tokens, another for each index. Raises NetworkError and ServerFailed.

The last argument returns how many tokens the server adds to a text, found by a generation of one token.
"""


class Kind(msgspec.Struct, frozen=True):
    """A kind of server."""

    empty_path: str
    """Of a GET request that costs the server nothing."""
    recognize: Callable[[Client], ServerInfo | None]
    """Returns what the server offers; None where it is of another kind. Raises NetworkError and ServerFailed."""
    prompt: MakePrompt
    request: Callable[[Generate], Post]
    reader: Callable[[Generate], StreamReader]
    """Returns a reader of the response to `request`."""


def decode_as(document: bytes, shape: type[_T]) -> _T:
    """Return a JSON document as a struct. Raises InvalidStream."""
    try:
        return msgspec.json.decode(document, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidStream(str(error)) from None


DONE = b"[DONE]"
"""The data of OpenAI's last event."""
_IGNORED = (b":", b"event:", b"id:", b"retry:")


def data_of(line: bytes) -> bytes | None:
    """Return the data of a line; None for an empty line, a comment and other fields. Raises InvalidStream.

    llama-server before 2025 sent its errors as a field of their own: `error: {...}`.
    """
    if line.startswith(b"data:"):
        return line[5:].strip()
    if line.startswith(b"error:"):
        return line[6:].strip()
    if not line or line.startswith(_IGNORED):
        return None
    raise InvalidStream(f"not a server-sent event: {line[:60].decode(errors='replace')}")


_MOST_NS = 1 << 62


def count(value: float | None) -> int | None:
    """Return a number of tokens or bytes; None where it is missing, negative, broken or above 2^62."""
    if value is None or not 0 <= value < _MOST_NS or value != int(value):
        return None
    return int(value)


def positive(value: float | None) -> int | None:
    """Return a size that cannot be 0; None where it is missing or impossible."""
    return count(value) or None


def nanoseconds(value: float | None, unit_ns: float) -> int | None:
    """Return a time in nanoseconds from one in a unit of `unit_ns`; None where it is missing or impossible."""
    if value is None or not 0 <= value * unit_ns < _MOST_NS:
        return None
    return round(value * unit_ns)


def request_mismatches(
    asked: Generate, *, n_prompt: int | None, n_cached: int | None, n_gen: int | None, finish_reason: str
) -> tuple[str, ...]:
    """Return what differs from what was asked; a count that the server does not report cannot differ."""
    found: list[str] = []
    if n_gen is not None and n_gen != asked.n_gen:
        reason = f" (it ended with {shorten(finish_reason, 20)!r})" if finish_reason else ""
        found.append(f"generated {n_gen} tokens where {asked.n_gen} were asked for{reason}")
    if n_prompt is not None and n_prompt != asked.prompt.n_tokens:
        found.append(f"read a prompt of {n_prompt} tokens where {asked.prompt.n_tokens} were meant")
    if n_cached:
        found.append(f"took {n_cached} of the prompt's tokens from a cache")
    return tuple(found)


_WORDS = (
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by", " on",
    " not", " he", " his", " but", " are", " or", " from", " at", " this", " have", " an", " they", " which", " one",
    " you", " had", " all", " were", " when", " we", " there", " can", " more", " if", " would", " who", " about",
)  # fmt: skip
"""Common words; each is one token, with its space, to GPT-2, Llama, Qwen, Gemma and Mistral."""
_PROBE_WORDS = 32


def repeated(tokens: Sequence[int], n_tokens: int, index: int) -> Prompt:
    """Return the tokens of a text, cut or repeated to length; each index begins one token later."""
    return Prompt(n_tokens, tokens=tuple(tokens[(index + i) % len(tokens)] for i in range(n_tokens)))


def words(n_words: int, seed: int) -> str:
    """Return a text of that many words, the same for the same seed; texts of different seeds begin differently."""
    rng = random.Random(seed)
    return "".join(rng.choices(_WORDS, k=n_words)).lstrip() if n_words else ""


def probe_text() -> tuple[str, int]:
    """Return a text that no cache knows and its number of words."""
    return words(_PROBE_WORDS, _random_seed()), _PROBE_WORDS


def worded(n_tokens: int, added: int) -> Prompt:
    """Return a text of that many tokens, where a server adds some, such as a token for the beginning, to the words.

    It begins differently each time, so that no cache knows it.
    """
    return Prompt(n_tokens, text=words(max(1, n_tokens - added), _random_seed()))


def _random_seed() -> int:
    return random.SystemRandom().getrandbits(48)
