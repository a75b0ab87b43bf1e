"""Measured rows side by side: which is better in what, and what else differs between them.

A number from one run is an estimate. So a row is called better only where its interval lies wholly beyond the other's;
where there is no interval, the largest or the smallest is named without a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.report.columns import UNKNOWN, outcome_words
from ggbench.report.compared_metrics import Metric, metrics_of
from ggbench.report.differences import Differences, differences_of, letters
from ggbench.report.plot.palette import letter
from ggbench.stats.intervals import Interval, better, leader
from ggbench.units import format_number


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """One property of every row."""

    header: str
    unit: str
    """Empty where the texts carry their own."""
    texts: tuple[str, ...]
    """One for each row, an em dash where it is unknown."""
    better: tuple[bool, ...]
    """Whether a row is better than another, and none is better than it."""
    verdict: str
    """The same in words; empty where fewer than two are known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows side by side."""

    names: tuple[str, ...]
    """Model and quant of each row, printable."""
    lines: tuple[ComparedLine, ...]
    differences: tuple[Differences, ...]
    warnings: tuple[str, ...]
    """Why a number should not be trusted or compared, a line for each reason."""


def compare_rows(rows: Sequence[Row]) -> Comparison:
    """Compare two rows or more; the n-th is called by the n-th letter, as in a plot."""
    return Comparison(
        names=tuple(plain(f"{row.model} {row.quant}") for row in rows),
        lines=tuple(_compared(metric, rows) for metric in metrics_of(rows)),
        differences=differences_of(rows),
        warnings=(*_reliability(rows), *_caveats(rows)),
    )


def _compared(metric: Metric, rows: Sequence[Row]) -> ComparedLine:
    texts = tuple(metric.text(row) for row in rows)
    if metric.interval is None:
        verdict = _lead([metric.value(row) for row in rows], more_is_better=metric.more_is_better)
        return ComparedLine(metric.header, metric.unit, texts, (False,) * len(rows), verdict)
    intervals = [metric.interval(row) for row in rows]
    marks = better(intervals, more_is_better=metric.more_is_better)
    reasons = [
        metric.left_out(row) if interval is None and text != UNKNOWN else ""
        for row, interval, text in zip(rows, intervals, texts, strict=True)
    ]
    verdict = _verdict(intervals, marks, reasons, exact=metric.exact)
    return ComparedLine(metric.header, metric.unit, texts, marks, verdict)


def _verdict(
    intervals: Sequence[Interval | None], marks: Sequence[bool], left_out: Sequence[str], *, exact: bool
) -> str:
    """In words; a row that is left out though it shows a value is named with its reason."""
    known = [index for index, interval in enumerate(intervals) if interval is not None]
    best = [index for index in known if marks[index]]
    parts = []
    if len(known) > 1 and not best:
        parts.append("the same" if exact else "the same within the interval")
    elif len(best) == 1:
        parts.append(f"{letter(best[0])} is better{' (exact)' if exact else ''}")
    elif best:
        parts.append(f"{letters(best)} are better, and the same{' (exact)' if exact else ' within the interval'}")
    indices = {reason: [index for index, each in enumerate(left_out) if each == reason] for reason in left_out}
    parts.extend(f"{letters(indices[reason])} {reason}" for reason in indices if reason)
    return "; ".join(parts)


def _lead(values: Sequence[float | None], *, more_is_better: bool) -> str:
    lead = leader(values, more_is_better=more_is_better)
    if lead is None:
        return ""
    if not lead.share:
        return "the same"
    direction = "higher" if more_is_better else "lower"
    return f"{letter(lead.index)} is {format_number(lead.share * 100, 2)} % {direction}; no interval"


def _reliability(rows: Sequence[Row]) -> tuple[str, ...]:
    """Rows that did not complete, or whose machine was not steady."""
    lines = []
    for index, row in enumerate(rows):
        if row.outcome is not Outcome.COMPLETED:
            reason = plain(row.reason)
            lines.append(f"{letter(index)} did not complete: {reason or outcome_words(row.outcome)}")
        elif row.unsteady:
            lines.append(f"{letter(index)} was not steady: {plain(row.unsteady)}")
    return tuple(lines)


def _caveats(rows: Sequence[Row]) -> tuple[str, ...]:
    """Numbers that do not measure the same thing."""

    def vary(value: Callable[[Row], object]) -> bool:
        return len({value(row) for row in rows if value(row) is not None}) > 1

    lines = []
    if vary(lambda row: row.model):
        lines.append("different models: less memory or a lower B may only mean a smaller model")
    if vary(lambda row: row.n_gen) or vary(lambda row: row.n_prompt):
        lines.append("different lengths: p50, p99 and tok/s are over different positions")
    if vary(lambda row: row.n_ctx):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return tuple(lines)
