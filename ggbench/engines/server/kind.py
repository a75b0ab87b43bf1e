"""What a kind of server offers, and what the kinds share: how to read a stream, a number, and how to write a prompt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from ggbench.engines.server.client import Client, Post
from ggbench.engines.server.contract import Ended, Generate, Prompt, PromptProgress, ServerInfo, Tokens
from ggbench.text import shorten

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


class ServerKind(msgspec.Struct, frozen=True):
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
