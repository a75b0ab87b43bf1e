"""Which of several estimates is better, only where its interval lies wholly beyond another, and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end; both are the value of something exact, and an end may be infinite."""

Beats: TypeAlias = Callable[[int, int], bool]
"""Whether the estimate at one index is better than that at another."""

_LARGEST_EXPONENT = 700.0
"""Of e, which is then near the largest float."""


class Leader(msgspec.Struct, frozen=True):
    """The best of several values that have no interval."""

    index: int
    share: float
    """How far it is from the second best, as a share of that; 0 where they are equal."""


def better(
    intervals: Sequence[Interval | None], *, more_is_better: bool, beats: Beats | None = None
) -> tuple[bool, ...]:
    """Return for each interval whether it is better than another one while none is better than it.

    None is not compared. Several may be better together: their intervals overlap, and all lie beyond a third. `beats`
    decides where the estimates are paired, as two that vary together differ by less than their intervals.
    """
    known, found = _known(intervals), beats or _beyond(intervals, more_is_better=more_is_better)
    at_the_top = unbeaten(intervals, more_is_better=more_is_better, beats=found)
    return tuple(
        is_unbeaten and any(found(one, other) for other in known if other != one)
        for one, is_unbeaten in enumerate(at_the_top)
    )


def leader(values: Sequence[float | None], *, more_is_better: bool) -> Leader | None:
    """Return which value is best and by how much; None where fewer than two are known, or the second best is zero.

    Without intervals, a lead may be nothing but noise.
    """
    known = sorted(((value, index) for index, value in enumerate(values) if value is not None), reverse=more_is_better)
    if len(known) < 2:
        return None
    (best, index), (second, _) = known[:2]
    if best == second:
        return Leader(index, 0.0)
    return Leader(index, abs(best / second - 1)) if second else None


def unbeaten(
    intervals: Sequence[Interval | None], *, more_is_better: bool, beats: Beats | None = None
) -> tuple[bool, ...]:
    """Return for each interval whether no other is better than it; False for None, which is not compared.

    If only one is unbeaten, it is better than the next best. `beats` as for `better`.
    """
    known, found = _known(intervals), beats or _beyond(intervals, more_is_better=more_is_better)
    return tuple(
        one in known and not any(found(other, one) for other in known if other != one) for one in range(len(intervals))
    )


def ratio_interval(one: float, one_ci: Interval, other: float, other_ci: Interval) -> Interval:
    """Return the interval of `one / other`, two independent positive estimates, from their own intervals.

    An end is infinite where the interval of `other` reaches zero, and 0 where that of `one` does. Source: the method of
    variance estimates recovery on the logarithms, G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008) 1693.
    """
    ratio = math.log(one / other)
    below = math.hypot(log_ratio(one, one_ci[0]), log_ratio(other_ci[1], other))
    above = math.hypot(log_ratio(one_ci[1], one), log_ratio(other, other_ci[0]))
    return _exp(ratio - below), _exp(ratio + above)


def difference_interval(one: float, one_ci: Interval, other: float, other_ci: Interval) -> Interval:
    """Return the interval of `one - other`, two independent estimates; source as of `ratio_interval`."""
    difference = one - other
    below = math.hypot(one - one_ci[0], other_ci[1] - other)
    above = math.hypot(one_ci[1] - one, other - other_ci[0])
    return difference - below, difference + above


def log_ratio(more: float, less: float) -> float:
    """Return ln(more / less); infinite where `less` is not positive or `more` is infinite."""
    return math.log(more / less) if less > 0 and math.isfinite(more) else math.inf


def _known(intervals: Sequence[Interval | None]) -> list[int]:
    return [index for index, interval in enumerate(intervals) if interval is not None]


def _beyond(intervals: Sequence[Interval | None], *, more_is_better: bool) -> Beats:
    """Whether an interval lies wholly beyond another."""

    def beats(one: int, other: int) -> bool:
        mine, its = intervals[one], intervals[other]
        if mine is None or its is None:
            return False
        return mine[0] > its[1] if more_is_better else mine[1] < its[0]

    return beats


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


class Expected(msgspec.Struct, frozen=True):
    """A value with the interval that it should lie in, with a probability of 95 %."""

    value: float
    low: float
    high: float


Z_95 = 1.959963984540054
"""Standard errors from the mean to either end of a 95 % interval."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean with its standard error, as llama-perplexity prints them."""

    mean: float
    error: float

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % interval of the mean."""
        return self.mean - Z_95 * self.error, self.mean + Z_95 * self.error
