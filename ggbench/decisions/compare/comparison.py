"""Compare measured runs: which one is better, in which metric and by how much, and what else differs.

A number from one run is an estimate that changes with every load of the model. So a run is called better only if the
interval of the ratio, including the spread between loads, excludes 1. Without intervals, the largest or smallest value
is named without a verdict.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.decisions.compare.differences import caveats, differences_of, letters
from ggbench.decisions.compare.estimates import Column, Estimated, RunSpreads, Versus, estimates, versus
from ggbench.runs.comparable import setting_of
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN, letter
from ggbench.show.metric import NO_INTERVAL, Concern, Metric, depth_key, depth_metrics, vary
from ggbench.show.names import column_names, quant_names, short_names
from ggbench.show.presenter import metrics_of
from ggbench.stats.intervals import Interval, log_ratio
from ggbench.stats.samples import LoadSpread
from ggbench.text import in_words
from ggbench.units import format_number

NO_DIFFERENCE = "no difference"
UNDECIDED = "undecided"
_ALIKE = 1.1
"""Factor, either way, within which the whole interval of a ratio must lie to say that there is no difference."""


class Better(msgspec.Struct, frozen=True):
    run: int
    over: int
    """The next best."""
    n_compared: int
    ratio: float | None
    """Ratio of the best value to the next best; None if that is zero."""
    ratio_ci95: Interval | None
    """None if the values are exact or there is no ratio."""
    gain: str
    """`1.32 ±0.04 times`, `48.9 MiB less`; empty without a ratio."""
    is_exact: bool

    @property
    def text(self) -> str:
        """`b is best: 1.32 ±0.04 times c`, `b is better: 48.9 MiB less`."""
        is_pair = self.n_compared == 2
        over = "" if is_pair else f"{' than' if self.is_exact else ''} {letter(self.over)}"
        return f"{letter(self.run)} is {'better' if is_pair else 'best'}{f': {self.gain}{over}' if self.gain else ''}"


class Tied(msgspec.Struct, frozen=True):
    runs: tuple[int, ...]
    behind: tuple[int, ...]
    """The runs that are worse than one of the best."""
    is_exact: bool
    apart: str
    """Possible difference of two estimates, `−3 % (−7 to +1 %)`; empty for more than two, and for exact values."""
    is_undecided: bool = False
    """Whether two of the runs may differ by more than 10 %."""
    n_more: int | None = None
    """Further runs of each that would decide it, if the differences stay the same; for quality, the factor of chunks.
    None if decided, or if not even a hundred would be enough."""
    disturbed: str = ""
    """Why it is undecided, as `Versus.disturbed`, whatever the intervals; empty otherwise."""

    @property
    def text(self) -> str:
        """`a and b are equally good; c is worse`, `undecided: b 0 % (−34 to +51 %)`."""
        if self.behind:
            verb = "is" if len(self.behind) == 1 else "are"
            runs = letters(self.runs)
            found = f"undecided between {runs}" if self.is_undecided else f"{runs} are equally good"
            return f"{found}; {letters(self.behind)} {verb} worse"
        if self.disturbed:
            return f"{UNDECIDED}: {self.disturbed}"
        found = "the same" if self.is_exact else UNDECIDED if self.is_undecided else NO_DIFFERENCE
        return f"{found}: {letter(1)} {self.apart}" if self.apart else found


class Ahead(msgspec.Struct, frozen=True):
    """The best of several values without intervals: its lead may be just noise."""

    run: int
    share: float
    """Distance from the second best, as a share of that value; 0 if they are equal."""
    more_is_better: bool

    @property
    def text(self) -> str:
        """`b is 50 % lower; no interval`."""
        if not self.share:
            return "the same"
        direction = "higher" if self.more_is_better else "lower"
        return f"{letter(self.run)} is {format_number(self.share * 100, 2)} % {direction}; no interval"


class NotCompared(msgspec.Struct, frozen=True):
    """Why runs with a value are not compared; empty `runs` means all of them."""

    reason: str
    runs: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """`only a bound (a and b)`, `different lengths`."""
        return f"{self.reason} ({letters(self.runs)})" if self.runs else self.reason


Reason: TypeAlias = Better | Tied | Ahead | NotCompared


class ComparedLine(msgspec.Struct, frozen=True):
    """One metric of every run. Runs are named by their indices."""

    key: str
    header: str
    unit: str
    """Empty if the texts contain their units."""
    topic: str
    """Name in sentences; empty if the metric follows from another."""
    texts: tuple[str, ...]
    """One text per run, an em dash if unknown."""
    values: tuple[float | None, ...]
    ci95: tuple[Interval | None, ...]
    """Interval of each value, with the spread between loads; None if it is not compared by one."""
    compared: tuple[int, ...]
    """The runs whose values can be compared, with or without an interval."""
    better: tuple[bool, ...]
    """For each run, whether it is better than another and no other is better."""
    more_is_better: bool
    concern: Concern
    reasons: tuple[Reason, ...]
    """The verdict, then why runs are left out; empty if fewer than two values are known."""
    versus: tuple[Versus | None, ...]
    """Each run compared with the first; None for the first itself, and if either is not compared."""
    spreads: tuple[LoadSpread | None, ...]
    """Spread between loads, included in the intervals; None if a run has no such value."""

    @property
    def verdict(self) -> str:
        return "; ".join(each.text for each in self.reasons)


class Comparison(msgspec.Struct, frozen=True):
    """Runs side by side; the others are compared with the first."""

    names: tuple[str, ...]
    """The shortest that distinguish all of them. Printable."""
    short_names: tuple[str, ...]
    """The names without run numbers, shared by runs of one quant. Printable."""
    run_ids: tuple[int | None, ...]
    """Number of each column's first run; None if not stored."""
    n_runs: tuple[int, ...]
    """Runs averaged in each column."""
    lines: tuple[ComparedLine, ...]
    depths: tuple[ComparedLine, ...]
    """Speed by tokens in the cache; empty if no run has it."""
    differences: Mapping[str, tuple[str, ...]]
    """Lines by topic, one for each property that differs."""
    warnings: tuple[str, ...]
    """Reasons not to trust or compare a number."""
    unsteady: tuple[int, ...]
    """The runs whose machine was not steady."""
    asked_depths: frozenset[str] = frozenset()
    """Keys of the depths at which every run was asked to decode."""
    file: str = ""
    """Model and quant of all, if the names are those of engines. Printable."""
    repeats_setting: bool = False
    """Whether --average would join two of the columns."""

    def n_runs_of(self, run: int) -> int:
        """Return how many runs were averaged of this one or of the first, whichever has more."""
        return max(self.n_runs[0], self.n_runs[run])

    @property
    def more_runs(self) -> str:
        """How to compare more runs of each: `more runs of each, compared with --average,`."""
        how = "measured in turns by bench or prefill with two --engine"
        return f"more runs of each, {how if self.repeats_setting else 'compared with --average'},"

    @property
    def is_empty(self) -> bool:
        return all(len(line.compared) < 2 for line in (*self.lines, *self.depths))

    @property
    def stated(self) -> tuple[ComparedLine, ...]:
        """Lines covered by the conclusion; speed by depth replaces the mean over depths that all were asked for, and a
        speed that cannot be compared.
        """
        lines = tuple(line for line in self.lines if line.topic)
        depths = tuple(line for line in self.depths if len(line.compared) > 1)
        if asked := tuple(line for line in depths if line.key in self.asked_depths):
            return (*asked, *(line for line in lines if line.key != "tok_s"))
        if any(line.concern == "speed" and len(line.compared) > 1 for line in lines):
            return lines
        return (*depths, *lines)


