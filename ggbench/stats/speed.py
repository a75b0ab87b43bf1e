"""The speed of a decode and of a prompt: percentiles of steps, and tokens per second with an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.stats.decode_timing import LatencySummary, PrefillSpeed, TokenTimes
from ggbench.stats.intervals import half_width
from ggbench.stats.linefit import least_squares
from ggbench.stats.samples import Samples, block_means, finite_samples, half_width_in_a_row, rates


def summarize(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> LatencySummary | None:
    """Return p50 and p99 in ms, interpolated between samples, and tokens per second as samples over their sum.

    `position` is 1-based; `step_ns` are the decode steps in ns; non-finite values are dropped;
    repetitions are concatenated, as for `fit_line`. None if no time was measured.
    """
    samples = finite_samples(position, step_ns)
    if samples.step_ms.sum() <= 0:
        return None
    mean_ms = float(samples.step_ms.mean())
    p50_ms, p99_ms = map(float, np.percentile(samples.step_ms, (50, 99)))
    half_ms = _half_width_ms(samples)
    return LatencySummary(
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        tok_s=1e3 / mean_ms,
        tok_s_ci95=None if half_ms is None else rates(1e3, mean_ms, half_ms),
    )


def _half_width_ms(samples: Samples) -> float | None:
    """Return the half-width of the mean latency over these positions; None if they are too few for blocks.

    It is that of the blocks around their line or, of three or more whole repetitions, Student's of their means, if that
    is wider.
    """
    blocks = block_means(samples)
    if blocks is None:
        return None
    half_ms = least_squares(*blocks).mean_half
    longest = max(map(len, samples.of_each))
    means = [float(each.mean()) for each in samples.of_each if len(each) == longest]
    return max(half_ms, half_width(means)) if len(means) > 2 else half_ms


def summarize_tokens(times: TokenTimes) -> LatencySummary | None:
    """Return the summary, with tokens per second over all timed tokens, alone or together.

    If many arrived together that is all there is, as most tokens have no times of their own.
    """
    found = summarize(times.position, times.step_ns)
    if not times.n_together or times.elapsed_ns <= 0:
        return found
    tok_s = times.n_tokens * 1e9 / times.elapsed_ns
    if found is None or not times.is_single:
        return LatencySummary(None, None, tok_s)
    interval = None
    if found.tok_s_ci95 is not None:
        low, high = found.tok_s_ci95
        scale = tok_s / found.tok_s
        interval = low * scale, None if high is None else high * scale
    return replace(found, tok_s=tok_s, tok_s_ci95=interval)


def prompt_speed(n_prompt: int, elapsed_ns: Sequence[int]) -> PrefillSpeed:
    """Return the speed of a prompt by the median of its timings, with the interval of their mean, widened to include
    the median; fewer than 8 timings have none.
    """
    times_ns = np.asarray(elapsed_ns, dtype=np.float64)
    median_ns, mean_ns, interval = float(np.median(times_ns)), float(times_ns.mean()), None
    half_ns = half_width_in_a_row(times_ns.tolist())
    if half_ns is not None:
        interval = rates(n_prompt * 1e9, mean_ns, max(half_ns, abs(median_ns - mean_ns)))
    return PrefillSpeed(n_prompt, median_ns / 1e6, n_prompt * 1e9 / median_ns, len(times_ns), interval)
