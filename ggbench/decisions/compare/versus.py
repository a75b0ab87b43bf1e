"""One run, or the mean of repeats, compared with another by a metric: times in turns, other values by their intervals.

Times of a run change with every load of the model and with the machine, so only the ratios within turns, in which both
were measured one after the other, decide.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from ggbench.decisions.compare.differences import Column
from ggbench.engines.contract import DEFAULT_TIMEOUT_S
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.runs.store.runs import utc_text
from ggbench.show import UNKNOWN
from ggbench.show.figure import bounded_text
from ggbench.show.metric import Metric
from ggbench.show.words import say
from ggbench.stats.intervals import (
    Interval,
    Ratio,
    differing,
    geometric_mean,
    paired_ratio,
    ratio_interval,
)
from ggbench.stats.turns import FEWEST_TURNS, ratio_of_turns
from ggbench.units import format_ratio

Doubt = Literal["", "single", "few_turns"]
"""Why there can be no verdict: one run each, or fewer than four turns."""
_NOT_ALL = "unknown in some runs"


class ColumnValue(Record):
    runs: Column
    """Those that have the value; the first if none has."""
    text: str
    """The text in tables, an em dash if unknown."""
    value: float | None
    ci95: Interval | None
    """None for two or three runs; for one, of the noise within it; for more, Student's."""
    left_out: str
    """Why the value is not compared; empty if it is, or if it is unknown."""

    @property
    def is_known(self) -> bool:
        return self.text != UNKNOWN

    @property
    def compared(self) -> float | None:
        return None if self.left_out else self.value


def column_value(metric: Metric, column: Column) -> ColumnValue:
    """Return the mean of a column's runs, or the first run's value for a metric that does not depend on the load."""
    runs = [each for each in column if metric.figure.text(each) != UNKNOWN] or column[:1]
    first, left_out = runs[0], next(filter(None, map(metric.left_out, runs)), "")
    if not metric.is_timed or len(runs) == 1:
        first = column[0] if not metric.is_timed else first
        text = metric.figure.text(first)
        return ColumnValue([first], text, metric.value(first), metric.ci95(first), metric.left_out(first))
    values = [value for value in map(metric.value, runs) if value is not None and value > 0]
    if len(values) < len(runs):
        return ColumnValue(runs, metric.figure.text(first), None, None, left_out or _NOT_ALL)
    return ColumnValue(runs, *_mean(metric, runs, values), left_out)


def _mean(metric: Metric, runs: Column, values: Sequence[float]) -> tuple[str, float, Interval | None]:
    """Return the mean of positive values as text, as a number, and its interval."""
    mean, form = statistics.geometric_mean(values), metric.figure.form
    mark = "! " if any(map(metric.figure.mark, runs)) else ""
    if len(values) < FEWEST_TURNS:
        return f"{mark}{form(mean)}", mean, None
    estimate = geometric_mean(values)
    text = form(estimate) if metric.figure.is_estimate else bounded_text(estimate)
    return f"{mark}{text}", mean, (estimate.low, estimate.high)


class Versus(Record):
    """A run compared with another."""

    ratio: float
    ratio_ci95: Interval | None = None
    """None, like `p`, if there can be no verdict."""
    p: float | None = None
    """Probability that equals differ as much."""
    doubt: Doubt = ""
    """Why there can be no verdict; empty if there can."""
    n_turns: int | None = None
    """Turns in which both were measured; null of one run each, and where turns do not matter."""
    is_different: bool = False
    """Whether they differ, by Holm's correction for all pairs of runs."""

    def is_alike(self, share: float) -> bool:
        """Return whether the two differ by at most this share, either way."""
        low, high = self.ratio_ci95 or (1.0, 1.0)
        return low >= 1 / (1 + share) and high <= 1 + share

    @property
    def text(self) -> str:
        """`0.97 times (0.93–1.01)`, without the interval if there can be no verdict."""
        return format_ratio(self.ratio, *(self.ratio_ci95 or (self.ratio, self.ratio)), " times")

    @property
    def doubt_text(self) -> str:
        """`one run each`; empty if there can be a verdict."""
        return say(f"compare.{self.doubt}", found=self.n_turns, fewest=FEWEST_TURNS) if self.doubt else ""


