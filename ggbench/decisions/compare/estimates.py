"""What each column of a comparison says of a metric, with its interval, and how far it is from another's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ggbench.decisions.compare.repeats import RunSpreads
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.metric import NO_INTERVAL, Metric
from ggbench.stats.intervals import Interval, difference_interval, log_ratio, ratio_interval
from ggbench.stats.samples import ASSUMED_FREEDOM, LoadSpread
from ggbench.units import format_interval, format_ratio, format_signed_percent

_DISTURBED = "far from its repeats: measure again"

Column = Sequence[QuantSummary]
"""One run, or several that repeat one another and count as their mean; the first leads."""


class Estimated(msgspec.Struct, frozen=True):
    """One column's value of a metric."""

    text: str
    """As tables have it, an em dash where it is unknown; the interval in it is that of the run alone."""
    value: float | None
    ci95: Interval | None
    """None where it is not compared."""
    left_out: str
    """Why it is not, in a few words; empty where it is, and where it is unknown."""
    spread: LoadSpread | None = None
    """That the interval includes; None of what does not depend on the load."""


def estimates(metric: Metric, columns: Sequence[Column], spreads: RunSpreads) -> list[Estimated]:
    """Return what each column says; a metric that no load changes is that of the first run of a column."""
    if not metric.is_timed:
        return [_alone(metric, column[0]) for column in columns]
    return [_timed(_undisturbed(metric, column, spreads), spreads.of(metric, column[0])) for column in columns]


def _undisturbed(metric: Metric, column: Column, spreads: RunSpreads) -> list[Estimated]:
    """What each run of a column says; those that lie far from their repeats say nothing, unless all do."""
    alone = [(_alone(metric, summary), spreads.is_disturbed(metric, summary)) for summary in column]
    usual = [each for each, is_disturbed in alone if not is_disturbed]
    return usual or [replace(each, ci95=None, left_out=_DISTURBED) for each, _ in alone]


def _alone(metric: Metric, summary: QuantSummary) -> Estimated:
    text, interval = metric.text(summary), metric.interval(summary) if metric.interval else None
    left_out = metric.left_out(summary) if interval is None and text != UNKNOWN else ""
    return Estimated(text, metric.value(summary), interval, left_out)


def _timed(alone: list[Estimated], spread: LoadSpread) -> Estimated:
    """Squares of the noise within runs and of the spread between them add, as far as the mean leaves them."""
    alone = [each for each in alone if each.text != UNKNOWN] or alone[:1]
    first, count = alone[0], len(alone)
    values = [each.value for each in alone if each.value is not None and each.value > 0]
    intervals = [_with_spread_alone(each, spread) for each in alone]
    known = [each for each in intervals if each is not None]
    if len(values) < count or len(known) < count:
        reasons = [each.left_out for each, found in zip(alone, intervals, strict=True) if found is None]
        left_out = next(filter(None, reasons), "")
        return Estimated(first.text, first.value if count == 1 else None, None, left_out, spread)
    mean = math.exp(math.fsum(map(math.log, values)) / count)
    pairs = list(zip(values, known, strict=True))
    below = math.hypot(*(log_ratio(value, low) for value, (low, _) in pairs)) / count
    above = math.hypot(*(log_ratio(high, value) for value, (_, high) in pairs)) / count
    within = mean * math.exp(-below), mean * math.exp(above) if math.isfinite(above) else math.inf
    interval = spread.widened(mean, within, count)
    text = first.text if count == 1 else format_interval(mean, *interval)
    return Estimated(text, mean if count > 1 else first.value, interval, "", spread)


def _with_spread_alone(alone: Estimated, spread: LoadSpread) -> Interval | None:
    """The interval within the run; a value that has none is exact there once repeats show how far it differs."""
    if alone.ci95 is not None or alone.value is None:
        return alone.ci95
    is_learned = spread.n_repeats >= ASSUMED_FREEDOM and alone.left_out == NO_INTERVAL
    return (alone.value, alone.value) if is_learned else None


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

    def is_better(self, *, more_is_better: bool) -> bool:
        """Return whether the first of the two is better."""
        return self.difference_ci95[0] > 0 if more_is_better else self.difference_ci95[1] < 0

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