def compare_quants(summaries: Sequence[QuantSummary], spreads: RunSpreads | None = None) -> Comparison:
    """Compare two or more runs. Raises StoreError for an experiment unknown to this ggbench."""
    return compare([(summary,) for summary in summaries], spreads)


def compare(columns: Sequence[Column], spreads: RunSpreads | None = None) -> Comparison:
    """Compare columns, each a run or the mean of repeated runs. Raises like `compare_quants`."""
    spreads = spreads or RunSpreads()
    summaries = [column[0] for column in columns]
    kinds = [run.head.kind for summary in summaries for run in summary.runs]
    lines = [_compared(metric, columns, spreads) for metric in metrics_of(kinds, summaries)]
    short, files = short_names(summaries), quant_names([summary.subject for summary in summaries])
    depths = [{depth_key(each.n_depth) for each in summary.depths} for summary in summaries]
    return Comparison(
        names=(names := column_names(summaries)),
        short_names=short,
        run_ids=tuple(summary.run.run_id for summary in summaries),
        n_runs=tuple(map(len, columns)),
        lines=tuple(lines),
        depths=tuple(_compared(metric, columns, spreads) for metric in depth_metrics(summaries)),
        differences=differences_of(summaries),
        warnings=(
            *caveats(
                [next((one for one in each if one.unsteady), each[0]) for each in columns],
                [statistics.fmean(one.others_share for one in each) for each in columns],
            ),
            *_left_out(lines),
        ),
        unsteady=tuple(index for index, column in enumerate(columns) if any(summary.unsteady for summary in column)),
        asked_depths=frozenset(set.intersection(*depths)),
        file="" if any(map(str.startswith, names, short)) or len({*files}) > 1 else files[0],
        repeats_setting=len({setting_of(summary.run) for summary in summaries}) < len(summaries),
    )


