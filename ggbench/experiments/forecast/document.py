"""JSON of a forecast."""

from __future__ import annotations

from ggbench.experiments.forecast.record import ForecastResult, result_of
from ggbench.runs.run import Run
from ggbench.show.document import Field, Shape, field, of
from ggbench.show.run_documents import CACHE_TYPES, ENDS, MEASURED_FILE, NUMBER, ORIGIN, ends, run_documents, subject
from ggbench.stats.intervals import Expected


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
