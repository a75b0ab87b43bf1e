"""What measured rows are compared by: the text, the interval or value behind it, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ggbench.records.outcome import Outcome
from ggbench.report.columns import COLUMNS
from ggbench.stats.intervals import Interval
from ggbench.units import format_bytes


@dataclass(frozen=True, slots=True)
class Metric:
    """What is compared, and which way is better."""

    header: str
    unit: str
    text: Callable[[Row], str]
    more_is_better: bool
    interval: Callable[[Row], Interval | None] | None = None
    """None where a run gives a value without an interval."""
    value: Callable[[Row], float | None] = lambda row: None
    """Used where there is no interval."""
    left_out: Callable[[Row], str] = lambda row: "without an interval"
    """Why a row that shows a value but has no interval is not compared."""
    exact: bool = False
    """Whether its intervals are single values."""


def total_memory_bytes(row: Row) -> int | None:
    """Return the memory of weights, KV cache, compute and output buffers on all devices; None where it is unknown."""
    if not row.buffers:
        return None
    return sum(one.weight_bytes + one.kv_bytes + one.compute_bytes + one.output_bytes for one in row.buffers)


def _w_interval(row: Row) -> Interval | None:
    if row.fit is None or row.fit.w_ci95 is None:
        return None
    low, high = row.fit.w_ci95
    return low, math.inf if high is None else high


def _b_interval(row: Row) -> Interval | None:
    return None if row.fit is None else row.fit.b_ci95


def _w_ratio_interval(row: Row) -> Interval | None:
    interval = _w_interval(row)
    if interval is None or row.w_ratio is None or row.limit is None or not row.limit.w_tokens_per_ms:
        return None
    low, high = interval
    return low / row.limit.w_tokens_per_ms, high / row.limit.w_tokens_per_ms


def _b_ratio_interval(row: Row) -> Interval | None:
    interval = _b_interval(row)
    if interval is None or row.b_ratio is None or row.limit is None:
        return None
    low, high = interval
    return row.limit.b_ms / high if high else math.inf, row.limit.b_ms / low if low else math.inf


def _b_w16_interval(row: Row) -> Interval | None:
    interval = _b_interval(row)
    if interval is None or row.b_w16_ms is None or not row.bpw:
        return None
    low, high = interval
    return low * 16 / row.bpw, high * 16 / row.bpw


def _memory_interval(row: Row) -> Interval | None:
    """Exact; None for a run that ended early, which may not have allocated everything, and for a search for the largest
    context, which takes all memory there is.
    """
    is_whole = row.outcome is Outcome.COMPLETED and bool(row.n_gen or row.prefills)
    n_bytes = total_memory_bytes(row) if is_whole else None
    return None if n_bytes is None else (n_bytes, n_bytes)


def _no_memory_to_compare(row: Row) -> str:
    return "searched for the largest n_ctx" if row.outcome is Outcome.COMPLETED else "not completed"


def _max_n_ctx_interval(row: Row) -> Interval | None:
    """Exact where a decode proved it; a search that was cut short has not found the largest."""
    is_answered = row.outcome is Outcome.COMPLETED and row.max_n_ctx_verified
    return (row.max_n_ctx, row.max_n_ctx) if row.max_n_ctx is not None and is_answered else None


def _column(key: str, *, more_is_better: bool, interval: Callable[[Row], Interval | None] | None = None) -> Metric:
    column = COLUMNS[key]

    def value(row: Row) -> float | None:
        known = column.value(row)
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
        text=lambda row: format_bytes(total_memory_bytes(row)),
        more_is_better=False,
        interval=_memory_interval,
        left_out=_no_memory_to_compare,
        exact=True,
    ),
    _column("p50_ms", more_is_better=False),
    _column("p99_ms", more_is_better=False),
    _column("tok_s", more_is_better=True),
)


def metrics_of(rows: Sequence[Row]) -> tuple[Metric, ...]:
    """Return what these rows are compared by; the largest context only where one of them searched for it."""
    searched = any(row.max_n_ctx is not None for row in rows)
    metric = _column("max_n_ctx", more_is_better=True, interval=_max_n_ctx_interval)
    return (*_METRICS, *([replace(metric, left_out=lambda row: "not proven", exact=True)] if searched else []))