Pairs: TypeAlias = Mapping[tuple[int, int], Versus]
"""One run compared with another, by their indices, either way."""


def pairs_of(metric: Metric, columns: Sequence[Column], values: Sequence[ColumnValue]) -> Pairs:
    """Return each two columns that can be compared, and which of them differ."""
    longest = _longest_gap(columns)
    timed = [_timed(metric, each.runs) if metric.is_timed else [] for each in values]
    pairs: dict[tuple[int, int], Versus] = {}
    for one, other in itertools.permutations(range(len(columns)), 2):
        ratios = _ratios_in_turns(timed[one], timed[other], longest)
        apart = _versus(metric, values[one], values[other], ratios)
        if apart is not None:
            pairs[one, other] = apart
    tested = {pair: each.p for pair, each in pairs.items() if each.p is not None and pair[0] < pair[1]}
    found = differing(tested)
    return {
        pair: replace(each, is_different=pair in found or pair[::-1] in found) for pair, each in pairs.items()
    }


def _versus(metric: Metric, one: ColumnValue, other: ColumnValue, ratios: Sequence[float]) -> Versus | None:
    """Return a column compared with another, given the ratios of turns; None if one is not compared."""
    mine, its = one.compared or 0.0, other.compared or 0.0
    if min(mine, its) <= 0:
        return None
    if not metric.is_timed:
        logs = metric.paired(one.runs[0], other.runs[0]) if metric.paired else ()
        found = paired_ratio(logs) or _ratio_of_values(mine, one.ci95, its, other.ci95)
        return Versus(found.value, (found.low, found.high), found.p)
    in_turns = ratio_of_turns(ratios)
    if in_turns is not None:
        return Versus(in_turns.value, (in_turns.low, in_turns.high), in_turns.p, n_turns=len(ratios))
    if len(one.runs) == len(other.runs) == 1:
        return Versus(mine / its, doubt="single")
    return Versus(mine / its, doubt="few_turns", n_turns=len(ratios))


def _ratio_of_values(one: float, one_ci95: Interval | None, other: float, other_ci95: Interval | None) -> Ratio:
    """Return the ratio of two independent values from their own intervals; those show a difference or none."""
    assert one_ci95 is not None and other_ci95 is not None
    low, high = ratio_interval(one, one_ci95, other, other_ci95)
    return Ratio(one / other, low, high, p=float(low <= 1 <= high))


class _Timed(NamedTuple):
    start: datetime
    run_id: int
    end: datetime
    value: float


def _timed(metric: Metric, runs: Column) -> list[_Timed]:
    """Return the positive values of the runs whose times are known."""
    found = []
    for each in runs:
        span, value = time_span(each), metric.value(each)
        if span is not None and value is not None and value > 0:
            found.append(_Timed(span[0], each.run_id or 0, span[1], value))
    return found


def _ratios_in_turns(one: Sequence[_Timed], other: Sequence[_Timed], longest: timedelta) -> list[float]:
    """Return the ratios of runs of two columns that follow each other, by at most `longest`: each is in one turn."""
    ratios, before = list[float](), None
    for run, is_first in sorted([*((each, True) for each in one), *((each, False) for each in other)]):
        if before is None or before[1] == is_first or run.start - before[0].end > longest:
            before = run, is_first
            continue
        ratio = run.value / before[0].value
        ratios.append(ratio if is_first else 1 / ratio)
        before = None
    return ratios


def time_span(run: Run) -> tuple[datetime, datetime] | None:
    """Return the start and the end of a run; None if one is unknown or damaged, or another program's."""
    start, end = utc_text(run.head.started_at), utc_text(run.finished_at or "")
    if run.is_imported or not start or not end:
        return None
    return datetime.fromisoformat(start), datetime.fromisoformat(end)


def _longest_gap(columns: Sequence[Column]) -> timedelta:
    """Return what may lie between the two of a turn: a run of each other column, and the loading of every model, which
    is shorter than the timeout.
    """
    spans = filter(None, (time_span(each) for column in columns for each in column))
    longest = max((end - start for start, end in spans), default=timedelta())
    return len(columns) * (longest + timedelta(seconds=DEFAULT_TIMEOUT_S))
