"""Requests to servers, and their answers.

Times are `time.perf_counter_ns` of this machine in `at_ns`, and the server's own clock in every other field of
nanoseconds. A server's count, clock or name that is missing or impossible is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from ggbench.errors import GgbenchError
from ggbench.stats.decode_timing import Clock
from ggbench.text import shorten

_T = TypeVar("_T")

LOG_HINT = "check the server's log"


class OfferedModel(msgspec.Struct, frozen=True):
    """A model of a server. Names are the server's text, reduced to one line without control characters."""

    name: str
    """Name for requests."""
    quant: str | None = None
    """The server's name of the quant: `Q4_K - Medium`, `Q4_K_M`, `awq`."""
    architecture: str | None = None
    n_ctx: int | None = None
    """Maximum tokens of a request, prompt and generation together."""
    n_ctx_train: int | None = None
    n_params: int | None = None
    tensor_bytes: int | None = None
    file_bytes: int | None = None
    is_loaded: bool = True
    """False if the first request makes the server load it."""


class ServerInfo(msgspec.Struct, frozen=True):
    """Data that a server reports about itself."""

    title: str
    """For display: `llama-server`, `vLLM`, `OpenAI-compatible server`."""
    models: tuple[OfferedModel, ...]
    """In the server's order, each name once."""
    clock: Clock = "client"
    """`server` if its own clock times each token."""
    version: str | None = None
    n_parallel: int | None = None
    """Maximum number of concurrent requests; None if it does not say."""


class Prompt(msgspec.Struct, frozen=True):
    """A prompt of known length: token ids, or a text for servers that accept nothing else."""

    n_tokens: int
    tokens: tuple[int, ...] = ()
    """Empty if the prompt is a text."""
    text: str = ""


class Generate(msgspec.Struct, frozen=True):
    """A request for exactly `n_gen` tokens after a prompt, none of it from a cache, greedy, past any end of text."""

    model: str
    prompt: Prompt
    n_gen: int


class Post(msgspec.Struct, frozen=True):
    """A request with a JSON body."""

    path: str
    body: Mapping[str, object]


class Sent(msgspec.Struct, frozen=True):
    """The whole request was sent: the origin of the client's clock."""

    at_ns: int


class PromptProgress(msgspec.Struct, frozen=True):
    """Number of prompt tokens read so far, by the server's report."""

    at_ns: int
    n_tokens: int


class Tokens(msgspec.Struct, frozen=True):
    """Generated tokens that arrived together."""

    at_ns: int
    """Time at which their line was complete here."""
    n_tokens: int | None
    """Counted by the server or by its token ids; None if it counts only at the end."""
    decode_ns: int | None = None
    """The server's clock at the last of them, counted from the first token; None if it does not time each token.

    Tokens of one speculative step have the same clock, even if each comes in a separate chunk."""
    text: str = ""
    """The generated text, not yet safe for a terminal."""


class Ended(msgspec.Struct, frozen=True):
    """The server reported the end of the generation; counts and times are the server's, None if missing."""

    at_ns: int
    n_prompt: int | None
    n_gen: int | None
    finish_reason: str
    """The server's finish reason: `length`, `stop`; empty if missing."""
    prompt_ns: int | None = None
    """Time of the prompt, without cached tokens."""
    decode_ns: int | None = None
    n_drafted: int | None = None
    """Tokens that speculative decoding drafted."""
    n_accepted: int | None = None
    request_mismatches: tuple[str, ...] = ()
    """Deviations from the request, one line each."""


class GenerationFailed(msgspec.Struct, frozen=True):
    """The request failed; earlier items remain valid."""

    at_ns: int
    error: GgbenchError


Item = Sent | PromptProgress | Tokens | Ended | GenerationFailed
"""A stream consists of Sent, any PromptProgress and Tokens, then exactly one Ended or Failed. A failed one
may lack any of the others."""
Progress = PromptProgress | Tokens | Ended


class InvalidStream(Exception):
    """A line that is invalid for this kind of server; the message names the problem."""


class ServerReported(Exception):
    """An error that the server reported in the stream; untrusted text."""


class StreamReader:
    """Reads one stream. Raises InvalidStream and ServerReported."""

    def __init__(self, asked: Generate) -> None:
        self._asked = asked

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        """Parse a line without its line ending; return nothing for an empty one."""
        raise NotImplementedError

    def finish(self, at_ns: int) -> Ended | None:
        """Return the end of a stream closed without an end item; None if the generation had not ended."""
        return None

    def ended(
        self, at_ns: int, n_prompt: int | None, n_cached: int | None, n_gen: int | None, finish_reason: str
    ) -> Ended:
        """Return the end with its deviations from the request; unreported counts cannot differ."""
        asked, reason, found = self._asked, shorten(finish_reason, 20), []
        if n_gen is not None and n_gen != asked.n_gen:
            why = f" (it ended with {reason!r})" if reason else ""
            found.append(f"generated {n_gen} tokens, requested {asked.n_gen}{why}")
        if n_prompt is not None and n_prompt != asked.prompt.n_tokens:
            found.append(f"read a prompt of {n_prompt} tokens, requested {asked.prompt.n_tokens}")
        if n_cached:
            found.append(f"took {n_cached} of the prompt's tokens from a cache")
        return Ended(at_ns, n_prompt, n_gen, reason, request_mismatches=tuple(found))


def error_text(document: Any) -> str:  # noqa: ANN401 - whatever JSON the server sent
    """Return the message in an error document as one short line; empty if there is none.

    OpenAI: `{"error": {"message": ...}}`; Ollama: `{"error": ...}`; FastAPI: `{"detail": ...}`.
    """
    for name in ("error", "message", "detail", "msg"):
        if isinstance(document, list) and document:
            document = document[0]
        if isinstance(document, dict) and document.get(name):
            document = document[name]
    return shorten(document, 200) if isinstance(document, str) else ""


class ModelData(msgspec.Struct, Generic[_T]):
    """A list of models, as in `/v1/models`."""

    data: list[_T]


def decode_chunk(document: bytes, shape: type[_T]) -> _T:
    """Return a JSON document as a struct with a field `error`. Raises InvalidStream and ServerReported."""
    try:
        chunk = msgspec.json.decode(document, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidStream(str(error)) from None
    if (reported := getattr(chunk, "error", None)) is not None:
        raise ServerReported(error_text({"error": reported}) or "no message")
    return chunk


DONE = b"[DONE]"
"""The data of OpenAI's last event."""


def data_of(line: bytes) -> bytes | None:
    """Return the data of a line; None for an empty line, a comment or another field. Raises InvalidStream.

    llama-server before 2025 sent its errors in a separate field: `error: {...}`.
    """
    if line.startswith((b"data:", b"error:")):
        return line.partition(b":")[2].strip()
    if not line or line.startswith((b":", b"event:", b"id:", b"retry:")):
        return None
    raise InvalidStream(f"not a server-sent event: {line[:60].decode(errors='replace')}")


_MOST_NS = 1 << 62


def count(value: float | None) -> int | None:
    """Return a number of tokens or bytes; None if missing, negative, invalid or above 2^62."""
    if value is None or not 0 <= value < _MOST_NS or value != int(value):
        return None
    return int(value)


def positive(value: float | None) -> int | None:
    """Return a positive size; None if missing or impossible."""
    return count(value) or None


def nanoseconds(value: float | None, unit_ns: float) -> int | None:
    """Convert a time in units of `unit_ns` to nanoseconds; None if missing or impossible."""
    if value is None or not 0 <= value * unit_ns < _MOST_NS:
        return None
    return round(value * unit_ns)