def _compared(metric: Metric, columns: Sequence[Column], spreads: RunSpreads) -> ComparedLine:
    found = estimates(metric, columns, spreads)
    has_one_basis = not vary(metric.basis, [column[0] for column in columns])
    if not has_one_basis:
        found = [replace(each, ci95=None) for each in found]
    texts, values = tuple(each.text for each in found), [each.value for each in found]
    intervals, why_not = [each.ci95 for each in found], [each.left_out for each in found]
    has_intervals = any(intervals) or not {NO_INTERVAL, ""}.issuperset(why_not)
    known: Sequence[object] = (intervals if has_intervals else values) if has_one_basis else ()
    compared = tuple(index for index, each in enumerate(known) if each is not None)
    more = metric.more_is_better

    with_interval = [index for index, each in enumerate(intervals) if each is not None]
    beaten: dict[int, list[int]] = {one: [] for one in with_interval}
    for one, other in itertools.permutations(with_interval, 2):
        apart = versus(metric, columns, found, other, one)
        if apart is not None and apart.is_better(more_is_better=more):
            beaten[one].append(other)
    unbeaten = [one for one, others in beaten.items() if not others]
    winners = {other for others in beaten.values() for other in others}
    reasons: tuple[Reason, ...] = ()
    if sum(text != UNKNOWN for text in texts) > 1:
        if not has_one_basis:
            reasons = (NotCompared(metric.other_basis),)
        elif has_intervals:
            decided = _decided(metric, columns, found, compared, unbeaten)
            left_out = {why: tuple(n for n, each in enumerate(why_not) if each == why) for why in why_not if why}
            reasons = (*decided, *(NotCompared(why, runs) for why, runs in left_out.items()))
        else:
            reasons = _ahead(values, more_is_better=more)
    return ComparedLine(
        key=metric.key,
        header=metric.header,
        unit=metric.unit,
        topic=metric.topic,
        texts=texts,
        values=tuple(values),
        ci95=tuple(intervals),
        compared=compared,
        better=tuple(one in unbeaten and one in winners for one in range(len(columns))),
        more_is_better=more,
        concern=metric.concern,
        reasons=reasons,
        versus=tuple(versus(metric, columns, found, index, 0) if index else None for index in range(len(columns))),
        spreads=tuple(each.spread if each.value is not None else None for each in found),
    )


