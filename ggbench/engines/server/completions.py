"""OpenAI's `/v1/completions` as a stream, and what servers add to it: usage in every chunk, token ids, times.

Sources: OpenAI's API reference; vLLM 0.32 `entrypoints/openai/completion/protocol.py` (`continuous_usage_stats`,
`return_token_ids`, `metrics`); LM Studio's REST API v0 (`stats`). Tokens of a chunk are counted by its ids, else by the
difference of two usages, else not at all: a chunk may bring several tokens, and some bring none.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import Ended, Generate, Tokens
from ggbench.engines.server.failures import error_text
from ggbench.engines.server.kind import InvalidStream, Progress, ServerReported, decode_as
from ggbench.engines.server.numbers import count, nanoseconds
from ggbench.engines.server.obedience import disobeyed
from ggbench.engines.server.sse import DONE, data_of
from ggbench.text import shorten

_IMPOSSIBLE = 1e300
"""Tokens; finite, unlike the quotient by a tiny rate."""


class ListedModel(msgspec.Struct):
    """A model of `/v1/models`; fields that only some servers have are None."""

    id: str
    owned_by: str | None = None
    max_model_len: int | None = None
    root: str | None = None


class _Models(msgspec.Struct):
    data: list[ListedModel]


class _Choice(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Speculation(msgspec.Struct):
    draft_acceptance_rate: float | None = None
    num_accepted_draft_tokens: int | None = None


class _Metrics(msgspec.Struct):
    """vLLM's; the generation is timed from the first token to the last."""

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    speculative_decoding: _Speculation | None = None


class _Stats(msgspec.Struct):
    """LM Studio's."""

    time_to_first_token: float | None = None
    generation_time: float | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    stats: _Stats | None = None
    error: object = None


def listed_models(client: Client) -> list[ListedModel] | None:
    """Return the models of `/v1/models`, each name once; None where the server has no such list."""
    listed = client.get("/v1/models").read_as(_Models)
    return None if listed is None else list({shorten(model.id, 200): model for model in listed.data}.values())


class CompletionReader:
    """Reads the chunks of one completion."""

    def __init__(self, asked: Generate, *, ends_exactly: bool = False) -> None:
        """`ends_exactly`: the server counts nothing, but `length` means that all tokens asked for were generated."""
        self._asked = asked
        self._ends_exactly = ends_exactly
        self._n_gen: int | None = None
        """By usage or token ids; None while the server counts nothing."""
        self._has_ids = False
        self._is_uncounted = False
        self._usage = _Usage()
        self._finish_reason: str | None = None
        self._metrics = _Metrics()
        self._stats = _Stats()

    def read(self, line: bytes, at_ns: int) -> Iterable[Progress]:
        """Return what a line says. Raises InvalidStream and ServerReported."""
        data = data_of(line)
        if data is None:
            return ()
        if data == DONE:
            ended = self.finish(at_ns)
            if ended is None:
                raise InvalidStream("the end of a stream without a finish_reason")
            return (ended,)
        chunk = decode_as(data, _Chunk)
        if chunk.error is not None:
            raise ServerReported(error_text({"error": chunk.error}) or "no message")
        self._metrics = chunk.metrics or self._metrics
        self._stats = chunk.stats or self._stats
        tokens = self._tokens(chunk, at_ns)
        return () if tokens is None else (tokens,)

    def finish(self, at_ns: int) -> Ended | None:
        """Return the end; None where no chunk had a reason to finish."""
        if self._finish_reason is None:
            return None
        usage, metrics = self._usage, self._metrics
        details = usage.prompt_tokens_details or _PromptDetails()
        n_gen = self._n_gen if self._n_gen is not None else count(usage.completion_tokens)
        if n_gen is None and self._ends_exactly and self._finish_reason == "length":
            n_gen = self._asked.n_gen
        n_prompt, n_cached = count(usage.prompt_tokens), count(details.cached_tokens)
        speculation = metrics.speculative_decoding or _Speculation()
        n_accepted, rate = count(speculation.num_accepted_draft_tokens), speculation.draft_acceptance_rate
        prompt_ns = nanoseconds(metrics.time_to_first_token_ms, 1e6)
        decode_ns = nanoseconds(metrics.generation_time_ms, 1e6)
        return Ended(
            at_ns=at_ns,
            n_prompt=n_prompt,
            n_cached=n_cached,
            n_gen=n_gen,
            finish_reason=shorten(self._finish_reason, 20),
            prompt_ns=nanoseconds(self._stats.time_to_first_token, 1e9) if prompt_ns is None else prompt_ns,
            decode_ns=nanoseconds(self._stats.generation_time, 1e9) if decode_ns is None else decode_ns,
            decode_n=n_gen - 1 if decode_ns is not None and n_gen else None,
            n_drafted=count(round(min(n_accepted / rate, _IMPOSSIBLE))) if n_accepted and rate and rate > 0 else None,
            n_accepted=n_accepted,
            disobeyed=disobeyed(
                self._asked, n_prompt=n_prompt, n_cached=n_cached, n_gen=n_gen, finish_reason=self._finish_reason
            ),
        )

    def _tokens(self, chunk: _Chunk, at_ns: int) -> Tokens | None:
        choice = chunk.choices[0] if chunk.choices else _Choice()
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason
        text, n_new = choice.text or "", self._count(choice, chunk.usage)
        return Tokens(at_ns, n_new, None, text) if text or n_new else None

    def _count(self, choice: _Choice, usage: _Usage | None) -> int | None:
        """Return how many tokens a chunk brought; None where the first one with a text was not counted."""
        self._usage = usage or self._usage
        before = self._n_gen or 0
        if self._is_uncounted:
            return None
        if choice.token_ids is not None:
            self._n_gen = before + len(choice.token_ids)
        elif usage is not None and usage.completion_tokens is not None and not self._has_ids:
            if usage.completion_tokens < before:
                raise InvalidStream(f"a count of tokens that went from {before} to {usage.completion_tokens}")
            self._n_gen = usage.completion_tokens
        elif choice.text and self._n_gen is None:
            self._is_uncounted = True
            return None
        self._has_ids = self._has_ids or choice.token_ids is not None
        return (self._n_gen or 0) - before
