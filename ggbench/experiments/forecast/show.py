"""A forecast: the expected speed of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from ggbench.experiments.forecast.record import ForecastResult, result_of
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import ESSENTIAL
from ggbench.show.answer import Answer, Facts, Part
from ggbench.show.document import Field, Shape, field, of
from ggbench.show.machine import run_answer
from ggbench.show.metric import B, Metric, W, estimated
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import (
    CACHE_TYPES,
    ENDS,
    MEASURED_FILE,
    ORIGIN,
    ShapedDocuments,
    ends,
    expected,
    run_documents,
    subject,
)
from ggbench.show.run_figures import reader
from ggbench.show.tables import AsWide, Cells, as_part, fitted_table, names, notes, right
from ggbench.show.text import expected_text
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize
from ggbench.units import format_count, format_number

_CAPTION = "Estimate, with 95 % intervals."


def _by_number(name: str, about: str) -> tuple[Field, ...]:
    """Return the values of a member by position or length, and their intervals."""

    def values(run: Run) -> dict[int, float]:
        return {n: each.value for n, each in getattr(result_of(run), name)}

    def intervals(run: Run) -> dict[int, object]:
        return {n: ends(each) for n, each in getattr(result_of(run), name)}

    return (
        *field(name, dict[str, float], about, values),
        *field(f"{name}_ci95", dict[str, ENDS], get=intervals),
    )


_FORECAST = Shape(
    "Forecast",
    "The expected speed of a model.",
    MEASURED_FILE,
    subject("n_layer"),
    CACHE_TYPES,
    expected("b_ms", "", lambda run: result_of(run).b_ms, "b_ci95"),
    expected("w_tokens_per_ms", "", lambda run: result_of(run).w_tokens_per_ms, "w_ci95"),
    _by_number("tok_s", "Tokens per second of a decode, by position."),
    _by_number("prefill_ms", "Time to read a prompt, by its length."),
    field(
        "prefill_tok_s",
        dict[str, float],
        get=lambda run: {n: 1e3 * n / each.value for n, each in result_of(run).prefill_ms},
    ),
    field(
        "basis",
        str | None,
        "The source of the speeds; null if none is known.",
        lambda run: result_of(run).basis or None,
    ),
    of(ForecastResult, "limit", result_of),
    ORIGIN,
)

DOCUMENTS = run_documents("forecast", _FORECAST, is_swept=True)


class ForecastPresenter(Presenter):
    kind: ClassVar[str] = "forecast"
    documents: ClassVar[ShapedDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    no_answer: ClassVar[str] = "no speed is known"

    def answer(self, run: Run) -> str:
        """`expected 4.28 ±0.27 tok/s at 1, 2.4 ±0.16 at 4,096, from twins of 2 and 6 of 32 layers`."""
        found = result_of(run)
        shown = [(n, each) for n, each in found.tok_s if n in (1, 4096)]
        if not shown:
            return ""
        (n, first), *others = shown
        speeds = [f"{expected_text(first)} tok/s at {format_count(n)}"]
        speeds += [f"{expected_text(each)} at {format_count(n)}" for n, each in others]
        return f"expected {', '.join(speeds)}, from {found.basis}"

    def short_answer(self, run: Run) -> str:
        """Return `2.40 tok/s at 4,096`."""
        speed = dict(result_of(run).tok_s).get(4096)
        return "" if speed is None else f"{format_number(speed.value)} tok/s at 4,096"

    def has_details(self, run: Run) -> bool:
        return result_of(run).b_ms is not None

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return _as_expected(W, "w_tokens_per_ms"), _as_expected(B, "b_ms")

    def details(self, run: Run, readings: Sequence[MachineReading] = ()) -> Answer:
        found, blocks = result_of(run), list[Part]()
        if found.b_ms is not None:
            facts = [
                ("B", f"{expected_text(found.b_ms)} ms"),
                ("W", f"{expected_text(found.w_tokens_per_ms)} tokens/ms"),
                *((f"token {format_count(n)}", f"{expected_text(each)} tok/s") for n, each in found.tok_s),
                *(
                    (f"prompt of {format_count(n)}", f"{expected_text(each)} ms")
                    for n, each in found.prefill_ms
                ),
                ("from", found.basis),
            ]
            blocks.append(Facts(facts, "Expected latency: (n - 1) / W + B"))
        return run_answer(run, Answer(quant_name(run.subject), "", blocks), readings)

    def table(self, runs: Sequence[Run]) -> Answer:
        found, labels = [result_of(run) for run in runs], row_labels([run.subject for run in runs])

        def figures(
            header: str, of: Callable[[ForecastResult], Estimate | None], unit: str, priority: int
        ) -> Cells:
            return right(
                header, (expected_text(of(each)) for each in found), unit, priority, stays=priority == ESSENTIAL
            )

        cells = [
            names("quant", labels),
            figures("B", lambda each: each.b_ms, "ms", ESSENTIAL),
            figures("W", lambda each: each.w_tokens_per_ms, "tokens/ms", 1),
            figures("at 1", lambda each: dict(each.tok_s).get(1), "tok/s", 2),
            figures("at 4,096", lambda each: dict(each.tok_s).get(4096), "tok/s", 3),
            figures("at 32,768", lambda each: dict(each.tok_s).get(32768), "tok/s", 4),
            figures("prompt 512", lambda each: dict(each.prefill_ms).get(512), "ms", 3),
            notes((each.basis or sanitize(run.reason) for each, run in zip(found, runs, strict=True))),
        ]
        table = AsWide(lambda width: fitted_table(cells, labels=labels, width=width, caption=_CAPTION))
        return Answer("", "", [as_part(table)])


def _as_expected(metric: Metric, name: str) -> Metric:
    def expected(summary: QuantSummary) -> Estimate | None:
        found = summary.result(ForecastResult)
        return getattr(found, name) if found else None

    def ends(summary: QuantSummary) -> tuple[float, float | None] | None:
        found = expected(summary)
        if found is None:
            return None
        return found.low, found.high if math.isfinite(found.high) else None

    def text(summary: QuantSummary) -> str:
        return expected_text(expected(summary))

    return estimated(replace(metric, text=text, value=reader("value", expected)), ends)


PRESENTER = ForecastPresenter()
