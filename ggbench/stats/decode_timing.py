"""Figures of speed: bandwidth, its limit on a decode, the fitted line, percentiles and prefill."""

from __future__ import annotations

import msgspec


class Bandwidth(msgspec.Struct, frozen=True):
    """Memory bandwidth that a limit is computed from, with where it comes from."""

    bytes_per_s: float
    source: str
    """For people: `measured 2026-11-20 with 2 threads`, `NVML: 384 bit x 10501 MHz x 2`, `given`."""


class DecodeLimit(msgspec.Struct, frozen=True):
    """Bandwidth bound on decode latency."""

    w_tokens_per_ms: float | None
    """None where what a token reads does not grow with the context."""
    b_ms: float
    bandwidth_bytes_per_s: float
    bandwidth_source: str


class LineFit(msgspec.Struct, frozen=True):
    """latency(n) = (n - 1) / W + B, fitted; n is the position, counting the token being decoded."""

    n_samples: int
    w_tokens_per_ms: float | None
    """Tokens until one takes 1 ms longer; None where the slope does not differ from zero."""
    w_ci95: tuple[float, float | None] | None
    """95 % interval of W; an upper end of None is unbounded, so W is "> lower". None: too few samples, or no bound."""
    b_ms: float | None
    """Latency of a first token, the line's value at n = 1; None without W, and where it does not differ from zero."""
    b_ci95: tuple[float, float] | None
    """95 % interval of B, cut off at zero; without `b_ms`, B is "< upper end". None: too few samples."""
    r2: float | None
    """Share of the variance that the line explains; None where the samples do not vary."""
    robust_w_tokens_per_ms: float | None
    """W from a Theil-Sen slope, to cross-check; None where that slope is not positive."""

    @property
    def is_flat(self) -> bool:
        """Whether there is a line, and it does not climb measurably."""
        return self.w_tokens_per_ms is None and self.b_ci95 is not None and self.b_ci95[0] > 0


def w_ratio(fit: LineFit | None, limit: DecodeLimit | None) -> float | None:
    """Return the measured W over the limit's; 1.0 is the physical limit. None where either is unknown."""
    if fit is None or fit.w_tokens_per_ms is None or limit is None or limit.w_tokens_per_ms is None:
        return None
    return fit.w_tokens_per_ms / limit.w_tokens_per_ms


def b_ratio(fit: LineFit | None, limit: DecodeLimit | None) -> float | None:
    """Return the limit's B over the measured; 1.0 is the physical limit. None where either is unknown."""
    return None if fit is None or fit.b_ms is None or limit is None else limit.b_ms / fit.b_ms


class LatencySummary(msgspec.Struct, frozen=True):
    """Percentiles and rate of the timed steps."""

    p50_ms: float | None
    """None where single steps were not timed, as in an imported run; so are the next two."""
    p95_ms: float | None
    p99_ms: float | None
    tok_s: float
    """Tokens per second over all timed decode steps, sampling left out, as llama-bench counts tg."""
    sample_p50_ms: float | None
    """Median time of the sampler for one token; None where it was not timed."""
    tok_s_ci95: tuple[float, float | None] | None = None
    """95 % interval, unbounded where the upper end is None. None: below 64 samples, or an earlier ggbench's run."""


class PrefillSpeed(msgspec.Struct, frozen=True):
    """How fast a prompt of one length is read."""

    n_prompt: int
    prefill_ms: float
    """Median over the repeats."""
    tok_s: float
    repeat: int
    tok_s_ci95: tuple[float, float | None] | None = None
    """95 % interval of `tok_s`, as of a decode. None: fewer than 3 timings, or stored by an earlier ggbench."""
    n_depth: int = 0
    """Tokens in the cache before the prompt; 0 of every prompt that ggbench measures."""


class DecodeWindow(msgspec.Struct, frozen=True):
    """Some consecutive steps that another tool timed together: of one repetition, or the mean of several."""

    n_depth: int
    """Tokens in the cache before the first step."""
    n_gen: int
    elapsed_ns: float
    repeat: int | None = 1
    """Repetitions that it is the mean of; None where the tool does not say."""

    @property
    def mean_position(self) -> float:
        """Position of the middle of the window, 1-based: the mean over its steps."""
        return self.n_depth + (self.n_gen + 1) / 2

    @property
    def step_ms(self) -> float:
        """Mean latency of a step."""
        return self.elapsed_ns / 1e6 / self.n_gen
