"""What runs are compared by: the value of each metric, its interval, which way is better, and when it is not compared.

A bound is no interval: two values that are both below 20 may be any distance apart, so bounds are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ggbench.records.outcome import Outcome
from ggbench.records.speed import PrefillSpeed
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS
from ggbench.stats.intervals import Interval
from ggbench.units import format_bytes, format_count, format_number

NO_INTERVAL = "without an interval"
_BOUND = "only a bound"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is compared, and which way is better."""

    key: str
    header: str
    unit: str
    text: Callable[[QuantSummary], str]
    more_is_better: bool
    value: Callable[[QuantSummary], float | None]
    interval: Callable[[QuantSummary], Interval | None] | None = None
    """None where a run gives a value without an interval."""
    left_out: Callable[[QuantSummary], str] = lambda summary: NO_INTERVAL
    """Why a run that shows a value but has no interval is not compared."""
    topic: str = ""
    """What a sentence calls it; empty for what follows from another metric."""
    difference: Callable[[float], str] | None = None
    """The text of a difference, where the values are exact; None for an estimate, which has a ratio."""
    basis: Callable[[QuantSummary], object] = lambda summary: None
    """What has to be the same in all runs for their values to mean the same."""
    other_basis: str = ""
    """What is said where it is not."""

    @property
    def is_exact(self) -> bool:
        """Whether its intervals are single values."""
        return self.difference is not None


def metrics_of(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return what these runs are compared by: prompts of the lengths that several read, and the largest context only
    where one of them searched for it.
    """
    lengths = [prefill.n_prompt for summary in summaries for prefill in summary.prefills]
    searched = any(summary.max_n_ctx is not None for summary in summaries)
    return (
        *_METRICS,
        *(_prefill(length) for length in sorted(set(lengths)) if lengths.count(length) > 1),
        *((_MAX_N_CTX,) if searched else ()),
    )


def _w_interval(summary: QuantSummary) -> Interval | None:
    fit = summary.fit
    if fit is None or fit.w_tokens_per_ms is None or fit.w_ci95 is None:
        return None
    low, high = fit.w_ci95
    return None if high is None else (low, high)


def _b_interval(summary: QuantSummary) -> Interval | None:
    return None if summary.fit is None or summary.fit.b_ms is None else summary.fit.b_ci95


def _speed_interval(summary: QuantSummary) -> Interval | None:
    if summary.latency is None or summary.latency.tok_s_ci95 is None:
        return None
    low, high = summary.latency.tok_s_ci95
    return None if high is None else (low, high)


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
    return limit.b_ms / high if high else float("inf"), limit.b_ms / low if low else float("inf")


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


def _lengths(summary: QuantSummary) -> object:
    return summary.decode and (summary.decode.n_gen, summary.decode.n_prompt)


def _column(key: str, **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types
    column = COLUMNS[key]

    def value(summary: QuantSummary) -> float | None:
        known = column.value(summary)
        return known if isinstance(known, int | float) else None

    return Metric(key, column.header, column.unit, column.text, value=value, **more)


def _over_positions(key: str, **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types
    """A metric whose value depends on which positions were decoded."""
    return _column(key, basis=_lengths, other_basis="different lengths", **more)


def _prefill(n_prompt: int) -> Metric:
    def speed(summary: QuantSummary) -> PrefillSpeed | None:
        return next((each for each in summary.prefills if each.n_prompt == n_prompt), None)

    def value(summary: QuantSummary) -> float | None:
        found = speed(summary)
        return None if found is None else found.tok_s

    header = f"prefill {format_count(n_prompt)}"
    return Metric(
        f"prefill_{n_prompt}", header, "tok/s", lambda s: format_number(value(s)), more_is_better=True, value=value
    )


_METRICS = (
    _over_positions(
        "tok_s",
        more_is_better=True,
        interval=_speed_interval,
        left_out=lambda s: _BOUND if s.latency and s.latency.tok_s_ci95 else NO_INTERVAL,
        topic="speed",
    ),
    _column(
        "w_tokens_per_ms",
        more_is_better=True,
        interval=_w_interval,
        left_out=lambda s: _BOUND if s.fit and s.fit.w_ci95 else NO_INTERVAL,
        topic="W",
    ),
    _column("w_ratio", more_is_better=True, interval=_w_ratio_interval),
    _column(
        "b_ms",
        more_is_better=False,
        interval=_b_interval,
        left_out=lambda s: _BOUND if s.fit and s.fit.b_ci95 else NO_INTERVAL,
        topic="B",
    ),
    _column("b_ratio", more_is_better=True, interval=_b_ratio_interval),
    _column("b_w16_ms", more_is_better=False, interval=_b_w16_interval),
    Metric(
        "memory_bytes",
        header="memory",
        unit="",
        text=lambda summary: format_bytes(summary.memory.total_bytes),
        more_is_better=False,
        value=lambda summary: summary.memory.total_bytes,
        interval=_memory_interval,
        left_out=_no_memory_to_compare,
        topic="memory",
        difference=lambda n_bytes: f"{format_bytes(n_bytes)} less",
        basis=lambda summary: summary.memory.n_ctx if _memory_interval(summary) else None,
        other_basis="different n_ctx",
    ),
    _over_positions("p50_ms", more_is_better=False),
    _over_positions("p99_ms", more_is_better=False),
)
_MAX_N_CTX = _column(
    "max_n_ctx",
    more_is_better=True,
    interval=_max_n_ctx_interval,
    left_out=lambda summary: "not proven",
    topic="max n_ctx",
    difference=lambda n_tokens: f"{format_count(round(n_tokens))} more",
)
