"""The speed of a decode: percentiles of its steps, tokens per second with an interval, and whether it was disturbed.

Latency grows along a steady run, on a ramp or in stairs of 256 cells; both are removed before searching for changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.stats.decode_timing import LatencySummary, PrefillSpeed, TokenTimes
from ggbench.stats.intervals import t_95
from ggbench.stats.samples import (
    FREEDOM,
    Floats,
    Repetition,
    group_medians,
    half_width,
    slow_waves,
    split_repetitions,
    spread,
    stair,
)
from ggbench.units import KV_CELLS, format_ms

MIN_SAMPLES = 64
"""A repetition with fewer samples than this, a quarter of a stair, does not show the correlation of its noise."""


def summarize(
    position: npt.ArrayLike, step_ns: npt.ArrayLike, sampler_ns: npt.ArrayLike | None = None
) -> LatencySummary | None:
    """Return p50, p95 and p99 in ms, interpolated between samples, and tokens per second as samples over their sum.

    `position` is 1-based; `step_ns` are the decode steps and `sampler_ns` the sampler's times, both in ns; non-finite
    values are dropped; repetitions are concatenated, as for `fit_line`. None if no time was measured.
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
    sampler = np.asarray([] if sampler_ns is None else sampler_ns, dtype=np.float64)
    sampler = sampler[np.isfinite(sampler)]
    return LatencySummary(
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        p99_ms=p99_ms,
        tok_s=1e3 / mean_ms,
        sample_p50_ms=float(np.median(sampler)) * 1e-6 if len(sampler) else None,
        tok_s_ci95=None if interval is None else _rates(1e3, *interval),
    )


def _rates(n_each: float, low: float, high: float) -> tuple[float, float | None]:
    """Return the interval of `n_each` / time for a time between these; its upper end is None if the time may be 0."""
    return n_each / high, n_each / low if low > 0 else None


def summarize_tokens(times: TokenTimes) -> LatencySummary | None:
    """Return the summary, with tokens per second over all timed tokens, alone or together.

    If many arrived together there are no percentiles, as tokens have no times of their own.
    """
    found = summarize(times.position, times.step_ns, times.sampler_ns)
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
    """Return the 95 % interval of the mean latency over these positions, in ms and truncated at zero.

    Latency grows on a ramp or in stairs of 256 cells: both are removed from each repetition, and the rest is taken as
    stationary noise of unknown correlation, measured as `ggbench.stats.samples` describes. If repetitions differ by
    more than their noise, the excess widens the interval. Variation between runs, such as of clocks, shows only in
    repetitions. None if no repetition has 64 samples.
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
    """Return the speed of a prompt by the median of its timings; its interval is Student's, for independent timings.

    The interval is that of the mean, widened to include the median. Fewer than 3 timings have none.
    """
    times_ns = np.asarray(elapsed_ns, dtype=np.float64)
    median_ns, interval = float(np.median(times_ns)), None
    if len(times_ns) >= 3:
        mean_ns, error_ns = (
            times_ns.mean(),
            t_95(len(times_ns) - 1) * times_ns.std(ddof=1) / math.sqrt(len(times_ns)),
        )
        low_ns, high_ns = min(float(mean_ns - error_ns), median_ns), max(float(mean_ns + error_ns), median_ns)
        interval = _rates(n_prompt * 1e9, low_ns, high_ns)
    return PrefillSpeed(n_prompt, median_ns / 1e6, n_prompt * 1e9 / median_ns, len(times_ns), interval)


def _climb(position: Floats) -> Floats:
    """Return the ramp and the stairs of growing latency, one column each."""
    return np.column_stack([position / KV_CELLS, stair(position)])


def _basis(columns: Floats) -> Floats:
    """Return orthonormal columns that span these around their means; none if all are constant."""
    directions, sizes, _ = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
    spanned: Floats = directions[:, sizes > 1e-9 * sizes[0]]
    return spanned


def _noise_energy(repetition: Repetition) -> tuple[float, int]:
    """Return the residual energy in the slowest cosines after projecting out the growth, and its degrees of freedom."""
    n = len(repetition.step_ms)
    waves = slow_waves(n, FREEDOM + 2) * math.sqrt(2 / n)
    climb = _basis(_climb(repetition.position))
    centred = repetition.step_ms - repetition.step_ms.mean()
    amplitudes = waves @ (centred - climb @ (climb.T @ centred))
    explained, sizes, _ = np.linalg.svd(waves @ climb, full_matrices=False)
    explained = explained[:, sizes > 1e-9]
    left = amplitudes - explained @ (explained.T @ amplitudes)
    return float(left @ left), len(waves) - explained.shape[1]


_BLOCK = 32
"""Positions summarized by one median: divides a stair, and is robust to single spikes and short correlation."""

_MIN_BLOCKS = 24
"""Below about 750 tokens, three stairs, a disturbance cannot be distinguished from stairs."""

_EDGES = 32
"""Maximum number of candidate positions for the start or end of a change."""

_SMALLEST_CHANGE = 0.03
_SMALLEST_GAP = 0.05
"""Between repetitions."""
_STANDARD_ERRORS = 6.0
"""Significance threshold of a change: for the largest of about 500 candidates, with not quite white noise."""

_SPIKE = 2.0
"""A spike is at least this multiple of its neighbours' median."""

