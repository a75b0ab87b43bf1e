"""Records of speed: bandwidth and its limit on a decode, the fitted line, percentiles, prefill, and a server's timings.

No time is interpolated for a token inside a chunk that a server sends. Rare chunks, such as characters of several
tokens, are left out of fits and percentiles, and count for the speed. Where they are common, as under speculative
decoding, leaving them out would leave out the fast tokens; there neighbours are joined until at least 16 tokens have
one time, placed at their mean position: a line through such means is the line through the tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec


class Bandwidth(msgspec.Struct, frozen=True):
    """Memory bandwidth with its provenance."""

    bytes_per_s: float
    source: str
    """For people: `measured 2026-11-20 with 2 threads`, `NVML: 384 bit x 10501 MHz x 2`, `given`."""


class DecodeLimit(msgspec.Struct, frozen=True):
    """Bandwidth bound on decode latency."""

    w_tokens_per_ms: float | None
    """None if the bytes read for a token do not grow with the context."""
    b_ms: float
    bandwidth_bytes_per_s: float
    bandwidth_source: str


class LineFit(msgspec.Struct, frozen=True):
    """latency(n) = (n - 1) / W + B, fitted; n is the position, counting the token being decoded."""

    n_samples: int
    w_tokens_per_ms: float | None
    """Tokens of context that add 1 ms to a token; None if the slope does not differ from zero."""
    w_ci95: tuple[float, float | None] | None
    """95 % interval of W; an upper end of None is unbounded, so W is "> lower". None: too few samples, or no bound."""
    b_ms: float | None
    """Latency of a first token, the line's value at n = 1; None without W, and where it does not differ from zero."""
    b_ci95: tuple[float, float] | None
    """95 % interval of B, cut off at zero; without `b_ms`, B is "< upper end". None: too few samples."""
    r2: float | None
    """Share of the variance that the line explains; None if the samples do not vary."""
    robust_w_tokens_per_ms: float | None
    """W from a Theil-Sen slope, to cross-check; None if that slope is not positive."""

    @property
    def is_flat(self) -> bool:
        """Whether there is a line that does not climb measurably."""
        return self.w_tokens_per_ms is None and self.b_ci95 is not None and self.b_ci95[0] > 0


def w_ratio(fit: LineFit | None, limit: DecodeLimit | None) -> float | None:
    """Return the measured W over the limit's; 1.0 is the physical limit. None if either is unknown."""
    if fit is None or fit.w_tokens_per_ms is None or limit is None or limit.w_tokens_per_ms is None:
        return None
    return fit.w_tokens_per_ms / limit.w_tokens_per_ms


def b_ratio(fit: LineFit | None, limit: DecodeLimit | None) -> float | None:
    """Return the limit's B over the measured; 1.0 is the physical limit. None if either is unknown."""
    return None if fit is None or fit.b_ms is None or limit is None else limit.b_ms / fit.b_ms


class LatencySummary(msgspec.Struct, frozen=True):
    """Percentiles and rate of the timed steps."""

    p50_ms: float | None
    """None if single steps were not timed, as in an imported run; so are the next two."""
    p95_ms: float | None
    p99_ms: float | None
    tok_s: float
    """Tokens per second over all timed decode steps, sampling left out, as llama-bench counts tg."""
    sample_p50_ms: float | None
    """Median time of the sampler for one token; None if it was not timed."""
    tok_s_ci95: tuple[float, float | None] | None = None
    """95 % interval; upper end None means unbounded. None for under 64 samples or a run of an older ggbench."""


class PrefillSpeed(msgspec.Struct, frozen=True):
    """How fast a prompt of one length is read."""

    n_prompt: int
    prefill_ms: float
    """Median over the repeats."""
    tok_s: float
    repeat: int
    tok_s_ci95: tuple[float, float | None] | None = None
    """95 % interval of `tok_s`, as for a decode. None: fewer than 3 timings, or stored by an earlier ggbench."""
    n_depth: int = 0
    """Tokens in the cache before the prompt; 0 for every prompt that ggbench measures."""


