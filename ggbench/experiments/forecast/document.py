"""What a forecast says, for every output: its JSON and its texts."""

from __future__ import annotations

import math

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.record import ForecastResult
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN
from ggbench.show.documents import origin_document, picked
from ggbench.show.glossary import UNSTEADY
from ggbench.sizing.plan_record import PlannedForecast
from ggbench.stats.intervals import Expected
from ggbench.units import format_count, format_interval, format_number


def forecast_document(run: Run) -> dict[str, object]:
    """The run as JSON has it; every key always there, null for unknown."""
    subject, setup = run.subject, run.head.setup
    found = result_of(run)
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token n_layer"),
        **picked(setup if isinstance(setup, LlamaConfig) else None, "type_k type_v"),
        "b_ms": _value(found.b_ms),
        "b_ci95": _interval(found.b_ms),
        "w_tokens_per_ms": _value(found.w_tokens_per_ms),
        "w_ci95": _interval(found.w_tokens_per_ms),
        "tok_s": {str(n): each.value for n, each in found.tok_s},
        "tok_s_ci95": {str(n): _interval(each) for n, each in found.tok_s},
        "prefill_ms": {str(n): each.value for n, each in found.prefill_ms},
        "prefill_ms_ci95": {str(n): _interval(each) for n, each in found.prefill_ms},
        "prefill_tok_s": {str(n): 1e3 * n / each.value for n, each in found.prefill_ms},
        "basis": found.basis or None,
        "limit": found.limit,
        **origin_document(run),
    }


def result_of(run: Run) -> ForecastResult:
    """What the run found; a result with nothing known where it found none."""
    return run.result if isinstance(run.result, ForecastResult) else ForecastResult("")


def expected_text(expected: Expected | None) -> str:
    """`4.28 ±0.27`; where one side of the interval is much longer, its ends; `≥ 126`, `≤ 7.92` of a bound."""
    if expected is None:
        return UNKNOWN
    if not math.isfinite(expected.high):
        return f"≥ {format_number(expected.value)}"
    if not expected.low and expected.value == expected.high:
        return f"≤ {format_number(expected.value)}"
    return format_interval(expected.value, expected.low, expected.high)


def planned_speed_text(expected: PlannedForecast | None) -> str:
    """`3.2 ±0.4`, in tokens per second, marked where it comes from an unsteady run; an em dash where none is known."""
    if expected is None:
        return UNKNOWN
    text = expected_text(Expected(expected.tok_s, *expected.tok_s_ci95))
    return text if expected.is_steady else f"{UNSTEADY} {text}"


def forecast_line(run: Run) -> str:
    """`expected 4.28 ±0.27 tok/s at 1, 2.4 ±0.16 at 4,096, from twins of 2 and 6 of 32 layers`; empty for nothing."""
    found = result_of(run)
    shown = [(n, each) for n, each in found.tok_s if n in (1, 4096)]
    if not shown:
        return ""
    speeds = ", ".join(
        f"{expected_text(each)}{' tok/s' if not index else ''} at {format_count(n)}"
        for index, (n, each) in enumerate(shown)
    )
    return f"expected {speeds}, from {found.basis}"


def _value(expected: Expected | None) -> float | None:
    return None if expected is None else expected.value


def _interval(expected: Expected | None) -> tuple[float, float] | None:
    return None if expected is None else (expected.low, expected.high)
