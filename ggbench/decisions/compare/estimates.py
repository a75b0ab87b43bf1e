"""Estimate each column's value of a metric with its interval, which includes the spread between loads of the model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ggbench.decisions.compare.differences import Column
from ggbench.engines.contract import DEFAULT_TIMEOUT_S
from ggbench.runs.comparable import machine_key, repeats_on, setting_of
from ggbench.runs.run import Run, others_text
from ggbench.runs.store.database import Store
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.figure import bounded_text
from ggbench.show.metric import Metric, RunFigure
from ggbench.stats.intervals import (
    Estimate,
    Interval,
    difference_interval,
    geometric_mean,
    log_ratio,
    ratio_interval,
)
from ggbench.stats.samples import (
    ASSUMED_FREEDOM,
    ASSUMED_SIGMA,
    DISTURBED_SIGMA,
    LoadSpread,
    Repeat,
    is_disturbed,
    load_spread,
)
from ggbench.stats.turns import FEWEST_TURNS, ratio_of_turns
from ggbench.units import format_ratio

_DISTURBED = "far from its repeats: measure again"
_NOT_ALL = "unknown in some runs"


class Estimated(msgspec.Struct, frozen=True):
    text: str
    """The text in tables, an em dash if unknown; its interval covers only noise within the run."""
    value: float | None
    ci95: Interval | None
    """None if not compared."""
    left_out: str
    """Why the value is not compared; empty if it is, or if it is unknown."""
    is_single: bool = False
    """Whether it is from one load of the model, and too few repeats tell how loads differ."""

    @property
    def is_known(self) -> bool:
        return self.text != UNKNOWN


def estimates(metric: Metric, columns: Sequence[Column], spreads: RunSpreads) -> list[Estimated]:
    """Return each column's value: the mean of its runs, or the first run's for a metric that does not depend on the
    load.

    Runs far from their repeats are left out, unless all are.
    """
    if not metric.is_timed:
        return [_alone(metric, column[0]) for column in columns]
    found = []
    for column in columns:
        usual = [_alone(metric, each) for each in column if not spreads.is_disturbed(metric, each)]
        far = replace(_alone(metric, column[0]), ci95=None, left_out=_DISTURBED)
        found.append(_timed(usual, metric, spreads.of(metric, column[0])) if usual else far)
    return found


def _alone(metric: Metric, summary: QuantSummary) -> Estimated:
    text = metric.figure.text(summary)
    return Estimated(text, metric.value(summary), metric.ci95(summary), metric.left_out(summary))


def _timed(runs: Sequence[Estimated], metric: Metric, spread: LoadSpread) -> Estimated:
    """Return the mean of runs, with the interval of `_mean_ends`; without a positive value of each, the first run."""
    runs = [each for each in runs if each.is_known] or runs[:1]
    first, values = runs[0], [each.value for each in runs if each.value is not None and each.value > 0]
    if len(values) < len(runs):
        return replace(first, value=None, ci95=None, left_out=first.left_out or _NOT_ALL)
    ends = _mean_ends(values, runs, spread)
    if len(runs) == 1:
        return replace(first, ci95=ends, is_single=spread.n_repeats < ASSUMED_FREEDOM)
    return _mean(runs, metric.figure, statistics.geometric_mean(values), ends)


def _mean(runs: Sequence[Estimated], figure: RunFigure, mean: float, ends: Interval | None) -> Estimated:
    mark = next((each for each in ("! ", "~") if any(run.text.startswith(each) for run in runs)), "")
    if ends is None:
        left_out = next((each.left_out for each in runs if each.left_out), "")
        return Estimated(f"{mark}{figure.form(mean)}", mean, None, left_out)
    form = figure.form if figure.is_estimate else bounded_text
    return Estimated(f"{mark}{form(Estimate(mean, *ends))}", mean, ends, "")


def _mean_ends(values: Sequence[float], runs: Sequence[Estimated], spread: LoadSpread) -> Interval | None:
    """Return the interval of the mean: noise within runs and spread between them add in squares.

    If some run has no interval, the differences of four or more give one; else None.
    """
    count, mean = len(values), statistics.geometric_mean(values)
    pairs = [(value, each.ci95) for value, each in zip(values, runs, strict=True) if each.ci95 is not None]
    if len(pairs) == count:
        below = math.hypot(*(log_ratio(value, low) for value, (low, _) in pairs)) / count
        above = math.hypot(*(log_ratio(high, value) for value, (_, high) in pairs)) / count
        within = mean * math.exp(-below), mean * math.exp(above) if math.isfinite(above) else math.inf
        return spread.widened(mean, within, count)
    if count < FEWEST_TURNS:
        return None
    of_all = geometric_mean(values)
    return of_all.low, of_all.high


class Versus(msgspec.Struct, frozen=True):
    """A run compared with another."""

    ratio: float | None
    """None, like its interval, if one of them is not positive."""
    ratio_ci95: Interval | None
    difference: float
    difference_ci95: Interval
    """If there is a ratio, from its ends times the other value."""
    disturbed: str = ""
    """What else computed while the two were timed, so that nothing is decided; empty if little did, or if runs in turns
    differ by far more than it explains."""
    is_single: bool = False
    """Whether one run each is no verdict: it is not known how much loads of the model differ."""
    n_turns: int | None = None
    """Turns in which both were measured; null if they were not."""

    @property
    def is_different(self) -> bool:
        return self.is_better(more_is_better=True) or self.is_better(more_is_better=False)

    def is_better(self, *, more_is_better: bool) -> bool:
        low, high = self.difference_ci95
        return not self.disturbed and not self.is_single and (low > 0 if more_is_better else high < 0)

    def is_alike(self, share: float) -> bool:
        """Return whether the two differ by at most this share, either way."""
        low, high = self.ratio_ci95 or (1.0, 1.0)
        return not self.disturbed and low >= 1 / (1 + share) and high <= 1 + share

    @property
    def text(self) -> str:
        """`0.97 times (0.93–1.01)`, one run each without the interval; empty without a ratio."""
        if self.ratio is None or self.ratio_ci95 is None:
            return ""
        ends = (self.ratio, self.ratio) if self.is_single else self.ratio_ci95
        return format_ratio(self.ratio, *ends, " times")


def versus(
    metric: Metric, columns: Sequence[Column], found: Sequence[Estimated], one: int, other: int
) -> Versus | None:
    """Return one column compared with another; None if either is not compared."""
    mine, its = found[one], found[other]
    if mine.value is None or its.value is None or mine.ci95 is None or its.ci95 is None:
        return None
    if min(mine.value, its.value) <= 0:
        apart = difference_interval(mine.value, mine.ci95, its.value, its.ci95)
        return Versus(None, None, mine.value - its.value, apart)
    disturbed = _disturbed(columns[one], columns[other]) if metric.is_timed else ""
    in_turns = ratio_in_turns(metric, columns, one, other)
    if in_turns is not None:
        is_decided = not in_turns.low <= 1 <= in_turns.high
        ends = in_turns.low, in_turns.high
        found_apart = _versus(in_turns.value, ends, its.value, "" if is_decided else disturbed)
        return replace(found_apart, n_turns=len(columns[one]))
    paired = None if metric.paired is None else metric.paired(columns[one][0], columns[other][0])
    ends = paired or ratio_interval(mine.value, mine.ci95, its.value, its.ci95)
    is_single = mine.is_single and its.is_single
    return replace(_versus(mine.value / its.value, ends, its.value, disturbed), is_single=is_single)


def _versus(ratio: float, ends: Interval, of: float, disturbed: str) -> Versus:
    low, high = ends
    apart = of * (low - 1), of * (high - 1) if math.isfinite(high) else math.inf
    return Versus(ratio, ends, of * (ratio - 1), apart, disturbed)


def _disturbed(*columns: Column) -> str:
    """Return what else computed, on average over the runs of the column that it disturbed more; empty if little did.

    Runs that were not in turns then decide nothing, since the other programs may have run beside one side only.
    """
    return others_text(max(statistics.fmean(each.others_share for each in column) for column in columns))


class _TimedValue(NamedTuple):
    start: datetime
    run_id: int
    end: datetime
    column: int
    value: float


def ratio_in_turns(metric: Metric, columns: Sequence[Column], one: int, other: int) -> Estimate | None:
    """Return the mean ratio of two settings that were measured in turns; None if they were not, or in fewer than four.

    Between the two of a turn may lie a run of each other column and the loading of every model, which is shorter than
    the timeout.
    """
    n_turns = len(columns[one])
    if not metric.is_timed or n_turns < FEWEST_TURNS or n_turns != len(columns[other]):
        return None
    runs = sorted(_timed_values(metric, columns[one], one) + _timed_values(metric, columns[other], other))
    if len(runs) < 2 * n_turns:
        return None
    spans = [_span(each.run) for column in columns for each in column]
    longest = max(end - start for start, end in filter(None, spans))
    most_between = len(columns) * (longest + timedelta(seconds=DEFAULT_TIMEOUT_S))
    ratios = []
    for first, later in zip(runs[::2], runs[1::2], strict=True):
        if first.column == later.column or later.start - first.end > most_between:
            return None
        ratios.append(first.value / later.value if first.column == one else later.value / first.value)
    return ratio_of_turns(ratios, beside_others=bool(_disturbed(columns[one], columns[other])))


def _timed_values(metric: Metric, column: Column, index: int) -> list[_TimedValue]:
    """Return the positive values of the runs whose times are known."""
    found = []
    for each in column:
        span, value = _span(each.run), metric.value(each)
        if span is not None and value is not None and value > 0:
            found.append(_TimedValue(span[0], each.run.run_id or 0, span[1], index, value))
    return found


def _span(run: Run) -> tuple[datetime, datetime] | None:
    """Return the start and the end of a run; None if one is unknown, or another program's."""
    if run.is_imported or not run.head.started_at or run.finished_at is None:
        return None
    return datetime.fromisoformat(run.head.started_at), datetime.fromisoformat(run.finished_at)


