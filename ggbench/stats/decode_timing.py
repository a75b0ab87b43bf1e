"""Records of speed: bandwidth and its limit on a decode, the fitted line, percentiles, prefill, and a server's timings.

No time is interpolated for a token inside a server's chunk. Rare chunks, such as characters of several tokens, are
excluded from fits and percentiles but count for the speed. If they are common, as in speculative decoding, excluding
them would exclude the fast tokens, so there is only the speed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec

from ggbench.record import Record

_Slope = Annotated[float, msgspec.Meta(ge=1e-9)]
"""Latency grows by its inverse, so nothing smaller is read from a file."""
_SlopeInterval = tuple[_Slope, _Slope | None]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_SpeedInterval = tuple[_Positive, _Positive | None]


class Bandwidth(Record):
    """Memory bandwidth with its provenance."""

    bytes_per_s: float
    source: str
    """For display: `measured 2026-11-20 with 2 threads`, `NVML: 384 bit x 10501 MHz x 2`, `given`."""
    assumed: str = ""
    """The memory that it is assumed to be, `LPDDR5X-8000`; empty if the rate is known."""


class Break(Record):
    """Where latency begins to grow otherwise, as a window or the budget of sparse attention is full."""

    n: int
    """Position."""
    w_tokens_per_ms: _Slope | None
    """W up to there, from the break before if there is one; None if latency does not grow, or by less than the
    noise."""
    w_ci95: _SlopeInterval | None = None
    """The interval of W, like that of a `LineFit`."""


class LatencyLine(Record):
    """latency(n) = (n - 1) / W + B, with another W up to each break."""

    w_tokens_per_ms: _Slope | None
    """W beyond all breaks; None if latency does not grow."""
    b_ms: float
    breaks: tuple[Break, ...] = ()

    @property
    def last_break(self) -> Break | None:
        return self.breaks[-1] if self.breaks else None

    def ms(self, n: float) -> float:
        """Return the latency at position n."""
        n = max(n, 1)
        ends = (1, *(min(each.n, n) for each in self.breaks), n)
        ws = (*(each.w_tokens_per_ms for each in self.breaks), self.w_tokens_per_ms)
        return self.b_ms + sum(
            (end - start) / w for (start, end), w in zip(pairwise(ends), ws, strict=True) if w
        )


class DecodeLimit(LatencyLine, kw_only=True):
    """Bandwidth bound on decode latency."""

    bandwidth_bytes_per_s: float
    bandwidth_source: str


class LineFit(Record):
    """latency(n) = (n - 1) / W + B, fitted; n is the position, counting the token being decoded."""

    n_samples: int
    w_tokens_per_ms: _Slope | None
    """Tokens of context that add 1 ms to a token, beyond all breaks; None if the slope does not differ from zero, if
    the run is not a line, or if it ended before the last break."""
    w_ci95: _SlopeInterval | None
    """95 % interval of W; an upper end of None is unbounded, so W is "> lower". None: too few samples, no bound, or
    nothing tells the context from the machine."""
    b_ms: float | None
    """Latency of a first token, the line's value at n = 1; None if it does not differ from zero."""
    b_ci95: tuple[float, float] | None
    """95 % interval of B, truncated at zero; without `b_ms`, B is "< upper end". None where `w_ci95` may be."""
    has_changed: bool = False
    """Whether the machine changed during the run, so that W and B are those of the windows timed after it."""
    breaks: tuple[Break, ...] = ()
    """The header's breaks up to which the run has enough steps, in order."""

    @property
    def last_break(self) -> Break | None:
        return self.breaks[-1] if self.breaks else None

    @property
    def is_nothing(self) -> bool:
        """Whether not even a bound of W is known."""
        return self.w_tokens_per_ms is None and self.w_ci95 is None and not self.breaks


