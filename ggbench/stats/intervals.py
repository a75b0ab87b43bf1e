"""Which of several estimates is better, by their intervals: only where one lies wholly beyond another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end; both are the value of something exact, and an end may be infinite."""


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
