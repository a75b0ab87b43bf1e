"""What runs are compared by: the value of each metric, its interval, which way is better, and when it is not compared.

A bound is no interval: two values that are both below 20 may be any distance apart, so bounds are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ggbench.records.outcome import Outcome
from ggbench.records.speed import PrefillSpeed
from ggbench.records.speed_cases import Case, SpeedCase, SpeedResult
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS, reader, tok_s_text
from ggbench.stats.intervals import Interval
from ggbench.units import format_bytes, format_count, format_number

NO_INTERVAL = "without an interval"
_BOUND = "only a bound"
_OTHER_LENGTHS = "different lengths"


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
    """The verdict where it differs."""

    @property
    def is_exact(self) -> bool:
        """Whether its intervals are single values."""
        return self.difference is not None


def metrics_of(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return what these runs are compared by, with the prompt lengths that several read and any largest context."""
    lengths = [prefill.n_prompt for summary in summaries for prefill in summary.prefills]
    searched = any(summary.max_n_ctx is not None for summary in summaries)
    cases = [each.case for summary in summaries for each in _cases(summary) if each.tok_s_qwen2_5 is not None]
    return (
        *_METRICS,
        *(_prefill(length) for length in sorted(set(lengths)) if lengths.count(length) > 1),
        *(metric for case in sorted(set(cases)) if cases.count(case) > 1 for metric in _of_case(case)),
        *((_MAX_N_CTX,) if searched else ()),
    )


def _cases(summary: QuantSummary) -> tuple[SpeedCase, ...]:
    found = summary.result(SpeedResult)
    return found.cases if found else ()


def _of_case(case: Case) -> tuple[Metric, Metric]:
    """The whole speed of a case and its decode, which has the interval of its steps."""

    def found(summary: QuantSummary) -> SpeedCase | None:
        return next((each for each in _cases(summary) if each.case == case), None)

    def decode_ends(summary: QuantSummary) -> tuple[float, float | None] | None:
        latency = each.latency if (each := found(summary)) else None
        if latency is None or latency.tok_s_ci95 is None:
            return None
        low, high = latency.tok_s_ci95
        return case.n_seqs * low, None if high is None else case.n_seqs * high

    def value(summary: QuantSummary, name: str) -> float | None:
        return getattr(each, name) if (each := found(summary)) else None

    name, key = f"{format_count(case.n_input)} x {case.n_seqs}", f"i{case.n_input}_b{case.n_seqs}"
    whole = Metric(
        f"tok_s_qwen2_5_{key}",
        f"Qwen2.5 {name}",
        "tok/s",
        text=lambda summary: format_number(value(summary, "tok_s_qwen2_5")),
        more_is_better=True,
        value=lambda summary: value(summary, "tok_s_qwen2_5"),
    )
    decode = Metric(
        f"decode_tok_s_{key}",
        f"decode {name}",
        "tok/s",
        text=lambda summary: format_number(value(summary, "decode_tok_s")),
        more_is_better=True,
        value=lambda summary: value(summary, "decode_tok_s"),
        topic=f"decode at {name}",
    )
    return whole, _estimate(decode, decode_ends)


def _memory_interval(summary: QuantSummary) -> Interval | None:
    """Exact; None for a run that ended early, and for a search, which takes all memory there is."""
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


def decoded_lengths(summary: QuantSummary) -> object:
    """Tokens of prompt and of the decode, on which speed depends; None without a decode."""
    return summary.decode and (summary.decode.n_gen, summary.decode.n_prompt)


def _column(key: str, **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types
    column = COLUMNS[key]

    def value(summary: QuantSummary) -> float | None:
        known = column.value(summary)
        return known if isinstance(known, int | float) else None

    return Metric(key, column.header, column.unit, column.text, value=value, **more)


def _estimate(metric: Metric, ends: Callable[[QuantSummary], tuple[float, float | None] | None]) -> Metric:
    """The metric with its interval; what has no upper end, or no value, is only a bound."""

    def interval(summary: QuantSummary) -> Interval | None:
        found = ends(summary)
        if metric.value(summary) is None or found is None or found[1] is None:
            return None
        return found[0], found[1]

    return replace(metric, interval=interval, left_out=lambda summary: _BOUND if ends(summary) else NO_INTERVAL)


def _derived(key: str, base: Metric, *, inverse: bool = False, more_is_better: bool) -> Metric:
    """A metric proportional to another, or to its inverse, whose interval follows."""
    column = _column(key, more_is_better=more_is_better)

    def interval(summary: QuantSummary) -> Interval | None:
        ends, of, value = base.interval and base.interval(summary), base.value(summary), column.value(summary)
        if not ends or not of or value is None:
            return None
        if inverse:
            low, high = (value * of / end if end else math.inf for end in reversed(ends))
        else:
            low, high = (value * end / of for end in ends)
        return low, high

    return replace(column, interval=interval)


def _prefill(n_prompt: int) -> Metric:
    def speed(summary: QuantSummary) -> PrefillSpeed | None:
        return next((each for each in summary.prefills if each.n_prompt == n_prompt), None)

    name = f"prefill {format_count(n_prompt)}"
    metric = Metric(
        f"prefill_{n_prompt}",
        name,
        "tok/s",
        text=lambda summary: tok_s_text(speed(summary)),
        more_is_better=True,
        value=lambda summary: found.tok_s if (found := speed(summary)) else None,
        topic=name,
    )
    return _estimate(metric, lambda summary: found.tok_s_ci95 if (found := speed(summary)) else None)


_SPEED = _estimate(
    _column("tok_s", more_is_better=True, topic="speed", basis=decoded_lengths, other_basis=_OTHER_LENGTHS),
    reader("latency.tok_s_ci95"),
)
_W = _estimate(_column("w_tokens_per_ms", more_is_better=True, topic="W"), reader("fit.w_ci95"))
_B = _estimate(_column("b_ms", more_is_better=False, topic="B"), reader("fit.b_ci95"))
_MEMORY = Metric(
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
)
_METRICS = (
    _SPEED,
    _W,
    _derived("w_ratio", _W, more_is_better=True),
    _B,
    _derived("b_ratio", _B, inverse=True, more_is_better=True),
    _derived("b_w16_ms", _B, more_is_better=False),
    _MEMORY,
    *(
        _column(key, more_is_better=False, basis=decoded_lengths, other_basis=_OTHER_LENGTHS)
        for key in ("p50_ms", "p99_ms")
    ),
)
_MAX_N_CTX = _column(
    "max_n_ctx",
    more_is_better=True,
    interval=_max_n_ctx_interval,
    left_out=lambda summary: "not proven",
    topic="max n_ctx",
    difference=lambda n_tokens: f"{format_count(round(n_tokens))} more",
)
