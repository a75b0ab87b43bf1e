"""One column of a comparison beside another: ratio and difference of a metric, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ggbench.decisions.estimates import Column, Estimated
from ggbench.show.metric import Metric
from ggbench.stats.intervals import Interval, difference_interval, ratio_interval
from ggbench.units import format_ratio, format_signed_percent


class Versus(msgspec.Struct, frozen=True):
    """A value over and less another."""

    ratio: float | None
    """None where one of them is not positive; so is its interval."""
    ratio_ci95: Interval | None
    difference: float
    difference_ci95: Interval
    """The same ends as those of the ratio where there is one, times the other value."""

    @property
    def is_different(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        low, high = self.difference_ci95
        return low > 0 or high < 0

    @property
    def text(self) -> str:
        """`0.97 ±0.04 times`; empty without a ratio."""
        if self.ratio is None or self.ratio_ci95 is None:
            return ""
        return f"{format_ratio(self.ratio, *self.ratio_ci95)} times"

    @property
    def percent(self) -> str:
        """`−3 % (−7 to +1 %)`; empty without a ratio."""
        if self.ratio is None or self.ratio_ci95 is None:
            return ""
        return format_signed_percent(self.ratio - 1, *(end - 1 for end in self.ratio_ci95))


def versus(
    metric: Metric, columns: Sequence[Column], found: Sequence[Estimated], one: int, other: int
) -> Versus | None:
    """Return one column beside another; None where either is not compared."""
    mine, its = found[one], found[other]
    if mine.value is None or its.value is None or mine.ci95 is None or its.ci95 is None:
        return None
    difference = mine.value - its.value
    if metric.is_exact:
        ratio = mine.value / its.value if its.value > 0 else None
        return Versus(ratio, None if ratio is None else (ratio, ratio), difference, (difference, difference))
    if mine.value <= 0 or its.value <= 0:
        return Versus(None, None, difference, difference_interval(mine.value, mine.ci95, its.value, its.ci95))
    paired = None if metric.paired is None else metric.paired(columns[one][0], columns[other][0])
    low, high = paired or ratio_interval(mine.value, mine.ci95, its.value, its.ci95)
    ends = its.value * (low - 1), its.value * (high - 1) if math.isfinite(high) else math.inf
    return Versus(mine.value / its.value, (low, high), difference, ends)