class DepthSpeed(msgspec.Struct, frozen=True):
    """How fast tokens are decoded with a number of tokens in the cache."""

    n_depth: int
    """Requested tokens in the cache before the first that was timed."""
    n_gen: int
    """Tokens that each repetition decoded."""
    tok_s: float
    repeat: int
    tok_s_ci95: tuple[float, float | None] | None = None
    """95 % interval, as for a decode. None: fewer than 64 tokens timed singly, or 3 repetitions timed as a whole."""


class DecodeWindow(msgspec.Struct, frozen=True):
    """Consecutive steps timed together, in one repetition or as the mean of several."""

    n_depth: int
    """Tokens in the cache before the first step."""
    n_gen: int
    elapsed_ns: float
    repeat: int | None = 1
    """Repetitions that it is the mean of; None if unknown."""

    @property
    def mean_position(self) -> float:
        """Position of the middle of the window, 1-based: the mean over its steps."""
        return self.n_depth + (self.n_gen + 1) / 2

    @property
    def step_ms(self) -> float:
        return self.elapsed_ns / 1e6 / self.n_gen


def serving_of(server: ServerFound | None, requests: Sequence[RequestTiming]) -> ServingFigures | None:
    """Summarize the requests; None for a run without a server, or without a request."""
    if server is None or not requests:
        return None
    decodes = [each for each in requests if each.series]
    waits = [(each.first_token_ns - each.sent_ns) / 1e6 for each in decodes if each.first_token_ns is not None]
    jitters = [each.jitter_ns / 1e6 for each in decodes if each.jitter_ns is not None]
    drafts = [each for each in decodes if each.n_drafted is not None]
    trips = server.round_trip_ns
    return ServingFigures(
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
"""Clock that timed a step: the engine's on this machine, a server's own, or the client's, which sees tokens arrive."""


class ServerFound(msgspec.Struct, frozen=True):
    """The server as it answered before anything was measured; an observation. Empty and None are unknown."""

    kind: str
    """Which program, `llama-server`; `OpenAI-compatible` where it cannot be recognized."""
    version: str = ""
    n_ctx: int | None = None
    """Tokens that one request may have."""
    n_slots: int | None = None
    """Requests that it computes at once; None if unknown, or without such a number."""
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
    """Name of the series of steps to which these belong."""


class RequestTiming(msgspec.Struct, frozen=True):
    """One request that generated tokens, as far as it came; an observation. Times are the client's, in ns.

    They count from the moment at which the first of all requests of a batch was sent.
    """

    n_prompt: int
    """Tokens that were sent."""
    n_gen: int
    """Requested tokens."""
    sent_ns: int
    clock: Clock = "client"
    """Clock that timed the steps."""
    series: str = ""
    """Name of the series of its steps; empty if only the prompt was timed."""
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    n_prompt_counted: int | None = None
    """The server's own count; None if it does not report it."""
    n_cached: int | None = None
    """Prompt tokens that the server had from earlier requests; None if it does not report it."""
    n_tokens: int = 0
    """Tokens received."""
    n_tokens_together: int = 0
    """Tokens that came with others in one chunk."""
    server_prompt_ns: int | None = None
    """Time on the server's own clock, like `server_gen_ns`; None if it has none."""
    server_gen_ns: int | None = None
    jitter_ns: float | None = None
    """Standard deviation of what arrival adds to a step of the server's own clock; None without such a clock."""
    n_drafted: int | None = None
    """Tokens that a draft proposed; None if the server does not report it, or does not speculate."""
    n_accepted: int | None = None
    """Drafted tokens that the model agreed with."""
    is_exact: bool = True
    """Whether the tokens were counted by the server, and not by the chunks that they came in."""
    remarks: tuple[str, ...] = ()
    """Deviations of the server from the request, one line each."""

    @property
    def as_one_chunk(self) -> tuple[TokenChunks, ...]:
        """All tokens after the first as one chunk; none where there are fewer than two."""
        if self.first_token_ns is None or self.last_token_ns is None or self.n_tokens < 2:
            return ()
        elapsed_ns = self.last_token_ns - self.first_token_ns
        return (TokenChunks((self.n_prompt + 1,), (self.n_tokens - 1,), (elapsed_ns,), self.series),)


class ServingFigures(msgspec.Struct, frozen=True):
    """How a server answered over all requests of a run; part of its result. None is unknown."""

    server: str
    """Program and version."""
    clock: Clock
    """Clock that timed the steps: the client's if it timed any."""
    n_requests: int
    n_tokens: int
    """Tokens received, excluding prompt-only requests."""
    n_tokens_together: int
    """Tokens that came with others in one chunk."""
    ttft_ms: float | None = None
    """Median time from sending a request of one sequence to its first token, the network included."""
    round_trip_ms: float | None = None
    """Median time to the first byte of a request that needs no model."""
    jitter_ms: float | None = None
    """Standard deviation that a token's arrival adds to the server's own time for it."""
    n_drafted: int | None = None
    n_accepted: int | None = None
    remarks: tuple[str, ...] = ()
    """Deviations of the server from the request, each once."""


RARE = 0.05
"""Share of the tokens up to which those in chunks are left out of fits and percentiles."""
_BLOCK = 16
"""Tokens: of a stair of 256 cells a sixteenth, and several steps of a draft of usual length."""


class TimedSeries(msgspec.Struct, frozen=True):
    """One decode: its single steps, and the chunks between them."""

    position: Sequence[int]
    """Tokens in the KV cache at each single step, the one being decoded included."""
    step_ns: Sequence[int]
    sample_ns: Sequence[int] = ()
    """Time of the sampler in each single step; empty if it was not timed."""
    chunks: Sequence[TokenChunks] = ()


@dataclass(slots=True)
class TokenTimes:
    """Times for a fit, and their sources."""

    position: list[float] = field(default_factory=list)
    """The mean position of the tokens of each time. A series ends where it does not rise."""
    step_ns: list[float] = field(default_factory=list)
    """Per token."""
    sample_ns: list[int] = field(default_factory=list)
    n_tokens: int = 0
    """All that were timed, alone or together."""
    n_together: int = 0
    elapsed_ns: int = 0
    """Total time of `n_tokens`."""

    @property
    def is_single(self) -> bool:
        """Whether each time is that of one token."""
        return self.n_together <= RARE * self.n_tokens

    @classmethod
    def of(cls, parts: Sequence[TimedSeries]) -> TokenTimes:
        found = cls()
        for part in parts:
            together = sum(sum(each.n_tokens) for each in part.chunks)
            found.n_together += together
            found.n_tokens += len(part.step_ns) + together
            found.elapsed_ns += sum(part.step_ns) + sum(sum(each.elapsed_ns) for each in part.chunks)
        for part in parts:
            if found.is_single:
                found.position.extend(part.position)
                found.step_ns.extend(part.step_ns)
                found.sample_ns.extend(part.sample_ns)
            else:
                for position, step_ns in _blocks(part):
                    found.position.append(position)
                    found.step_ns.append(step_ns)
        return found


def in_order(part: TimedSeries) -> list[tuple[int, int, int]]:
    """Return first position, tokens and ns of each single step and chunk, by rising position."""
    timed = [(first, 1, ns) for first, ns in zip(part.position, part.step_ns, strict=True)]
    for each in part.chunks:
        timed += zip(each.first_position, each.n_tokens, each.elapsed_ns, strict=True)
    return sorted(timed)


def _blocks(part: TimedSeries) -> Iterator[tuple[float, float]]:
    """Yield mean position and time per token of at least 16 consecutive tokens each; a shorter rest is left out."""
    begin, end, elapsed_ns = 0, 0, 0
    for first, n_tokens, ns in in_order(part):
        if first != end:
            begin, elapsed_ns = first, 0  # a token between them was not timed
        end, elapsed_ns = first + n_tokens, elapsed_ns + ns
        if end - begin >= _BLOCK:
            yield (begin + end - 1) / 2, elapsed_ns / (end - begin)
            begin, elapsed_ns = end, 0
