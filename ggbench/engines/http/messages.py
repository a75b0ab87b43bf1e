"""Requests to servers and their answers, by whatever protocol.

Times are `time.perf_counter_ns` of this machine in `at_ns`, and the server's own clock in every other field of
nanoseconds. A server's count, clock or name that is missing or impossible is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggbench.record import Record
from ggbench.stats.decode_timing import Clock, ServerFound
from ggbench.text import shorten

LOG_HINT = "check the server's log"


class OfferedModel(Record):
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


class ServerInfo(Record):
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

    @property
    def found(self) -> ServerFound:
        return ServerFound(self.title, self.version or "", self.n_parallel)


class Prompt(Record):
    """A prompt of known length: token ids, or a text for servers that accept nothing else."""

    n_tokens: int
    tokens: tuple[int, ...] = ()
    """Empty if the prompt is a text."""
    text: str = ""


class Generate(Record):
    """A request for exactly `n_gen` tokens after a prompt, greedy, past any end of text."""

    model: str
    prompt: Prompt
    n_gen: int
    keeps_cache: bool = False
    """Whether the prompt may come from a cache."""


class Post(Record):
    """A POST request with a JSON body."""

    path: str
    body: Mapping[str, object]


class Piece(Record):
    """What a line of a stream says, whatever the server; None and the empty are not said."""

    text: str = ""
    """Not yet safe for a terminal."""
    n_gen: int | None = None
    """Tokens generated until then."""
    decode_ns: int | None = None
    """The server's clock at the last of them, counted from the first. Tokens of one speculative step have the same."""
    tokens: tuple[int, ...] = ()
    """Ids of the tokens generated since the line before, without those of an incomplete character."""
    n_read: int | None = None
    """Tokens of the prompt read until then, in a line that says nothing else."""
    is_last: bool = False
    finish_reason: str | None = None
    n_prompt: int | None = None
    n_cached: int | None = None
    prompt_ns: int | None = None
    """Time of the prompt, without cached tokens."""
    n_drafted: int | None = None
    n_accepted: int | None = None
    slot: int | None = None
    is_cut: bool = False
    """Whether the prompt was cut to fit a context."""


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