class LatencySummary(Record):
    """Percentiles and rate of the timed steps."""

    p50_ms: float | None
    """None if single steps were not timed, as in an imported run; likewise `p99_ms`."""
    p99_ms: float | None
    tok_s: float
    """Tokens per second over all timed decode steps, without sampling, like llama-bench's tg."""
    tok_s_ci95: _SpeedInterval | None = None
    """95 % interval; upper end None means unbounded. None for under 64 samples or a run of an older ggbench."""


class PrefillSpeed(Record):
    """The speed of reading prompts of one length."""

    n_prompt: int
    prefill_ms: float
    """Median over the repeats."""
    tok_s: float
    repeat: int
    tok_s_ci95: _SpeedInterval | None = None
    """95 % interval of `tok_s`, as for a decode. None: fewer than 3 timings, or stored by an earlier ggbench."""
    n_depth: int = 0
    """Tokens in the cache before the prompt; 0 for every prompt that ggbench measures."""


class DepthSpeed(Record):
    """The decode speed with a number of tokens in the cache."""

    n_depth: int
    """Requested tokens in the cache before the first timed one."""
    n_gen: int
    """Tokens decoded in each repetition."""
    tok_s: float
    repeat: int
    tok_s_ci95: _SpeedInterval | None = None
    """95 % interval, as for a decode. None: fewer than 64 tokens timed singly, or 3 repetitions timed as a whole."""


class DecodeWindow(Record):
    """Consecutive steps timed together, in one repetition or averaged over several."""

    n_depth: int
    """Tokens in the cache before the first step."""
    n_gen: int
    elapsed_ns: float
    repeat: int | None = 1
    """Number of repetitions averaged; None if unknown."""

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

    def of(name: str) -> list[Any]:
        return [getattr(each, name) for each in decodes]

    return ServingFigures(
        server=f"{server.kind} {server.version}".strip(),
        clock="client" if "client" in {each.clock for each in requests} else "server",
        n_requests=len(requests),
        n_tokens=sum(of("n_tokens")),
        n_tokens_together=sum(of("n_tokens_together")),
        ttft_ms=_median_ms(of("ttft_ns")),
        n_drafted=_total(of("n_drafted")),
        n_accepted=_total(of("n_accepted")),
        remarks=tuple(dict.fromkeys(remark for each in requests for remark in each.remarks)),
    )


def _median_ms(times_ns: Sequence[float | None]) -> float | None:
    """Return the median of the known times; None if none is known."""
    known = [ns / 1e6 for ns in times_ns if ns is not None]
    return statistics.median(known) if known else None


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


Clock = Literal["engine", "server", "client"]
"""Clock that timed a step: the engine's on this machine, a server's own, or the client's at the arrival of tokens."""


class ServerFound(Record):
    """The server's data before the measurement; an observation. Empty and None mean unknown."""

    kind: str
    """Name of the program, `llama-server`; `OpenAI-compatible` if not recognized."""
    version: str = ""
    n_slots: int | None = None
    """Maximum number of concurrent requests; None if unknown or unlimited."""


class TokenChunks(Record):
    """Tokens that arrived in chunks, an entry per chunk; an observation.

    Only whole chunks are timed, not the tokens in them.
    """

    first_position: tuple[int, ...]
    """Tokens in the KV cache at the first token of each chunk, including that token."""
    n_tokens: tuple[int, ...]
    elapsed_ns: tuple[int, ...]
    """Time since the token before the chunk."""
    series: str = ""
    """Series of steps to which these belong."""


