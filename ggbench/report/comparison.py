"""Measured quants side by side: which is better in what, and what else differs between them.

A number from one run is an estimate. So a quant is called better only where its interval lies wholly beyond the
other's; where there is no interval, the largest or the smallest is named without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report import UNKNOWN
from ggbench.report.columns import COLUMNS
from ggbench.report.differences import Differences, differences_of, letters
from ggbench.report.names import unambiguous_names
from ggbench.report.plot.palette import letter
from ggbench.stats.intervals import Interval, better, leader
from ggbench.units import format_bytes, format_number


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
        lines=tuple(_compared(metric, summaries) for metric in _metrics_of(summaries)),
        differences=differences_of(summaries),
        warnings=(*_reliability(summaries), *_caveats(summaries)),
    )


def _compared(metric: _Metric, summaries: Sequence[QuantSummary]) -> ComparedLine:
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


@dataclass(frozen=True, slots=True)
class _Metric:
    """What is compared, and which way is better."""

    header: str
    unit: str
    text: Callable[[QuantSummary], str]
    more_is_better: bool
    interval: Callable[[QuantSummary], Interval | None] | None = None
    """None where a run gives a value without an interval."""
    value: Callable[[QuantSummary], float | None] = lambda summary: None
    """Used where there is no interval."""
    left_out: Callable[[QuantSummary], str] = lambda summary: "without an interval"
    """Why a quant that shows a value but has no interval is not compared."""
    exact: bool = False
    """Whether its intervals are single values."""


def _w_interval(summary: QuantSummary) -> Interval | None:
    if summary.fit is None or summary.fit.w_ci95 is None:
        return None
    low, high = summary.fit.w_ci95
    return low, math.inf if high is None else high


def _b_interval(summary: QuantSummary) -> Interval | None:
    return None if summary.fit is None else summary.fit.b_ci95


def _w_ratio_interval(summary: QuantSummary) -> Interval | None:
    interval, decode, limit = _w_interval(summary), summary.decode, summary.limit
    if interval is None or decode is None or decode.w_ratio is None or limit is None or not limit.w_tokens_per_ms:
        return None
    low, high = interval
    return low / limit.w_tokens_per_ms, high / limit.w_tokens_per_ms


def _b_ratio_interval(summary: QuantSummary) -> Interval | None:
    interval, decode, limit = _b_interval(summary), summary.decode, summary.limit
    if interval is None or decode is None or decode.b_ratio is None or limit is None:
        return None
    low, high = interval
    return limit.b_ms / high if high else math.inf, limit.b_ms / low if low else math.inf


def _b_w16_interval(summary: QuantSummary) -> Interval | None:
    interval = _b_interval(summary)
    if interval is None or summary.b_w16_ms is None or not summary.subject.bpw:
        return None
    low, high = interval
    return low * 16 / summary.subject.bpw, high * 16 / summary.subject.bpw


def _memory_interval(summary: QuantSummary) -> Interval | None:
    """Exact; None for a run that ended early, which may not have allocated everything, and for a search for the largest
    context, which takes all memory there is.
    """
    has_timed = bool((summary.decode and summary.decode.n_gen) or summary.prefills)
    is_whole = summary.outcome is Outcome.COMPLETED and has_timed
    n_bytes = summary.memory.total_bytes if is_whole else None
    return None if n_bytes is None else (n_bytes, n_bytes)


def _no_memory_to_compare(summary: QuantSummary) -> str:
    return "searched for the largest n_ctx" if summary.outcome is Outcome.COMPLETED else "not completed"


def _max_n_ctx_interval(summary: QuantSummary) -> Interval | None:
    """Exact where a decode proved it."""
    n_ctx = summary.max_n_ctx
    return None if n_ctx is None or not summary.max_n_ctx_verified else (n_ctx, n_ctx)


def _column(
    key: str, *, more_is_better: bool, interval: Callable[[QuantSummary], Interval | None] | None = None
) -> _Metric:
    column = COLUMNS[key]

    def value(summary: QuantSummary) -> float | None:
        known = column.value(summary)
        return known if isinstance(known, int | float) else None

    return _Metric(column.header, column.unit, column.text, more_is_better, interval, value)


_METRICS = (
    _column("w_tokens_per_ms", more_is_better=True, interval=_w_interval),
    _column("w_ratio", more_is_better=True, interval=_w_ratio_interval),
    _column("b_ms", more_is_better=False, interval=_b_interval),
    _column("b_ratio", more_is_better=True, interval=_b_ratio_interval),
    _column("b_w16_ms", more_is_better=False, interval=_b_w16_interval),
    _Metric(
        header="memory",
        unit="",
        text=lambda summary: format_bytes(summary.memory.total_bytes),
        more_is_better=False,
        interval=_memory_interval,
        left_out=_no_memory_to_compare,
        exact=True,
    ),
    _column("p50_ms", more_is_better=False),
    _column("p99_ms", more_is_better=False),
    _column("tok_s", more_is_better=True),
)


def _metrics_of(summaries: Sequence[QuantSummary]) -> tuple[_Metric, ...]:
    """Return what these quants are compared by; the largest context only where one of them searched for it."""
    searched = any(summary.max_n_ctx is not None for summary in summaries)
    metric = _column("max_n_ctx", more_is_better=True, interval=_max_n_ctx_interval)
    return (*_METRICS, *([replace(metric, left_out=lambda summary: "not proven", exact=True)] if searched else []))
