"""Measured runs side by side: which is better in what and by how much, and what else differs between them.

A number from one run is an estimate, and another load of the same model gives another one. So a run is called better
only where the interval of the ratio, with the spread between loads, excludes 1; where there is no interval, the largest
or the smallest is named without a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.decisions.compare.differences import Differences, caveats, differences_of, letters
from ggbench.decisions.compare.estimates import Column, Estimated, Versus, estimates, versus
from ggbench.decisions.compare.repeats import RunSpreads
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN, letter
from ggbench.show.metric import NO_INTERVAL, Concern, Metric, depth_metrics, vary
from ggbench.show.names import unambiguous_names
from ggbench.show.presenter import metrics_of
from ggbench.stats.intervals import Interval
from ggbench.stats.samples import LoadSpread
from ggbench.text import in_words
from ggbench.units import format_number

NO_DIFFERENCE = "no difference"


class Better(msgspec.Struct, frozen=True):
    """One run is better than every other."""

    run: int
    """Index, as below."""
    over: int
    """The next best."""
    n_compared: int
    ratio: float | None
    """Its value over that of the next best; None where that is zero."""
    ratio_ci95: Interval | None
    """None where the values are exact, and without a ratio."""
    gain: str
    """`1.32 ±0.04 times`, `48.9 MiB less`; empty without a ratio."""
    is_exact: bool

    @property
    def text(self) -> str:
        """`b is best: 1.32 ±0.04 times c`."""
        word, over = ("better", "") if self.n_compared == 2 else ("best", f" {letter(self.over)}")
        gain = f": {self.gain}{f' than{over}' if self.is_exact and over else over}" if self.gain else ""
        return f"{letter(self.run)} is {word}{gain}"


class Tied(msgspec.Struct, frozen=True):
    """None of these runs is better than another."""

    runs: tuple[int, ...]
    behind: tuple[int, ...]
    """The runs that are worse than one of them."""
    is_exact: bool
    apart: str
    """How far two estimates may be apart, `−3 % (−7 to +1 %)`; empty of more, and of what is exact."""

    @property
    def text(self) -> str:
        """`a and b show no difference; c is worse`."""
        if self.behind:
            tied = "are the same" if self.is_exact else f"show {NO_DIFFERENCE}"
            return (
                f"{letters(self.runs)} {tied}; {letters(self.behind)} {'is' if len(self.behind) == 1 else 'are'} worse"
            )
        return "the same" if self.is_exact else f"{NO_DIFFERENCE}{f': {letter(1)} {self.apart}' if self.apart else ''}"


class Ahead(msgspec.Struct, frozen=True):
    """The best of several values that have no interval, so that its lead may be nothing but noise."""

    run: int
    share: float
    """How far it is from the second best, as a share of that; 0 where they are equal."""
    more_is_better: bool

    @property
    def text(self) -> str:
        """`b is 50 % lower; no interval`."""
        if not self.share:
            return "the same"
        direction = "higher" if self.more_is_better else "lower"
        return f"{letter(self.run)} is {format_number(self.share * 100, 2)} % {direction}; no interval"


class NotCompared(msgspec.Struct, frozen=True):
    """Why runs that show a value are not compared; `runs` is empty where all mean different things."""

    reason: str
    runs: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """`b only a bound`, `different lengths`."""
        return f"{letters(self.runs)} {self.reason}" if self.runs else self.reason


Reason: TypeAlias = Better | Tied | Ahead | NotCompared


class ComparedLine(msgspec.Struct, frozen=True):
    """One metric of every run."""

    key: str
    header: str
    unit: str
    """Empty where the texts carry their own."""
    topic: str
    """What a sentence calls it; empty for what follows from another metric."""
    texts: tuple[str, ...]
    """One for each run, an em dash where it is unknown."""
    compared: tuple[int, ...]
    """Indices of the runs whose values can be compared, with or without an interval."""
    better: tuple[bool, ...]
    """Whether a run is better than another, and none is better than it."""
    is_exact: bool
    more_is_better: bool
    concern: Concern
    reasons: tuple[Reason, ...]
    """What was decided, then why runs are left out; empty where fewer than two are known."""
    versus: tuple[Versus | None, ...]
    """Each run beside the first; None of the first itself, and where either is not compared."""
    spreads: tuple[LoadSpread | None, ...]
    """Between loads, which the intervals include; None where the run has no such value."""

    @property
    def verdict(self) -> str:
        """The reasons in words, with the runs' letters."""
        return "; ".join(each.text for each in self.reasons)