_SPIKE_SHARE = 0.01
_FEWEST_SPIKES = 6
"""Minimum number of spikes, as a short run may have a few by chance."""
_SPIKE_TIME = 0.06
"""Largest share of the run's time for spikes, however few: least squares follows the largest."""


def unsteady(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> str:
    """Return why these samples suggest a disturbed machine, in one line; empty if they do not.

    `position` is 1-based; `step_ns` the latencies in ns; repetitions are concatenated, as for `fit_line`. Detects a
    level that changes by 3 % or more for a part of the run, a second half that deviates as much from the line through
    the first, steps over twice the median of their neighbours that are more than 1 % of all or take more than 6 % of
    the time, and repetitions 5 % apart. A change must be significant, so below about 750 samples only the last two are
    checked. A steady drift over the whole run appears as a slope and cannot be detected. Raises ValueError if the
    arrays differ in length.
    """
    repetitions = split_repetitions(position, step_ns)
    reasons = [_gap_between(repetitions)]
    for number, repetition in enumerate(repetitions, start=1):
        blocks = _block_medians(repetition)
        level = "" if blocks is None else _change_within(blocks) or _bend(blocks)
        where = f"repetition {number}: " if len(repetitions) > 1 else ""
        reasons += [f"{where}{reason}" for reason in (level, _spikes(repetition)) if reason]
    return "; ".join(reason for reason in reasons if reason)


class _Blocks(NamedTuple):
    """Medians over blocks of 32 positions, with the design matrix of a steady run."""

    first: Floats
    """Position of each block's start."""
    step_ms: Floats
    steady: Floats
    """A constant, a ramp, the stairs, and a ramp along the first stair alone, one column each."""

    def noise_ms(self) -> float:
        """Return a block's standard deviation, from differences of adjacent blocks, hence without changes of level."""
        basis = np.linalg.qr(self.steady)[0]
        differences = np.diff(self.step_ms - basis @ (basis.T @ self.step_ms))
        # 1.4826 scales a median absolute deviation to a standard deviation; a difference has twice the variance.
        return 1.4826 * float(np.median(np.abs(differences))) / math.sqrt(2)


def _block_medians(repetition: Repetition) -> _Blocks | None:
    label = ((repetition.position - 1) // _BLOCK).astype(np.int64)
    groups = group_medians(label, repetition.step_ms)
    full = groups.counts >= _BLOCK / 2
    if full.sum() < _MIN_BLOCKS:
        return None
    first = (groups.labels[full] * _BLOCK + 1).astype(np.float64)
    ramp, climb = first / first[-1], stair(first) * (KV_CELLS / first[-1])
    # llama.cpp's CPU flash attention skips masked cells up to 256 cells and splits the cache from 512 on.
    first_ramp = np.minimum(first, KV_CELLS) / KV_CELLS
    return _Blocks(first, groups.medians[full], np.column_stack([np.ones_like(ramp), ramp, climb, first_ramp]))


def _change_within(blocks: _Blocks) -> str:
    """Search for a part of the run, not at its start, whose level differs from the line through the rest."""
    n_blocks = len(blocks.step_ms)
    edges = np.unique(np.linspace(0, n_blocks, _EDGES + 1).round().astype(np.int64))
    begin, end = (edges[index] for index in np.triu_indices(len(edges), k=1))
    inner = (begin > 0) & (end - begin >= 2)
    begin, end = begin[inner], end[inner]
    index = np.arange(n_blocks)[:, None]
    window = ((index >= begin) & (index < end)).astype(np.float64)
    basis = np.linalg.qr(blocks.steady)[0]
    window -= basis @ (basis.T @ window)
    norm = np.einsum("ij,ij->j", window, window)
    separate = norm > 0.5
    window, norm, begin, end = window[:, separate], norm[separate], begin[separate], end[separate]
    if not len(norm):
        return ""
    change_ms = window.T @ blocks.step_ms / norm
    best = int(np.argmax(change_ms**2 * norm))
    change, error = float(change_ms[best]), blocks.noise_ms() / math.sqrt(norm[best])
    rest_ms = float(blocks.step_ms[begin[best] : end[best]].mean()) - change
    if not _matters(change, error, rest_ms):
        return ""
    end_text = f"to {blocks.first[end[best]]:,.0f}" if end[best] < n_blocks else "on"
    side = "longer" if change > 0 else "less"
    took = f"steps took {_percent(change / rest_ms)} {side} than in the rest of the run"
    return f"from about token {blocks.first[begin[best]]:,.0f} {end_text}, {took}"


def _bend(blocks: _Blocks) -> str:
    """Check whether the second half deviates from the line through the first. Source: Chow's predictive test,
    Econometrica 28, 1960.
    """
    half = len(blocks.step_ms) // 2
    before, after = blocks.steady[:half], blocks.steady[half:].mean(axis=0)
    inverse = np.linalg.pinv(before.T @ before)
    if np.linalg.matrix_rank(before) < before.shape[1]:
        return ""
    expected = float(after @ inverse @ (before.T @ blocks.step_ms[:half]))
    change = float(blocks.step_ms[half:].mean()) - expected
    error = blocks.noise_ms() * math.sqrt(float(after @ inverse @ after) + 1 / (len(blocks.step_ms) - half))
    if not _matters(change, error, expected):
        return ""
    side = "above" if change > 0 else "below"
    return f"the second half ran {_percent(change / expected)} {side} the line through the first"


def _matters(change: float, error: float, level: float) -> bool:
    return level > 0 and abs(change) > max(_SMALLEST_CHANGE * level, _STANDARD_ERRORS * error)


def _spikes(repetition: Repetition) -> str:
    label = (np.arange(len(repetition.step_ms)) // _BLOCK).astype(np.int64)
    groups = group_medians(label, repetition.step_ms)
    usual_ms = np.repeat(groups.medians, groups.counts)
    is_spike = repetition.step_ms > _SPIKE * usual_ms
    n_spikes, n_steps = int(is_spike.sum()), len(is_spike)
    lost = (
        float((repetition.step_ms - usual_ms)[is_spike].sum() / repetition.step_ms.sum()) if n_spikes else 0.0
    )
    if lost <= _SPIKE_TIME and (n_spikes < _FEWEST_SPIKES or n_spikes <= _SPIKE_SHARE * n_steps):
        return ""
    worst_ms = float(repetition.step_ms[is_spike].max())
    return f"{n_spikes} of {n_steps} steps took over twice as long as those around them, up to {format_ms(worst_ms)} ms"


def _gap_between(repetitions: list[Repetition]) -> str:
    """Compare medians of repetitions over the positions reached by all."""
    reached = min((len(repetition.position) for repetition in repetitions), default=0)
    if len(repetitions) < 2 or reached < _BLOCK:
        return ""
    medians = [float(np.median(repetition.step_ms[:reached])) for repetition in repetitions]
    slow, fast = int(np.argmax(medians)), int(np.argmin(medians))
    gap = medians[slow] / medians[fast] - 1 if medians[fast] > 0 else 0.0
    return (
        f"repetition {slow + 1} was {_percent(gap)} slower than repetition {fast + 1}"
        if gap > _SMALLEST_GAP
        else ""
    )


def _percent(ratio: float) -> str:
    return f"{abs(ratio) * 100:.1f} %"