def _decided(
    metric: Metric,
    columns: Sequence[Column],
    found: Sequence[Estimated],
    compared: Sequence[int],
    unbeaten: Sequence[int],
) -> tuple[Reason, ...]:
    """Return which run is better or which are tied; empty if none is compared, or each is beaten by another."""
    if len(compared) < 2 or not unbeaten:
        return ()
    if len(unbeaten) > 1:
        behind = tuple(index for index in compared if index not in unbeaten)
        if metric.is_exact:
            return (Tied(tuple(unbeaten), behind, True, ""),)
        pairs = [
            (pair, apart)
            for pair in itertools.combinations(unbeaten, 2)
            if (apart := versus(metric, columns, found, pair[1], pair[0])) is not None
        ]
        needed = [_runs_needed(metric, columns, *each) for each in pairs if not _is_alike(each[1])]
        percent = pairs[0][1].percent if pairs and len(columns) == 2 else ""
        n_more = None if None in needed else max(filter(None, needed), default=None)
        disturbed = next((apart.disturbed for _, apart in pairs if apart.disturbed), "")
        return (Tied(tuple(unbeaten), behind, False, percent, bool(needed), n_more, disturbed),)
    (best,) = unbeaten
    values = [(each.value, other) for other, each in enumerate(found) if each.value is not None and other in compared]
    _, over = (max if metric.more_is_better else min)((value, other) for value, other in values if other != best)
    lead = versus(metric, columns, found, best, over)
    if lead is None:
        return ()
    gain = lead.text if metric.difference is None else metric.difference(abs(lead.difference))
    ci95 = None if metric.is_exact else lead.ratio_ci95
    return (Better(best, over, len(compared), lead.ratio, ci95, gain, metric.is_exact),)


def _is_alike(apart: Versus) -> bool:
    """Return whether the whole interval of the ratio lies within 10 %, or there is no ratio, on a quiet machine."""
    low, high = apart.ratio_ci95 or (1.0, 1.0)
    return not apart.disturbed and low >= 1 / _ALIKE and high <= _ALIKE


def _runs_needed(metric: Metric, columns: Sequence[Column], pair: tuple[int, int], apart: Versus) -> int | None:
    """Return `Tied.n_more` of two runs: until the interval excludes 1, or lies within 10 %, whichever is nearer."""
    if apart.ratio is None or apart.ratio_ci95 is None or apart.disturbed:
        return None
    by, (low, high) = abs(math.log(apart.ratio)), apart.ratio_ci95
    half = max(log_ratio(apart.ratio, low), log_ratio(high, apart.ratio))
    is_quality = metric.concern == "quality"
    present = 1 if is_quality else max(len(columns[index]) for index in pair)
    needed = repeats_needed(max(by, math.log(_ALIKE) - by), half, present)
    return needed if is_quality or needed is None else needed - present


def _ahead(values: Sequence[float | None], *, more_is_better: bool) -> tuple[Ahead, ...]:
    known = sorted(((value, index) for index, value in enumerate(values) if value is not None), reverse=more_is_better)
    if len(known) < 2:
        return ()
    (best, index), (second, _) = known[:2]
    if best != second and not second:
        return ()
    return (Ahead(index, abs(best / second - 1) if best != second else 0.0, more_is_better),)


def _left_out(lines: Sequence[ComparedLine]) -> list[str]:
    alone: dict[int, list[str]] = {}
    for line in lines:
        holders = [index for index, text in enumerate(line.texts) if text != UNKNOWN]
        if len(holders) == 1 and line.topic:
            alone.setdefault(holders[0], []).append(line.topic)
    return [f"only {letter(index)} has {in_words(topics)}: not compared" for index, topics in sorted(alone.items())]


MOST_REPEATS = 100


def repeats_needed(distance: float, half: float, present: int) -> int | None:
    """Return the runs needed, more than the present ones, until half the interval of the mean, which shrinks with their
    square root, is less than the distance to what it must exclude.
    """
    if not distance or not math.isfinite(half):
        return None
    factor = (half / distance) ** 2
    return max(math.ceil(present * factor), present + 1) if factor <= MOST_REPEATS else None