class RequestTiming(Record):
    """One request that generated tokens, complete or not; an observation.

    Times are the client's, in ns since the first request of the batch was sent.
    """

    n_prompt: int
    """Number of tokens sent."""
    n_gen: int
    """Requested tokens."""
    sent_ns: int
    clock: Clock = "client"
    """Clock that timed the steps."""
    series: str = ""
    """Name of the series of its steps; empty if only the prompt was timed."""
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    n_prompt_counted: int | None = None
    """The server's own count; None if it does not report it."""
    n_tokens: int = 0
    """Tokens received."""
    n_tokens_together: int = 0
    """Tokens that arrived with others in one chunk."""
    n_drafted: int | None = None
    """Tokens proposed by a draft; None if not reported, or without speculation."""
    n_accepted: int | None = None
    """Drafted tokens accepted by the model."""
    is_exact: bool = True
    """Whether the server counted the tokens; otherwise chunks were counted."""
    remarks: tuple[str, ...] = ()
    """Deviations of the server from the request, one line each."""

    @property
    def ttft_ns(self) -> int | None:
        """Time from sending the request to its first token; None if none came."""
        return None if self.first_token_ns is None else self.first_token_ns - self.sent_ns

    @property
    def gen_ns(self) -> int | None:
        """Time from the first token to the last; None if there are fewer than two."""
        if self.first_token_ns is None or self.last_token_ns is None or self.n_tokens < 2:
            return None
        return self.last_token_ns - self.first_token_ns

    @property
    def as_one_chunk(self) -> tuple[TokenChunks, ...]:
        """Return all tokens after the first as one chunk; none if there are fewer than two."""
        if self.gen_ns is None:
            return ()
        return (TokenChunks((self.n_prompt + 1,), (self.n_tokens - 1,), (self.gen_ns,), self.series),)


class ServingFigures(Record):
    """Summary of a server's answers over all requests of a run; part of its result. None means unknown."""

    server: str
    """Program and version."""
    clock: Clock
    """Clock that timed the steps; the client's if it timed any."""
    n_requests: int
    n_tokens: int
    """Tokens received, excluding prompt-only requests."""
    n_tokens_together: int
    """Tokens that arrived with others in one chunk."""
    ttft_ms: float | None = None
    """Median time from sending a request of one sequence to its first token, including the network."""
    n_drafted: int | None = None
    n_accepted: int | None = None
    remarks: tuple[str, ...] = ()
    """Distinct deviations of the server from the request."""


RARE = 0.05
"""Largest share of tokens in chunks to exclude them from fits and percentiles."""


class TimedSeries(Record):
    """One decode: its single steps, and the chunks between them."""

    position: Sequence[int]
    """Tokens in the KV cache at each single step, including the one being decoded."""
    step_ns: Sequence[int]
    chunks: Sequence[TokenChunks] = ()


@dataclass(slots=True)
class TokenTimes:
    """Times for a fit, and their sources."""

    position: list[float] = field(default_factory=list)
    """Positions of the tokens that came alone. A new series starts where they do not increase."""
    step_ns: list[float] = field(default_factory=list)
    """Times of the tokens that came alone."""
    n_tokens: int = 0
    """Number of all timed tokens, alone or together."""
    n_together: int = 0
    elapsed_ns: int = 0
    """Total time of `n_tokens`."""

    @property
    def is_single(self) -> bool:
        """Whether so few tokens arrived together that the others stand for all."""
        return self.n_together <= RARE * self.n_tokens

    @classmethod
    def joined(cls, parts: Sequence[TokenTimes]) -> TokenTimes:
        """Return the times of several decodes, one after the other."""
        found = cls()
        for part in parts:
            for name in ("position", "step_ns", "n_tokens", "n_together", "elapsed_ns"):
                setattr(found, name, getattr(found, name) + getattr(part, name))
        return found

    @classmethod
    def of(cls, parts: Sequence[TimedSeries]) -> TokenTimes:
        found = cls()
        for part in parts:
            together = sum(sum(each.n_tokens) for each in part.chunks)
            found.n_together += together
            found.n_tokens += len(part.step_ns) + together
            found.elapsed_ns += sum(part.step_ns) + sum(sum(each.elapsed_ns) for each in part.chunks)
            found.position.extend(part.position)
            found.step_ns.extend(part.step_ns)
        return found


def in_order(part: TimedSeries) -> list[tuple[int, int, int]]:
    """Return first position, tokens and ns of each single step and chunk, in order of position."""
    timed = [(first, 1, ns) for first, ns in zip(part.position, part.step_ns, strict=True)]
    for each in part.chunks:
        timed += zip(each.first_position, each.n_tokens, each.elapsed_ns, strict=True)
    return sorted(timed)
