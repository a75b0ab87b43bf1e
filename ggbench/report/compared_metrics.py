"""What measured quants are compared by: the text, the interval or value behind it, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS
from ggbench.stats.intervals import Interval
from ggbench.units import format_bytes


@dataclass(frozen=True, slots=True)
class Metric:
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
) -> Metric:
    column = COLUMNS[key]

    def value(summary: QuantSummary) -> float | None:
        known = column.value(summary)
        return known if isinstance(known, int | float) else None

    return Metric(column.header, column.unit, column.text, more_is_better, interval, value)


_METRICS = (
    _column("w_tokens_per_ms", more_is_better=True, interval=_w_interval),
    _column("w_ratio", more_is_better=True, interval=_w_ratio_interval),
    _column("b_ms", more_is_better=False, interval=_b_interval),
    _column("b_ratio", more_is_better=True, interval=_b_ratio_interval),
    _column("b_w16_ms", more_is_better=False, interval=_b_w16_interval),
    Metric(
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


def metrics_of(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return what these quants are compared by; the largest context only where one of them searched for it."""
    searched = any(summary.max_n_ctx is not None for summary in summaries)
    metric = _column("max_n_ctx", more_is_better=True, interval=_max_n_ctx_interval)
    return (*_METRICS, *([replace(metric, left_out=lambda summary: "not proven", exact=True)] if searched else []))
