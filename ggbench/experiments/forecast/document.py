"""What a forecast says, for every output: its JSON and its texts."""

from __future__ import annotations

import math

from ggbench.experiments.forecast.record import ForecastResult
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN
from ggbench.show.document import Field, Shape, field, of
from ggbench.show.glossary import UNSTEADY
from ggbench.show.run_documents import CACHE_TYPES, ENDS, MEASURED_FILE, NUMBER, ORIGIN, ends, run_documents, subject
from ggbench.sizing.plan_record import PlannedForecast
from ggbench.stats.intervals import Expected
from ggbench.units import format_count, format_interval, format_number


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


def _expected(name: str, interval: str, member: str) -> tuple[Field, ...]:
    """A value of the result and its interval."""

    def of_result(run: Run) -> Expected | None:
        found: Expected | None = getattr(result_of(run), member)
        return found

    value = field(name, NUMBER, get=lambda run: (found := of_result(run)) and found.value)
    return (*value, *field(interval, ENDS, get=lambda run: ends(of_result(run))))


_FORECAST = Shape(
    "Forecast",
    "The speed that is expected of a model.",
    MEASURED_FILE,
    subject("n_layer"),
    CACHE_TYPES,
    _expected("b_ms", "b_ci95", "b_ms"),
    _expected("w_tokens_per_ms", "w_ci95", "w_tokens_per_ms"),
    field(
        "tok_s",
        dict[str, float],
        "Tokens per second of a decode, by position.",
        lambda run: {n: each.value for n, each in result_of(run).tok_s},
    ),
    field("tok_s_ci95", dict[str, ENDS], get=lambda run: {n: ends(each) for n, each in result_of(run).tok_s}),
    field(
        "prefill_ms",
        dict[str, float],
        "Time to read a prompt, by its length.",
        lambda run: {n: each.value for n, each in result_of(run).prefill_ms},
    ),
    field("prefill_ms_ci95", dict[str, ENDS], get=lambda run: {n: ends(each) for n, each in result_of(run).prefill_ms}),
    field(
        "prefill_tok_s",
        dict[str, float],
        get=lambda run: {n: 1e3 * n / each.value for n, each in result_of(run).prefill_ms},
    ),
    field(
        "basis",
        str | None,
        "What the figures come from; null where nothing is known.",
        lambda run: result_of(run).basis or None,
    ),
    of(ForecastResult, "limit", result_of),
    ORIGIN,
)
DOCUMENTS = run_documents("forecast", _FORECAST, is_swept=True)
