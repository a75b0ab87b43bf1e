"""How far runs of the same settings differ from one load of a model to the next, beyond the noise within each.

Where pages of the file and the KV cache lie, the clocks, and what else a machine does change between loads, so the
interval of one run, however long, is too narrow to compare it with another. The spread is learned from runs that were
repeated, and begins at an assumption that a few repeats outweigh. Source of joining both: G. K. Smyth, "Linear models
and empirical Bayes methods for assessing differential expression in microarray experiments", Statistical Applications
in Genetics and Molecular Biology 3 (2004) 3, section 4: the moderated t.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ggbench.stats.intervals import Interval, log_ratio
from ggbench.stats.samples import FREEDOM, t_95

ASSUMED_SIGMA = 0.02
"""Standard deviation of ln(value) between loads, before any repeat is known: decodes of 256 tokens of a 135M model on
an otherwise idle machine of 2 cores differed by 0.5 to 1.5 % (2026-11-22), and by several % over a day."""
DISTURBED_SIGMA = 0.1
"""As above, of runs that were not steady."""
ASSUMED_FREEDOM = 3
"""Repeats that the assumption counts as."""


_FAR_OUT = 10.0
"""Standard deviations, by the median absolute deviation, from which on a run was disturbed: what else the machine did
then may have taken most of its time, and one such run would hide every difference from then on."""
_FEWEST_FOR_OUTLIERS = 5
_FEWEST_REPEATS = 4


class LoadSpread(msgspec.Struct, frozen=True):
    """The spread of one figure between loads; of no repeats, what is assumed."""

    sigma: float = ASSUMED_SIGMA
    """Standard deviation of ln(value)."""
    freedom: int = ASSUMED_FREEDOM
    """Degrees of freedom behind it."""
    n_repeats: int = 0
    """Runs beyond the first of each setting that it was learned from."""

    def half_width(self, n_runs: int = 1) -> float:
        """Return half the 95 % interval of ln(value) of the mean of that many loads, without the noise within them."""
        return t_95(self.freedom) * self.sigma / math.sqrt(n_runs)

    def widened(self, value: float, ci95: Interval, n_runs: int = 1) -> Interval:
        """Return the interval of a positive value as another load would have it; squares add on the logarithms."""
        spread = self.half_width(n_runs)
        below, above = (math.hypot(spread, each) for each in (log_ratio(value, ci95[0]), log_ratio(ci95[1], value)))
        return value * math.exp(-below), value * math.exp(above) if math.isfinite(above) else math.inf


class Repeat(msgspec.Struct, frozen=True):
    """One figure of one run, positive, with the interval of the noise within the run; None where it has none."""

    value: float
    ci95: Interval | None


def load_spread(groups: Sequence[Sequence[Repeat]], assumed_sigma: float = ASSUMED_SIGMA) -> LoadSpread:
    """Return the spread between loads, from runs of the same settings in each group.

    Runs that lie far from the others of their group were disturbed, and are left out; one of two cannot be. The noise
    within runs is subtracted, as far as their intervals say it. Repeats that differ by less than is assumed are joined
    with the assumption; if they differ by more, they stand alone, with the assumption's degrees of freedom at least,
    since the t of one degree, 12.7, would hide every difference.
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
    if found > n_repeats * assumed_sigma**2:  # repeats that contradict the assumption stand alone
        return LoadSpread(math.sqrt(found / n_repeats), max(n_repeats, ASSUMED_FREEDOM), n_repeats)
    freedom = ASSUMED_FREEDOM + n_repeats
    return LoadSpread(math.sqrt((ASSUMED_FREEDOM * assumed_sigma**2 + found) / freedom), freedom, n_repeats)


def is_disturbed(value: float, earlier: Sequence[float], later: Sequence[float]) -> bool:
    """Return whether a positive value lies far from its repeats, in the order of time, and alone there.

    Where the run before or after it is as far away, the machine may have changed for good. Fewer than four repeats say
    nothing.
    """
    others = [math.log(each) for each in (*earlier, *later)]
    if len(others) < _FEWEST_REPEATS:
        return False
    limit = _limit([abs(each - statistics.median(others)) for each in others])
    own = math.log(value)
    neighbours = [math.log(each) for each in (*earlier[-1:], *later[:1])]
    return abs(own - statistics.median(others)) > limit and all(abs(own - each) > limit for each in neighbours)


def _limit(distances: Sequence[float]) -> float:
    """Of ln(value): how far from the median a run that was not disturbed may lie."""
    return _FAR_OUT * max(1.4826 * statistics.median(distances), ASSUMED_SIGMA)


def _undisturbed(groups: Sequence[Sequence[Repeat]]) -> list[list[Repeat]]:
    """The groups without runs that are far out, by the median absolute deviation of all groups together."""
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
    """Of ln(value), from the narrower side of the interval, so that no noise is subtracted that may not be there."""
    if repeat.ci95 is None:
        return 0.0
    low, high = repeat.ci95
    half = min(log_ratio(repeat.value, low), log_ratio(high, repeat.value))
    return (half / t_95(FREEDOM)) ** 2
