"""Which of several estimates is better, only where its interval lies wholly beyond another, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end; both are the value of something exact, and an end may be infinite."""

_LARGEST_EXPONENT = 700.0
"""Of e, which is then near the largest float."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The best of several values that have no interval."""

    index: int
    share: float
    """How far it is from the second best, as a share of that; 0 where they are equal."""


def better(intervals: Sequence[Interval | None], *, more_is_better: bool) -> tuple[bool, ...]:
    """Return for each interval whether it is better than another one while none is better than it.

    None is not compared. Several may be better together: their intervals overlap, and all lie beyond a third.
    """
    known = [interval for interval in intervals if interval is not None]

    def beats(one: Interval, other: Interval) -> bool:
        return one[0] > other[1] if more_is_better else one[1] < other[0]

    return tuple(
        one is not None and any(beats(one, other) for other in known) and not any(beats(other, one) for other in known)
        for one in intervals
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


def unbeaten(intervals: Sequence[Interval | None], *, more_is_better: bool) -> tuple[bool, ...]:
    """Return for each interval whether no other is better than it; None is not compared, and so is not unbeaten.

    One that is alone so is better than all others: being better is transitive.
    """
    known = [interval for interval in intervals if interval is not None]
    return tuple(
        one is not None and not any(other[0] > one[1] if more_is_better else other[1] < one[0] for other in known)
        for one in intervals
    )


def ratio_interval(one: float, one_ci: Interval, other: float, other_ci: Interval) -> Interval:
    """Return the interval of `one / other`, two independent positive estimates, from their own intervals.

    An end is infinite where the interval of `other` reaches zero, and 0 where that of `one` does. Source: the method of
    variance estimates recovery on the logarithms, G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008) 1693.
    """
    ratio = math.log(one / other)
    below = math.hypot(_log(one, one_ci[0]), _log(other_ci[1], other))
    above = math.hypot(_log(one_ci[1], one), _log(other, other_ci[0]))
    return _exp(ratio - below), _exp(ratio + above)


def _log(more: float, less: float) -> float:
    return math.log(more / less) if less > 0 and math.isfinite(more) else math.inf


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf
