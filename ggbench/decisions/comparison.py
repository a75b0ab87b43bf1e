"""Measured runs side by side: which is better in what and by how much, and what else differs between them.

A number from one run is an estimate, and another load of the same model gives another one. So a run is called better
only where the interval of the ratio, with the spread between loads, excludes 1; where there is no interval, the largest
or the smallest is named without a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ggbench.decisions.comparison_caveats import caveats, vary
from ggbench.decisions.differences import Differences, differences_of, letters
from ggbench.decisions.estimates import Column, Estimated, estimates
from ggbench.decisions.run_spread import RunSpreads
from ggbench.decisions.versus import Versus, versus
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.depths import depth_metrics
from ggbench.show.metric import NO_INTERVAL, Concern, Metric
from ggbench.show.names import unambiguous_names
from ggbench.show.plot.palette import letter
from ggbench.show.presenter import metrics_of
from ggbench.stats.intervals import Interval, better, leader, unbeaten
from ggbench.stats.load_spread import LoadSpread
from ggbench.text import in_words
from ggbench.units import format_number

NO_DIFFERENCE = "no difference"


class Lead(msgspec.Struct, frozen=True):
    """How far one run is ahead of the next best."""

    over: int
    """Index of the next best."""
    ratio: float | None
    """Its value over that of the next best; None where that is zero."""
    ratio_ci95: Interval | None
    """None where the values are exact, and without a ratio."""
    text: str
    """`1.32 ±0.04 times`, `48.9 MiB less`; empty without a ratio."""


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
    unbeaten: tuple[int, ...]
    """Indices of the runs that none is better than; empty where there are no intervals."""
    is_exact: bool
    more_is_better: bool
    concern: Concern
    lead: Lead | None
    """Of the one run that is better than all others; None where there is none."""
    verdict: str
    """The same in words, with the runs' letters; empty where fewer than two are known."""
    versus: tuple[Versus | None, ...]
    """Each run beside the first; None of the first itself, and where either is not compared."""
    spreads: tuple[LoadSpread | None, ...]
    """Between loads, which the intervals include; None where the run has no such value."""


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
    return compare_columns([(summary,) for summary in summaries], spreads)


def compare_columns(columns: Sequence[Column], spreads: RunSpreads | None = None) -> Comparison:
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
    intervals, reasons = [each.ci95 for each in found], [each.left_out for each in found]
    has_intervals = any(intervals) or not {NO_INTERVAL, ""}.issuperset(reasons)
    known: Sequence[object] = (intervals if has_intervals else values) if has_one_basis else ()
    compared = tuple(index for index, each in enumerate(known) if each is not None)
    more = metric.more_is_better

    def beats(one: int, other: int) -> bool:
        apart = versus(metric, columns, found, one, other)
        return apart is not None and (apart.difference_ci95[0] > 0 if more else apart.difference_ci95[1] < 0)

    best = tuple(
        index for index, is_best in enumerate(unbeaten(intervals, more_is_better=more, beats=beats)) if is_best
    )
    pairs = [versus(metric, columns, found, index, 0) if index else None for index in range(len(columns))]
    lead = _lead(metric, best[0], columns, found) if len(best) == 1 < len(compared) else None
    if sum(text != UNKNOWN for text in texts) < 2:
        verdict = ""
    elif not has_one_basis:
        verdict = metric.other_basis
    elif has_intervals:
        apart = pairs[1] if len(pairs) == 2 else None
        verdict = _verdict(compared, best, lead, reasons, apart, is_exact=metric.is_exact)
    else:
        verdict = _without_interval(values, more_is_better=more)
    return ComparedLine(
        key=metric.key,
        header=metric.header,
        unit=metric.unit,
        topic=metric.topic,
        texts=texts,
        compared=compared,
        better=better(intervals, more_is_better=more, beats=beats),
        unbeaten=best,
        is_exact=metric.is_exact,
        more_is_better=more,
        concern=metric.concern,
        lead=lead,
        verdict=verdict,
        versus=tuple(pairs),
        spreads=tuple(each.spread if each.value is not None else None for each in found),
    )


def _lead(metric: Metric, index: int, columns: Sequence[Column], found: Sequence[Estimated]) -> Lead | None:
    known = [
        (each.value, other)
        for other, each in enumerate(found)
        if each.value is not None and each.ci95 is not None and other != index
    ]
    if not known:
        return None
    _, over = (max if metric.more_is_better else min)(known)
    apart = versus(metric, columns, found, index, over)
    if apart is None:
        return None
    if metric.difference is not None:
        return Lead(over, apart.ratio, None, metric.difference(abs(apart.difference)))
    return Lead(over, apart.ratio, apart.ratio_ci95, apart.text)


def _verdict(
    compared: Sequence[int],
    best: Sequence[int],
    lead: Lead | None,
    left_out: Sequence[str],
    apart: Versus | None,
    *,
    is_exact: bool,
) -> str:
    """In words; a run that is left out though it shows a value is named with its reason. `apart` is of two runs."""
    parts, behind = [], [index for index in compared if index not in best]
    if lead is not None:
        word, over = ("better", "") if len(compared) == 2 else ("best", f" {letter(lead.over)}")
        gain = f": {lead.text}{f' than{over}' if is_exact and over else over}" if lead.text else ""
        parts.append(f"{letter(best[0])} is {word}{gain}")
    elif behind:
        tied = "are the same" if is_exact else f"show {NO_DIFFERENCE}"
        parts.append(f"{letters(best)} {tied}; {letters(behind)} {'is' if len(behind) == 1 else 'are'} worse")
    elif len(compared) > 1:
        by = f": {letter(1)} {apart.percent}" if apart is not None and apart.percent and not is_exact else ""
        parts.append("the same" if is_exact else f"{NO_DIFFERENCE}{by}")
    indices = {reason: [index for index, each in enumerate(left_out) if each == reason] for reason in left_out}
    parts.extend(f"{letters(indices[reason])} {reason}" for reason in indices if reason)
    return "; ".join(parts)


def _without_interval(values: Sequence[float | None], *, more_is_better: bool) -> str:
    lead = leader(values, more_is_better=more_is_better)
    if lead is None:
        return ""
    if not lead.share:
        return "the same"
    direction = "higher" if more_is_better else "lower"
    return f"{letter(lead.index)} is {format_number(lead.share * 100, 2)} % {direction}; no interval"


def _left_out(lines: Sequence[ComparedLine]) -> list[str]:
    """What only one run has, so that it compares with nothing."""
    alone: dict[int, list[str]] = {}
    for line in lines:
        holders = [index for index, text in enumerate(line.texts) if text != UNKNOWN]
        if len(holders) == 1 and line.topic:
            alone.setdefault(holders[0], []).append(line.topic)
    return [f"only {letter(index)} has {in_words(topics)}: not compared" for index, topics in sorted(alone.items())]