Repeats = tuple[tuple[Run, ...], ...]
"""Groups of two or more runs that differ only in time."""


def _machine_of(run: Run) -> object:
    """Return a key that is equal for runs of one machine and one engine."""
    return run.head.setup.engine, run.head.environment and machine_key(run.head.environment)


def stored_repeats(store: Store, columns: Iterable[Column]) -> Repeats:
    """Return the repeated runs of a store on the machines of the columns. Raises StoreError if it cannot be read."""
    environments = (summary.run.head.environment for column in columns for summary in column)
    machines = {machine_key(each) for each in environments if each is not None}
    return tuple(tuple(group) for group in repeats_on(store, machines) if len(group) > 1)


_ENOUGH = 5
"""With at least this many repeats of a run's own setting, other settings on its machine are not used."""


class RunSpreads:
    """Spreads between loads, by metric and run, each computed once; assumed if there are no repeats."""

    def __init__(self, repeats: Repeats = ()) -> None:
        self._groups = [(_machine_of(group[0]), setting_of(group[0]), group) for group in repeats]
        self._known: dict[object, LoadSpread] = {}

    def of(self, metric: Metric, summary: QuantSummary) -> LoadSpread:
        """Return the spread of a metric among the run's own repeats if there are enough, else among all on its machine.

        Unsteady repeats count only for an unsteady run of their own setting.
        """
        settings = frozenset(map(setting_of, summary.runs))
        is_steady = not summary.unsteady
        key = metric.key, settings, is_steady
        if key not in self._known:
            machines = {_machine_of(run) for run in summary.runs}
            of_machine = [(setting, group) for machine, setting, group in self._groups if machine in machines]
            own = _repeats(
                metric, [group for setting, group in of_machine if setting in settings], is_steady=is_steady
            )
            if sum(len(group) - 1 for group in own) < _ENOUGH:
                others = [group for setting, group in of_machine if setting not in settings]
                own += _repeats(metric, others, is_steady=True)
            self._known[key] = load_spread(own, ASSUMED_SIGMA if is_steady else DISTURBED_SIGMA)
        return self._known[key]

    def is_disturbed(self, metric: Metric, summary: QuantSummary) -> bool:
        """Return whether the run is far from its repeats."""
        value, setting, started = metric.value(summary), setting_of(summary.run), summary.run.head.started_at
        if value is None or value <= 0:
            return False
        earlier, later = list[float](), list[float]()
        group = next((group for _, of, group in self._groups if of == setting), ())
        for run in sorted(group, key=lambda run: run.head.started_at):
            repeat = _repeat(metric, run)
            if repeat is not None and run.run_id != summary.run.run_id:
                (later if run.head.started_at > started else earlier).append(repeat.value)
        return is_disturbed(value, earlier, later)


def _repeats(metric: Metric, groups: Sequence[Sequence[Run]], *, is_steady: bool) -> list[list[Repeat]]:
    """Return the values of groups in which at least two runs have the metric."""
    found = []
    for group in groups:
        used = [run for run in group if not (is_steady and QuantSummary.of([run]).unsteady)]
        found.append([repeat for repeat in (_repeat(metric, run) for run in used) if repeat is not None])
    return [repeats for repeats in found if len(repeats) > 1]


def _repeat(metric: Metric, run: Run) -> Repeat | None:
    summary = QuantSummary.of([run])
    value = metric.value(summary)
    return None if value is None or value <= 0 else Repeat(value, metric.ci95(summary))