class Comparison(msgspec.Struct, frozen=True):
    """Runs side by side; the first is the one that others are compared with."""

    names: tuple[str, ...]
    """The shortest form that distinguishes all of them. Printable."""
    run_ids: tuple[int | None, ...]
    """Of the run that leads each column; None of one that is not stored."""
    lines: tuple[ComparedLine, ...]
    depths: tuple[ComparedLine, ...]
    """Speed by the tokens that are in the cache already; empty where no run shows it."""
    differences: tuple[Differences, ...]
    warnings: tuple[str, ...]
    """Why a number should not be trusted or compared, a line for each reason."""
    unsteady: tuple[int, ...]
    """Indices of the runs whose machine was not steady."""

    @property
    def is_empty(self) -> bool:
        """Whether no metric of one run can be compared with that of another."""
        return all(len(line.compared) < 2 for line in (*self.lines, *self.depths))

    @property
    def stated(self) -> tuple[ComparedLine, ...]:
        """What a sentence is about; speed by depth stands in for a speed that does not compare."""
        lines = tuple(line for line in self.lines if line.topic)
        if any(line.concern == "speed" and len(line.compared) > 1 for line in lines):
            return lines
        return (*(line for line in self.depths if len(line.compared) > 1), *lines)


def compare_quants(summaries: Sequence[QuantSummary], spreads: RunSpreads | None = None) -> Comparison:
    """Compare two runs or more; the n-th is called by the n-th letter, as in a plot. Raises StoreError for a kind that
    this ggbench does not have.
    """
    return compare([(summary,) for summary in summaries], spreads)


def compare(columns: Sequence[Column], spreads: RunSpreads | None = None) -> Comparison:
    """Compare columns, each of one run or of the mean of several that repeat one another. Raises as above."""
    spreads = spreads or RunSpreads()
    summaries = [column[0] for column in columns]
    kinds = [run.head.kind for summary in summaries for run in summary.runs]
    lines = [_compared(metric, columns, spreads) for metric in metrics_of(kinds, summaries)]
    return Comparison(
        names=unambiguous_names(summaries),
        run_ids=tuple(summary.run.run_id for summary in summaries),
        lines=tuple(lines),
        depths=tuple(_compared(metric, columns, spreads) for metric in depth_metrics(summaries)),
        differences=differences_of(summaries),
        warnings=(*caveats(summaries), *_left_out(lines)),
        unsteady=tuple(index for index, column in enumerate(columns) if any(summary.unsteady for summary in column)),
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

    pairs = tuple(versus(metric, columns, found, index, 0) if index else None for index in range(len(columns)))
    with_interval = [index for index, each in enumerate(intervals) if each is not None]

    def beaten_by(one: int) -> list[int]:
        """The runs that are better."""
        apart = ((other, versus(metric, columns, found, other, one)) for other in with_interval if other != one)
        return [other for other, each in apart if each is not None and each.is_better(more_is_better=more)]

    better_runs = {one: beaten_by(one) for one in with_interval}
    unbeaten = tuple(one for one, others in better_runs.items() if not others)
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
        compared=compared,
        better=tuple(
            one in unbeaten and any(one in others for others in better_runs.values()) for one in range(len(columns))
        ),
        is_exact=metric.is_exact,
        more_is_better=more,
        concern=metric.concern,
        reasons=reasons,
        versus=pairs,
        spreads=tuple(each.spread if each.value is not None else None for each in found),
    )


def _decided(
    metric: Metric,
    columns: Sequence[Column],
    found: Sequence[Estimated],
    compared: tuple[int, ...],
    unbeaten: tuple[int, ...],
) -> tuple[Reason, ...]:
    """Which run is better, or which are tied; nothing where fewer than two have an interval, or all are beaten in a
    circle.
    """
    if len(compared) < 2 or not unbeaten:
        return ()
    if len(unbeaten) > 1:
        behind = tuple(index for index in compared if index not in unbeaten)
        apart = versus(metric, columns, found, 1, 0) if len(columns) == 2 and not metric.is_exact else None
        return (Tied(unbeaten, behind, metric.is_exact, apart.percent if apart is not None else ""),)
    (best,) = unbeaten
    values = [(each.value, other) for other, each in enumerate(found) if each.value is not None and other in compared]
    _, over = (max if metric.more_is_better else min)((value, other) for value, other in values if other != best)
    lead = versus(metric, columns, found, best, over)
    if lead is None:
        return ()
    if metric.difference is not None:
        gain = metric.difference(abs(lead.difference))
        return (Better(best, over, len(compared), lead.ratio, None, gain, is_exact=True),)
    return (Better(best, over, len(compared), lead.ratio, lead.ratio_ci95, lead.text, is_exact=False),)


def _ahead(values: Sequence[float | None], *, more_is_better: bool) -> tuple[Ahead, ...]:
    known = sorted(((value, index) for index, value in enumerate(values) if value is not None), reverse=more_is_better)
    if len(known) < 2:
        return ()
    (best, index), (second, _) = known[:2]
    if best == second:
        return (Ahead(index, 0.0, more_is_better),)
    return (Ahead(index, abs(best / second - 1), more_is_better),) if second else ()


def _left_out(lines: Sequence[ComparedLine]) -> list[str]:
    """What only one run has, so that it compares with nothing."""
    alone: dict[int, list[str]] = {}
    for line in lines:
        holders = [index for index, text in enumerate(line.texts) if text != UNKNOWN]
        if len(holders) == 1 and line.topic:
            alone.setdefault(holders[0], []).append(line.topic)
    return [f"only {letter(index)} has {in_words(topics)}: not compared" for index, topics in sorted(alone.items())]
