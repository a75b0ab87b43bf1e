"""How a server answered over all requests of a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec


def serving_of(server: ServerFound | None, requests: Sequence[RequestTiming]) -> Serving | None:
    """Return what the requests have in common; None of a run without a server, or without a request."""
    if server is None or not requests:
        return None
    decodes = [each for each in requests if each.series]
    waits = [(each.first_token_ns - each.sent_ns) / 1e6 for each in decodes if each.first_token_ns is not None]
    jitters = [each.jitter_ns / 1e6 for each in decodes if each.jitter_ns is not None]
    drafts = [each for each in decodes if each.n_drafted is not None]
    trips = server.round_trip_ns
    return Serving(
        server=" ".join(filter(None, (server.kind, server.version))),
        clock="client" if any(each.clock == "client" for each in requests) else "server",
        n_requests=len(requests),
        n_tokens=sum(each.n_tokens for each in decodes),
        n_tokens_together=sum(each.n_tokens_together for each in decodes),
        ttft_ms=statistics.median(waits) if waits else None,
        round_trip_ms=statistics.median(trips) / 1e6 if trips else None,
        jitter_ms=statistics.median(jitters) if jitters else None,
        n_drafted=sum(each.n_drafted or 0 for each in drafts) if drafts else None,
        n_accepted=sum(each.n_accepted or 0 for each in drafts) if drafts else None,
        remarks=tuple(dict.fromkeys(remark for each in requests for remark in each.remarks)),
    )


Clock = Literal["engine", "server", "client"]
"""Whose clock timed a step: the process on this machine that computes, a server's own, or that of the program that
asks a server, which sees tokens as they arrive."""


class ServerFound(msgspec.Struct, frozen=True):
    """The server as it answered before anything was measured; an observation. Empty and None are unknown."""

    kind: str
    """Which program, `llama-server`; `OpenAI-compatible` where it cannot be recognized."""
    version: str = ""
    n_ctx: int | None = None
    """Tokens that one request may have."""
    n_slots: int | None = None
    """Requests that it computes at once; None where it does not say, or has no such number."""
    round_trip_ns: tuple[int, ...] = ()
    """From sending a request that needs no model to the first byte of its answer, each time."""


class TokenChunks(msgspec.Struct, frozen=True):
    """Tokens that came several at once, an entry for each chunk; an observation.

    Only the whole of a chunk was timed. Nothing is known of the times between its tokens.
    """

    first_position: tuple[int, ...]
    """Tokens in the KV cache at the first token of each chunk, that token included."""
    n_tokens: tuple[int, ...]
    elapsed_ns: tuple[int, ...]
    """Since the token before the chunk."""
    series: str = ""
    """Of the steps that these lie between."""


class RequestTiming(msgspec.Struct, frozen=True):
    """One request that generated tokens, as far as it came; an observation. Times are the client's, in ns.

    They count from the moment at which the first of all requests of a batch was sent.
    """

    n_prompt: int
    """Tokens that were sent."""
    n_gen: int
    """Tokens that were asked for."""
    sent_ns: int
    clock: Clock = "client"
    """Of its steps."""
    series: str = ""
    """Of its steps; empty where only the prompt was timed."""
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    n_prompt_counted: int | None = None
    """As the server counted; None where it does not say."""
    n_cached: int | None = None
    """Prompt tokens that the server had from earlier requests; None where it does not say."""
    n_tokens: int = 0
    """That came."""
    n_tokens_together: int = 0
    """Of these, tokens that came with others in one chunk."""
    server_prompt_ns: int | None = None
    """By the server's own clock, as the next; None where it has none."""
    server_gen_ns: int | None = None
    jitter_ns: float | None = None
    """Standard deviation of what arrival adds to a step of the server's own clock; None without such a clock."""
    n_drafted: int | None = None
    """Tokens that a draft proposed; None where the server does not say, or does not speculate."""
    n_accepted: int | None = None
    """Drafted tokens that the model agreed with."""
    is_exact: bool = True
    """Whether the tokens were counted by the server, and not by the chunks that they came in."""
    remarks: tuple[str, ...] = ()
    """What the server did not do as asked, in a line each."""

    @property
    def as_one_chunk(self) -> tuple[TokenChunks, ...]:
        """All tokens after the first as one chunk; none where there are fewer than two."""
        if self.first_token_ns is None or self.last_token_ns is None or self.n_tokens < 2:
            return ()
        elapsed_ns = self.last_token_ns - self.first_token_ns
        return (TokenChunks((self.n_prompt + 1,), (self.n_tokens - 1,), (elapsed_ns,), self.series),)


class Serving(msgspec.Struct, frozen=True):
    """How a server answered over all requests of a run; part of its result. None is unknown."""

    server: str
    """Program and version."""
    clock: Clock
    """Of the steps: the client's where it timed any."""
    n_requests: int
    n_tokens: int
    """Tokens received, excluding prompt-only requests."""
    n_tokens_together: int
    """Of these, tokens that came with others in one chunk."""
    ttft_ms: float | None = None
    """Median time from sending a request of one sequence to its first token, the network included."""
    round_trip_ms: float | None = None
    """Median time to the first byte of a request that needs no model."""
    jitter_ms: float | None = None
    """What the arrival of a token adds to the server's own time for it, as a standard deviation."""
    n_drafted: int | None = None
    n_accepted: int | None = None
    remarks: tuple[str, ...] = ()
    """What the server did not do as asked, each once."""
