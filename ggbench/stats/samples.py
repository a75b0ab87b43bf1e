"""Step timings as arrays, and the error of their estimates due to noise within a run and between loads.

llama.cpp reads the KV cache in steps of 256 cells, so samples are grouped by position, never across repetitions.

A mean or a line is biased by noise at the lowest frequencies; it is estimated as the mean energy of the residuals
along the few slowest cosines, and the error follows Student's t with as many degrees of freedom. Source: Sun (2011),
"Robust trend inference with series variance estimator and testing-optimal smoothing parameter", Journal of Econometrics
164; Müller (2007), "A theory of robust long-run variance estimation", ibid. 141.

The memory layout of file and KV cache, the clocks, and other activity change between loads of a model, so the interval
of one run, however long, is too narrow to compare it with another. The spread is estimated from repeated runs, starting
from an assumption that a few repeats outweigh. Source of the combination: G. K. Smyth, "Linear models and empirical
Bayes methods for assessing differential expression in microarray experiments", Statistical Applications in Genetics and
Molecular Biology 3 (2004) 3, section 4: the moderated t.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.stats.intervals import Interval, log_ratio, t_95
from ggbench.units import KV_CELLS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Repetition(NamedTuple):
    """The finite samples of one decode, in order."""

    position: Floats
    step_ms: Floats


def split_repetitions(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> list[Repetition]:
    """Split concatenated samples into repetitions: a new one starts wherever the position does not increase.

    Non-finite samples are dropped. Raises ValueError if the arrays are not one-dimensional and equally long.
    """
    positions = np.asarray(position, dtype=np.float64)
    steps_ms = np.asarray(step_ns, dtype=np.float64) * 1e-6
    if positions.ndim != 1 or positions.shape != steps_ms.shape:
        raise ValueError(
            f"positions {positions.shape} and steps {steps_ms.shape} must be one-dimensional and equally long"
        )
    finite = np.isfinite(positions) & np.isfinite(steps_ms)
    positions, steps_ms = positions[finite], steps_ms[finite]
    if not len(positions):
        return []
    begins = np.flatnonzero(np.diff(positions) <= 0) + 1
    return [
        Repetition(*pair) for pair in zip(np.split(positions, begins), np.split(steps_ms, begins), strict=True)
    ]


def stair(position: Floats) -> Integers:
    """Return the index of the 256-cell step that contains a position: 0 for 1..256, 1 for 257..512."""
    return np.ceil(position / KV_CELLS).astype(np.int64) - 1


class Groups(NamedTuple):
    """Groups of equal labels, in ascending order of label."""

    labels: Integers
    counts: Integers
    medians: Floats


def group_medians(labels: Integers, values: Floats) -> Groups:
    unique, counts = np.unique(labels, return_counts=True)
    ordered = values[np.lexsort((values, labels))]
    begins = np.cumsum(counts) - counts
    medians = (ordered[begins + (counts - 1) // 2] + ordered[begins + counts // 2]) / 2
    return Groups(unique, counts.astype(np.int64), medians)


FREEDOM = 4
"""Number of low-frequency directions for estimating the noise: few, so that the interval is valid under long
correlation; it is a third wider than with known noise."""


def slow_waves(n: int, count: int) -> Floats:
    """Return cosines of 1 to `count` half periods at half steps, orthogonal to each other and to a constant; their norm
    is n / 2.
    """
    return np.cos(np.outer(np.pi * np.arange(1, count + 1), (np.arange(n) + 0.5) / n))


def spread(estimates: Sequence[float], variances: Sequence[float]) -> float:
    """Return the noise that explains the differences of repetitions, given each estimate's variance per unit of
    noise.
    """
    if len(estimates) < 2:
        return 0.0
    weight = 1 / np.array(variances)
    centred = np.array(estimates) - np.average(estimates, weights=weight)
    return float(weight @ centred**2) / (len(estimates) - 1)


def half_width(noise: float, spread: float, n_repetitions: int, freedom: int) -> float:
    """Return Student's t times the root of the noise plus the excess spread between repetitions.

    `freedom` is that of `noise`; with an excess, the degrees of freedom are after Satterthwaite (1946), "An approximate
    distribution of estimates of variance components", Biometrics Bulletin 2.
    """
    excess = max(0.0, spread - noise)
    total = noise + excess
    if total <= 0:
        return 0.0
    if excess:
        freedom = int(total**2 / (noise**2 / freedom + excess**2 / (n_repetitions - 1)))
    return t_95(max(1, freedom)) * math.sqrt(total)


ASSUMED_SIGMA = 0.02
"""Standard deviation of ln(value) between loads, assumed without repeats: decodes of 256 tokens of a 135M model on
an otherwise idle machine of 2 cores differed by 0.5 to 1.5 % (2026-11-22), and by several % over a day."""
DISTURBED_SIGMA = 0.1
"""The same for runs that were not steady."""
ASSUMED_FREEDOM = 3
"""Weight of the assumption, in repeats."""

_FAR_OUT = 10.0
"""Threshold for a disturbed run in standard deviations, by the median absolute deviation: one such run would hide all
later differences."""
_FEWEST_FOR_OUTLIERS = 5
_FEWEST_REPEATS = 4


class LoadSpread(msgspec.Struct, frozen=True):
    """The spread of a value between loads; without repeats, the assumed one."""

    sigma: float = ASSUMED_SIGMA
    """Standard deviation of ln(value)."""
    freedom: int = ASSUMED_FREEDOM
    """Degrees of freedom of `sigma`."""
    n_repeats: int = 0
    """Repeats that it was learned from."""

    def half_width(self, n_runs: int = 1) -> float:
        """Return half the 95 % interval of ln(value) for the mean of this many loads, without the noise within them."""
        return t_95(self.freedom) * self.sigma / math.sqrt(n_runs)

    def widened(self, value: float, ci95: Interval, n_runs: int = 1) -> Interval:
        """Return the interval of a positive value including the spread between loads; squares of logarithms add."""
        spread = self.half_width(n_runs)
        below, above = (
            math.hypot(spread, each) for each in (log_ratio(value, ci95[0]), log_ratio(ci95[1], value))
        )
        return value * math.exp(-below), value * math.exp(above) if math.isfinite(above) else math.inf


class Repeat(msgspec.Struct, frozen=True):
    """A positive value of one run, with its interval for the noise within the run; None if unknown."""

    value: float
    ci95: Interval | None


def load_spread(groups: Sequence[Sequence[Repeat]], assumed_sigma: float = ASSUMED_SIGMA) -> LoadSpread:
    """Return the spread between loads, from runs of the same settings in each group.

    Runs far from the others of their group are left out, but never one of two. The noise within runs is subtracted, if
    their intervals give it. Repeats that differ by less than the assumption are combined with it; others are used
    alone, with at least its degrees of freedom, since the t of one degree, 12.7, would hide every difference.
    """
    squares, within, n_repeats = 0.0, 0.0, 0
    for group in _undisturbed(groups):
        freedom = len(group) - 1
        if freedom < 1:
            continue
        squares += freedom * statistics.variance(math.log(each.value) for each in group)
        within += freedom * statistics.fmean(_variance_within(each) for each in group)
        n_repeats += freedom
    found = max(0.0, squares - within)
    if found > n_repeats * assumed_sigma**2:  # repeats that contradict the assumption are used alone
        return LoadSpread(math.sqrt(found / n_repeats), max(n_repeats, ASSUMED_FREEDOM), n_repeats)
    freedom = ASSUMED_FREEDOM + n_repeats
    return LoadSpread(math.sqrt((ASSUMED_FREEDOM * assumed_sigma**2 + found) / freedom), freedom, n_repeats)


def is_disturbed(value: float, earlier: Sequence[float], later: Sequence[float]) -> bool:
    """Return whether a positive value is an isolated outlier among its repeats, given in order of time.

    If the run before or after it is as far away, the machine may have changed permanently. False below four repeats.
    """
    others = [math.log(each) for each in (*earlier, *later)]
    if len(others) < _FEWEST_REPEATS:
        return False
    limit = _limit([abs(each - statistics.median(others)) for each in others])
    own = math.log(value)
    neighbours = [math.log(each) for each in (*earlier[-1:], *later[:1])]
    return abs(own - statistics.median(others)) > limit and all(abs(own - each) > limit for each in neighbours)


def _limit(distances: Sequence[float]) -> float:
    """Return the maximum distance of an undisturbed run's ln(value) from the median."""
    return _FAR_OUT * max(1.4826 * statistics.median(distances), ASSUMED_SIGMA)


def _undisturbed(groups: Sequence[Sequence[Repeat]]) -> list[list[Repeat]]:
    """Return the groups without outliers, by the median absolute deviation of all groups together."""
    apart = []
    for group in groups:
        values = [math.log(each.value) for each in group]
        middle = statistics.median(values)
        apart.append([abs(value - middle) for value in values])
    everything = [each for distances in apart for each in distances]
    if len(everything) < _FEWEST_FOR_OUTLIERS:
        return [list(group) for group in groups]
    limit = _limit(everything)
    return [
        [each for each, distance in zip(group, distances, strict=True) if distance <= limit or len(group) < 3]
        for group, distances in zip(groups, apart, strict=True)
    ]


def _variance_within(repeat: Repeat) -> float:
    """Return the variance of ln(value) from the narrower side of the interval, so as not to subtract too much noise."""
    if repeat.ci95 is None:
        return 0.0
    low, high = repeat.ci95
    half = min(log_ratio(repeat.value, low), log_ratio(high, repeat.value))
    return (half / t_95(FREEDOM)) ** 2
