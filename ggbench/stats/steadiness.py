"""Detect whether the machine was disturbed during a measurement, and describe how.

Latency grows along a steady run, on a ramp or in stairs of 256 cells; both are removed before looking for changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggbench.stats.samples import Floats, Repetition, group_medians, split_repetitions, stair
from ggbench.units import KV_CELLS, format_ms

_BLOCK = 32
"""Positions summarized by one median: divides a stair, and is robust to single spikes and short correlation."""

_MIN_BLOCKS = 24
"""Below about 750 tokens, three stairs, a disturbance cannot be distinguished from stairs."""

_EDGES = 32
"""Candidate positions where a change may begin or end."""

_SMALLEST_CHANGE = 0.03
_SMALLEST_GAP = 0.05
"""Between repetitions."""

_STANDARD_ERRORS = 6.0
"""Significance threshold of a change: the largest of some 500 candidates, with noise that is not quite white."""

_SPIKE = 2.0
"""Multiple of the median of its neighbours."""

_SPIKE_SHARE = 0.01
_FEWEST_SPIKES = 6
"""A short run may have a few by chance."""
_SPIKE_TIME = 0.06
"""Share of the run's time that spikes may take, however few: least squares follows the largest."""


def unsteady(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> str:
    """Return why these samples suggest a disturbed machine, in one line; empty where nothing does.

    `position` is 1-based; `step_ns` the latencies in ns; repetitions are concatenated, as for `fit_line`. Detects a
    level that changes by 3 % or more for a part of the run, a second half that deviates as much from the line through
    the first, steps over twice the median of their neighbours that are more than 1 % of all or take more than 6 % of
    the time, and repetitions 5 % apart. A change must be significant, so below about 750 samples only the last two are
    checked. A steady drift over the whole run appears as a slope and cannot be detected. Raises ValueError where the
    arrays differ in length.
    """
    repetitions = split_repetitions(position, step_ns)
    reasons = [_gap_between(repetitions)]
    for number, repetition in enumerate(repetitions, start=1):
        blocks = _block_medians(repetition)
        found = [_change_within(blocks) or _bend(blocks), _spikes(repetition)]
        where = f"repetition {number}: " if len(repetitions) > 1 else ""
        reasons += [f"{where}{reason}" for reason in found if reason]
    return "; ".join(reason for reason in reasons if reason)


class _Blocks(NamedTuple):
    """Medians over blocks of 32 positions, with the design matrix of a steady run."""

    first: Floats
    """Position at which each block begins."""
    step_ms: Floats
    steady: Floats
    """A constant, a ramp, the stairs, and a ramp along the first stair alone, one column each."""

    def noise_ms(self) -> float:
        """Return a block's standard deviation, from differences of neighbours, so that changes of level do not enter
        it.
        """
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


def _change_within(blocks: _Blocks | None) -> str:
    """Look for a part of the run, not at its beginning, whose level differs from the line through the rest."""
    if blocks is None:
        return ""
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
    span = f"from about token {blocks.first[begin[best]]:,.0f} on"
    if end[best] < n_blocks:
        span = f"from about token {blocks.first[begin[best]]:,.0f} to {blocks.first[end[best]]:,.0f}"
    side = "longer" if change > 0 else "less"
    return f"{span}, steps took {_percent(change / rest_ms)} {side} than in the rest of the run"


def _bend(blocks: _Blocks | None) -> str:
    """Look for a second half that deviates from the line through the first (Chow's predictive test, Econometrica 28,
    1960).
    """
    if blocks is None:
        return ""
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
    lost = float((repetition.step_ms - usual_ms)[is_spike].sum() / repetition.step_ms.sum()) if n_spikes else 0.0
    if lost <= _SPIKE_TIME and (n_spikes < _FEWEST_SPIKES or n_spikes <= _SPIKE_SHARE * n_steps):
        return ""
    worst_ms = float(repetition.step_ms[is_spike].max())
    return f"{n_spikes} of {n_steps} steps took over twice as long as those around them, up to {format_ms(worst_ms)} ms"


def _gap_between(repetitions: list[Repetition]) -> str:
    """Compare medians of repetitions over the positions that all of them reached."""
    reached = min((len(repetition.position) for repetition in repetitions), default=0)
    if len(repetitions) < 2 or reached < _BLOCK:
        return ""
    medians = [float(np.median(repetition.step_ms[:reached])) for repetition in repetitions]
    slow, fast = int(np.argmax(medians)), int(np.argmin(medians))
    gap = medians[slow] / medians[fast] - 1 if medians[fast] > 0 else 0.0
    return f"repetition {slow + 1} was {_percent(gap)} slower than repetition {fast + 1}" if gap > _SMALLEST_GAP else ""


def _percent(ratio: float) -> str:
    return f"{abs(ratio) * 100:.1f} %"
