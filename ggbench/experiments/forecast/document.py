"""What a forecast says, for every output: its JSON and its texts."""

from __future__ import annotations

from ggbench.experiments.forecast.record import result_of
from ggbench.runs.run import Run
from ggbench.show.documents import origin_document, picked
from ggbench.stats.intervals import Expected


def forecast_document(run: Run) -> dict[str, object]:
    """The run as JSON has it; every key always there, null for unknown."""
    subject, setup = run.subject, run.head.setup
    found = result_of(run)
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token n_layer"),
        **picked(setup, "type_k type_v"),
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


def _value(expected: Expected | None) -> float | None:
    return None if expected is None else expected.value


def _interval(expected: Expected | None) -> tuple[float, float] | None:
    return None if expected is None else (expected.low, expected.high)
