"""Lines of a stream, whatever the protocol, read as pieces.

Tokens of a chunk are counted by the server's own count until then, otherwise not at all, as a chunk may have several
tokens or none. Sources: server-task.cpp (`to_json_non_oaicompat`) and server-common.cpp (`server_slot_stats`) of
llama.cpp at commit 0c1e570; OpenAI's API reference; Ollama's docs/api.md and api/types.go (`Metrics`).
"""

from __future__ import annotations

import msgspec

from ggbench.engines.http.messages import Piece, count, error_text, nanoseconds

_DONE = b"[DONE]"
"""The data of OpenAI's last event."""


class InvalidStream(Exception):
    """A line that is no server's; the message names the problem."""


class ServerReported(Exception):
    """An error that the server reported in the stream; untrusted text."""


class _Choice(msgspec.Struct):
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return self.token_ids or ()


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, int | None] | None = None

    @property
    def n_cached(self) -> int | None:
        return None if self.prompt_tokens_details is None else self.prompt_tokens_details.get("cached_tokens")


class _Chunk(msgspec.Struct):
    """A chunk of llama-server's /completion, OpenAI's /v1/completions or Ollama's /api/generate."""

    content: str = ""
    tokens: tuple[int, ...] = ()
    id_slot: int | None = None
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    truncated: bool = False
    timings: dict[str, float | None] = {}
    """Its clock starts when the prompt is read, so `predicted_ms` of n tokens is the time of n - 1 decodes."""
    prompt_progress: dict[str, float] | None = None

    choices: list[_Choice] = []
    usage: _Usage | None = None

    response: str = ""
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int | None = None
    """Includes tokens from its cache; `prompt_eval_duration` does not: the words are new each time."""
    prompt_eval_duration: float | None = None
    eval_count: int | None = None

    error: object = None


def read_line(line: bytes) -> Piece | None:
    """Return what a line without its line ending says; None for nothing. Raises InvalidStream and ServerReported."""
    data = _data_of(line)
    if data is None:
        return None
    if data == _DONE:
        return Piece(is_last=True)
    chunk = _decode(data)
    if chunk.prompt_progress is not None and not chunk.stop:
        return Piece(n_read=count(chunk.prompt_progress.get("processed")) or 0)
    timing, usage = chunk.timings.get, chunk.usage or _Usage()
    choice = next(iter(chunk.choices), _Choice())
    prompt_ms, is_last = timing("prompt_ms"), chunk.stop or chunk.done
    return Piece(
        "".join(filter(None, (chunk.content, chunk.response, choice.text))),
        _first(chunk.tokens_predicted, usage.completion_tokens, chunk.eval_count),
        nanoseconds(timing("predicted_ms"), 1e6),
        tokens=chunk.tokens + choice.ids,
        is_last=is_last,
        finish_reason=chunk.stop_type or chunk.done_reason if is_last else choice.finish_reason,
        n_prompt=_first(chunk.tokens_evaluated, usage.prompt_tokens, chunk.prompt_eval_count),
        n_cached=_first(timing("cache_n"), usage.n_cached),
        prompt_ns=nanoseconds(chunk.prompt_eval_duration, 1)
        if prompt_ms is None
        else nanoseconds(prompt_ms, 1e6),
        n_drafted=count(timing("draft_n")),
        n_accepted=count(timing("draft_n_accepted")),
        slot=count(chunk.id_slot),
        is_cut=chunk.truncated,
    )


def _first(*values: float | None) -> int | None:
    """Return the first count that is not missing."""
    return count(next((value for value in values if value is not None), None))


def _decode(data: bytes) -> _Chunk:
    try:
        chunk = msgspec.json.decode(data, type=_Chunk)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidStream(str(error)) from None
    if chunk.error is not None:
        raise ServerReported(error_text({"error": chunk.error}) or "no message")
    return chunk


def _data_of(line: bytes) -> bytes | None:
    """Return the data of a line; None for an empty line, a comment or another field. Raises InvalidStream.

    Ollama sends bare JSON. llama-server before 2025 sent its errors in a separate field: `error: {...}`.
    """
    if line.startswith(b"{"):
        return line
    if line.startswith((b"data:", b"error:")):
        return line.partition(b":")[2].strip()
    if not line.strip() or line.startswith((b":", b"event:", b"id:", b"retry:")):
        return None
    raise InvalidStream(f"not a server-sent event: {line[:60].decode(errors='replace')}")
