"""Measured quants side by side: which is better in what, and what else differs between them.

A number from one run is an estimate. So a quant is called better only where its interval lies wholly beyond the
other's; where there is no interval, the largest or the smallest is named without a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import UNKNOWN
from ggbench.report.compared_metrics import Metric, metrics_of
from ggbench.report.differences import Differences, differences_of, letters
from ggbench.report.names import unambiguous_names
from ggbench.report.plot.palette import letter
from ggbench.stats.intervals import Interval, better, leader
from ggbench.units import format_number


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """One property of every quant."""

    header: str
    unit: str
    """Empty where the texts carry their own."""
    texts: tuple[str, ...]
    """One for each quant, an em dash where it is unknown."""
    better: tuple[bool, ...]
    """Whether a quant is better than another, and none is better than it."""
    verdict: str
    """The same in words; empty where fewer than two are known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Quants side by side."""

    names: tuple[str, ...]
    """The shortest form that tells all of them apart. Printable."""
    lines: tuple[ComparedLine, ...]
    differences: tuple[Differences, ...]
    warnings: tuple[str, ...]
    """Why a number should not be trusted or compared, a line for each reason."""


def compare_quants(summaries: Sequence[QuantSummary]) -> Comparison:
    """Compare two quants or more; the n-th is called by the n-th letter, as in a plot."""
    return Comparison(
        names=unambiguous_names(summaries),
        lines=tuple(_compared(metric, summaries) for metric in metrics_of(summaries)),
        differences=differences_of(summaries),
        warnings=(*_reliability(summaries), *_caveats(summaries)),
    )


def _compared(metric: Metric, summaries: Sequence[QuantSummary]) -> ComparedLine:
    texts = tuple(metric.text(summary) for summary in summaries)
    if metric.interval is None:
        verdict = _lead([metric.value(summary) for summary in summaries], more_is_better=metric.more_is_better)
        return ComparedLine(metric.header, metric.unit, texts, (False,) * len(summaries), verdict)
    intervals = [metric.interval(summary) for summary in summaries]
    marks = better(intervals, more_is_better=metric.more_is_better)
    reasons = [
        metric.left_out(summary) if interval is None and text != UNKNOWN else ""
        for summary, interval, text in zip(summaries, intervals, texts, strict=True)
    ]
    verdict = _verdict(intervals, marks, reasons, exact=metric.exact)
    return ComparedLine(metric.header, metric.unit, texts, marks, verdict)


def _verdict(
    intervals: Sequence[Interval | None], marks: Sequence[bool], left_out: Sequence[str], *, exact: bool
) -> str:
    """In words; a quant that is left out though it shows a value is named with its reason."""
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


def _reliability(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Quants whose run did not complete, or whose machine was not steady."""
    lines = []
    for index, summary in enumerate(summaries):
        if summary.outcome is not Outcome.COMPLETED:
            reason = plain(summary.run.reason)
            lines.append(f"{letter(index)} did not complete: {reason or summary.outcome.text}")
        elif summary.decode and summary.decode.unsteady:
            lines.append(f"{letter(index)} was not steady: {plain(summary.decode.unsteady)}")
    return tuple(lines)


def _caveats(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Numbers that do not measure the same thing."""

    def vary(value: Callable[[QuantSummary], object]) -> bool:
        return len({value(summary) for summary in summaries} - {None}) > 1

    lines = []
    if vary(lambda summary: summary.subject.model):
        lines.append("different models: less memory or a lower B may only mean a smaller model")
    if vary(lambda summary: summary.decode and (summary.decode.n_gen, summary.decode.n_prompt)):
        lines.append("different lengths: p50, p99 and tok/s are over different positions")
    if vary(lambda summary: summary.memory.n_ctx):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return tuple(lines)
