"""A metric that runs are compared by: its value and interval, which way is better, and when it is not compared.

A bound is no interval: two values that are both below 20 may be any distance apart, so bounds are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import COLUMNS
from ggbench.stats.intervals import Interval

NO_INTERVAL = "without an interval"
_BOUND = "only a bound"

Concern = Literal["", "speed", "memory", "quality"]
"""What a limit of `ggbench compare` is on; empty for what none is."""


class Metric(msgspec.Struct, frozen=True):
    """What is compared, and which way is better."""

    key: str
    header: str
    unit: str
    text: Callable[[QuantSummary], str]
    more_is_better: bool
    value: Callable[[QuantSummary], float | None]
    interval: Callable[[QuantSummary], Interval | None] | None = None
    """None where a run gives a value without an interval."""
    left_out: Callable[[QuantSummary], str] = lambda summary: NO_INTERVAL
    """Why a run that shows a value but has no interval is not compared."""
    topic: str = ""
    """What a sentence calls it; empty for what follows from another metric."""
    difference: Callable[[float], str] | None = None
    """The text of a difference, where the values are exact; None for an estimate, which has a ratio."""
    basis: Callable[[QuantSummary], object] = lambda summary: None
    """What has to be the same in all runs for their values to mean the same."""
    other_basis: str = ""
    """The verdict where it differs."""
    paired: Callable[[QuantSummary, QuantSummary], Interval | None] | None = None
    """The interval of the ratio of two runs' values that vary together; None where runs are independent, and from it
    where the two cannot be paired.
    """
    is_timed: bool = False
    """Whether another load of the model may give another value, beyond the noise within a run."""
    concern: Concern = ""

    @property
    def is_exact(self) -> bool:
        """Whether its intervals are single values."""
        return self.difference is not None


def joined(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return metrics with each key once; of those that share one, each run has the first that shows anything of it."""
    found: dict[str, Metric] = {}
    for metric in metrics:
        before = found.get(metric.key)
        found[metric.key] = metric if before is None or before is metric else _either(before, metric)
    return tuple(found.values())


def column_metric(key: str, **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types
    """Return the metric of a column of tables."""
    column = COLUMNS[key]

    def value(summary: QuantSummary) -> float | None:
        known = column.value(summary)
        return known if isinstance(known, int | float) else None

    return Metric(key, column.header, column.unit, column.text, value=value, **more)


def estimated(metric: Metric, ends: Callable[[QuantSummary], tuple[float, float | None] | None]) -> Metric:
    """Return the metric with its interval; what has no upper end, or no value, is only a bound."""

    def interval(summary: QuantSummary) -> Interval | None:
        found = ends(summary)
        if metric.value(summary) is None or found is None or found[1] is None:
            return None
        return found[0], found[1]

    return replace(metric, interval=interval, left_out=lambda summary: _BOUND if ends(summary) else NO_INTERVAL)


def derived(key: str, base: Metric, *, inverse: bool = False, more_is_better: bool) -> Metric:
    """Return a column that is proportional to another metric, or to its inverse, whose interval follows."""
    column = column_metric(key, more_is_better=more_is_better, is_timed=base.is_timed)

    def interval(summary: QuantSummary) -> Interval | None:
        ends, of, value = base.interval and base.interval(summary), base.value(summary), column.value(summary)
        if not ends or not of or value is None:
            return None
        if inverse:
            low, high = (value * of / end if end else math.inf for end in reversed(ends))
        else:
            low, high = (value * end / of for end in ends)
        return low, high

    return replace(column, interval=interval)


def _either(one: Metric, other: Metric) -> Metric:
    """The first where a run shows anything of it, else the second."""

    def of(summary: QuantSummary) -> Metric:
        return one if one.text(summary) != UNKNOWN else other

    def interval(summary: QuantSummary) -> Interval | None:
        found = of(summary)
        return None if found.interval is None else found.interval(summary)

    return replace(
        one,
        text=lambda summary: of(summary).text(summary),
        value=lambda summary: of(summary).value(summary),
        interval=interval,
        left_out=lambda summary: of(summary).left_out(summary),
        basis=lambda summary: of(summary).basis(summary),
    )
