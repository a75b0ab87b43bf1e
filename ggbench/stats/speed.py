"""The speed of a decode: percentiles of its steps, and tokens per second with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.stats.decode_timing import LatencySummary, PrefillSpeed
from ggbench.stats.samples import (
    FREEDOM,
    Floats,
    Repetition,
    half_width,
    slow_waves,
    split_repetitions,
    spread,
    stair,
    t_95,
)
from ggbench.stats.serving import TokenTimes
from ggbench.units import KV_CELLS

MIN_SAMPLES = 64
"""A repetition of fewer samples than this, a quarter of a stair, does not show how far its noise is correlated."""


def summarize(
    position: npt.ArrayLike, step_ns: npt.ArrayLike, sample_ns: npt.ArrayLike | None = None
) -> LatencySummary | None:
    """Return p50, p95 and p99 in ms, interpolated between samples, and tokens per second as samples over their sum.

    `position` is 1-based; `step_ns` are the decode steps and `sample_ns` the sampler's times, both in ns; non-finite
    values are dropped; repetitions are concatenated, as for `fit_line`. None where no time was measured.
    """
    repetitions = split_repetitions(position, step_ns)
    if not repetitions:
        return None
    steps_ms = np.concatenate([repetition.step_ms for repetition in repetitions])
    mean_ms = float(steps_ms.mean())
    if mean_ms <= 0:
        return None
    p50_ms, p95_ms, p99_ms = (float(value) for value in np.percentile(steps_ms, (50, 95, 99)))
    interval = mean_interval_ms(repetitions)
    sampler = np.asarray([] if sample_ns is None else sample_ns, dtype=np.float64)
    sampler = sampler[np.isfinite(sampler)]
    return LatencySummary(
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        p99_ms=p99_ms,
        tok_s=1e3 / mean_ms,
        sample_p50_ms=float(np.median(sampler)) * 1e-6 if len(sampler) else None,
        tok_s_ci95=None if interval is None else (1e3 / interval[1], 1e3 / interval[0] if interval[0] > 0 else None),
    )


def summarize_tokens(times: TokenTimes) -> LatencySummary | None:
    """Return what `summarize` does, with tokens per second over all tokens that were timed, alone or together.

    Where many came together there are no percentiles: no token has a time of its own.
    """
    found = summarize(times.position, times.step_ns, times.sample_ns)
    if not times.n_together or times.elapsed_ns <= 0:
        return found
    tok_s = times.n_tokens * 1e9 / times.elapsed_ns
    if found is None:
        return LatencySummary(None, None, None, tok_s, None)
    interval = None
    if found.tok_s_ci95 is not None:
        low, high = found.tok_s_ci95
        scale = tok_s / found.tok_s
        interval = low * scale, None if high is None else high * scale
    found = replace(found, tok_s=tok_s, tok_s_ci95=interval)
    return found if times.is_single else replace(found, p50_ms=None, p95_ms=None, p99_ms=None)


def mean_interval_ms(repetitions: Sequence[Repetition]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean latency over these positions, in ms and cut off at zero.

    Latency climbs on a ramp or in stairs of 256 cells: what the two explain is removed from each repetition, and the
    rest is stationary noise of unknown correlation, measured as `ggbench.stats.samples` describes. Where repetitions
    differ by more than their noise, the excess widens the interval. What differs between one run and the next, such as
    clocks, shows only in repetitions. None where no repetition has 64 samples.
    """
    steps_ms = np.concatenate([each.step_ms for each in repetitions])
    lengths = [len(each.step_ms) for each in repetitions]
    mean_ms = float(steps_ms.mean())
    climb = _basis(np.concatenate([_climb(each.position) for each in repetitions]))
    residuals = steps_ms - mean_ms - climb @ (climb.T @ (steps_ms - mean_ms))
    energies = [_noise_energy(each) for each in repetitions if len(each.step_ms) >= MIN_SAMPLES]
    if not energies:
        return None
    freedom = sum(directions for _, directions in energies)
    noise = sum(energy for energy, _ in energies) / freedom
    levels = [float(part.mean()) for part in np.split(residuals, np.cumsum(lengths)[:-1])]
    between = spread(levels, [1 / length for length in lengths])
    error_ms = half_width(noise, between, len(lengths), freedom) / math.sqrt(len(steps_ms))
    return max(0.0, mean_ms - error_ms), mean_ms + error_ms


def prompt_speed(n_prompt: int, elapsed_ns: Sequence[int]) -> PrefillSpeed:
    """Return the speed of a prompt by the median of its timings; its interval is Student's, of independent timings.

    The interval is that of the mean, and widened to the median where that lies outside it. Fewer than 3 timings have
    none.
    """
    times_ns = np.asarray(elapsed_ns, dtype=np.float64)
    median_ns, interval = float(np.median(times_ns)), None
    if len(times_ns) >= 3:
        mean_ns, error_ns = times_ns.mean(), t_95(len(times_ns) - 1) * times_ns.std(ddof=1) / math.sqrt(len(times_ns))
        low_ns, high_ns = min(float(mean_ns - error_ns), median_ns), max(float(mean_ns + error_ns), median_ns)
        interval = n_prompt * 1e9 / high_ns, n_prompt * 1e9 / low_ns if low_ns > 0 else None
    return PrefillSpeed(n_prompt, median_ns / 1e6, n_prompt * 1e9 / median_ns, len(times_ns), interval)


def _climb(position: Floats) -> Floats:
    """Return the ramp and the stairs on which latency climbs, a column each, in stairs."""
    return np.column_stack([position / KV_CELLS, stair(position)])


def _basis(columns: Floats) -> Floats:
    """Return orthonormal columns that span these around their means; none where all are constant."""
    directions, sizes, _ = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
    spanned: Floats = directions[:, sizes > 1e-9 * sizes[0]]
    return spanned


def _noise_energy(repetition: Repetition) -> tuple[float, int]:
    """Return the energy of the residuals along the slowest cosines that the climb leaves, and their number."""
    n = len(repetition.step_ms)
    waves = slow_waves(n, FREEDOM + 2) * math.sqrt(2 / n)
    climb = _basis(_climb(repetition.position))
    centred = repetition.step_ms - repetition.step_ms.mean()
    amplitudes = waves @ (centred - climb @ (climb.T @ centred))
    explained, sizes, _ = np.linalg.svd(waves @ climb, full_matrices=False)
    explained = explained[:, sizes > 1e-9]
    left = amplitudes - explained @ (explained.T @ amplitudes)
    return float(left @ left), len(waves) - explained.shape[1]
