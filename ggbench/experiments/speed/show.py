"""Speed by input length and batch size: its table, documents, curves, and metrics of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.speed.record import Case, CaseEnded, SpeedCase, SpeedResult, SpeedSettings, result_of
from ggbench.machine.records import MachineReading
from ggbench.models.published import load_published
from ggbench.models.published.selection import NearRow, nearest_published
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.against import FigureColumn, against_table, device_of, own_speed, printed
from ggbench.show.charts import Curve, LineChart, PlottedRun
from ggbench.show.columns import reader
from ggbench.show.document import Shape, field, many, of
from ggbench.show.machine import run_page, serving_caption
from ggbench.show.metric import MEMORY, Metric, speed_metric
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import Presenter
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import MEASURED_FILE, ORIGIN, RunDocuments, memory, run_documents, subject
from ggbench.show.tables import AsWide, Cells, fitted_table, names, notes, right, spaced, twin_caption
from ggbench.text import sanitize
from ggbench.units import GIB, format_count, format_length, format_number

_NEAREST = 3
_DEFINITIONS = (
    "tok/s as in Qwen2.5's tables: generated tokens / (prefill + decode); as in Qwen3's: (input + generated)"
    " tokens / (prefill + decode); tokens of all sequences of a batch."
)
_CASE = Shape(
    "Case",
    "One input length with one batch size.",
    of(Case, "n_input n_batch=n_seqs n_gen", lambda found: found.case),
    of(SpeedCase, "tok_s_qwen2_5 tok_s_qwen3 decode_tok_s prefill_tok_s prefill_ms decode_ms"),
    of(CaseEnded, "memory_bytes outcome reason?", lambda found: found.ended),
    AGAINST,
)
DOCUMENTS = run_documents(
    "speed",
    Shape(
        "Speed",
        "Speed by input length and batch size.",
        MEASURED_FILE,
        subject("n_ctx_train"),
        of(SpeedSettings, "inputs n_gen batches", lambda run: run.head.settings, maybe=True),
        field("cases", many(_CASE), get=lambda run: [_CASE.value(each) for each in result_of(run).cases]),
        of(SpeedResult, "serving", result_of),
        of(Run, "gpu_use"),
        memory("flash_attn swa_cells"),
        ORIGIN,
    ),
    is_swept=True,
)


class SpeedPresenter(Presenter):
    kind: ClassVar[str] = "speed"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeedCase,)
    no_answer: ClassVar[str] = "no case was measured"

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        """Plot tokens/s (Qwen2.5's definition) against input length, one figure per batch size."""
        batches = {each.case.n_seqs for run in runs for each in _plotted(run)}
        return tuple(_figure(n_seqs, runs) for n_seqs in sorted(batches))

    def short_answer(self, run: Run) -> str:
        """Return `12.3 tok/s at 2kx8`, for the completed case with most tokens."""
        found = _largest(run)
        if found is None:
            return ""
        return f"{format_number(found.tok_s_qwen2_5)} tok/s at {format_length(found.case.n_input)}x{found.case.n_seqs}"

    def answer(self, run: Run) -> str:
        """Return `12.3 tok/s as Qwen2.5 counts at input 2,048, batch 8`, for the same case."""
        found = _largest(run)
        return (
            f"{format_number(found.tok_s_qwen2_5)} tok/s as Qwen2.5 counts at {found.case.name}"
            if found
            else ""
        )

    def has_details(self, run: Run) -> bool:
        return bool(result_of(run).cases)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Return the speeds of the cases that several runs have."""
        cases = [each.case for summary in summaries for each in _completed(summary.result(SpeedResult))]
        shared = sorted({case for case in cases if cases.count(case) > 1})
        return (*(metric for case in shared for metric in _case_metrics(case)), MEMORY)

    def against_document(self, run: Run) -> dict[str, object] | None:
        cases = result_of(run).cases
        found = [_CASE.value(each, against=_nearest(run, each.case)) for each in cases]
        return {"cases": found} if found else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        parts: list[RenderableType] = []
        for run in runs:
            found = [(each, near) for each in result_of(run).cases if (near := _nearest(run, each.case))]
            heading = " against published rows" if found else ": no published speeds of this model"
            parts.append(Text(f"{quant_name(run.subject)}{heading}", style="bold"))
            parts += [_against_table(run, each, near, width) for each, near in found]
        return spaced(parts)

    def details(
        self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()
    ) -> RenderableType:
        table = AsWide(lambda width: self.table([run], width=width))
        return run_page(run, quant_name(run.subject), [table], folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        subjects = [run.subject for run in runs]
        labelled = zip(runs, row_labels(subjects), strict=True)
        rows = [(label, each) for run, label in labelled for each in result_of(run).cases]

        def figures(
            header: str, unit: str, path: str, form: Callable[[Any], str], priority: int = ESSENTIAL
        ) -> Cells:
            value: Callable[[Any], Any] = reader(path)
            return right(
                header, (form(value(each)) for _, each in rows), unit, priority, stays=priority == ESSENTIAL
            )

        cells = [
            names("quant", (label for label, _ in rows)),
            figures("input", "tokens", "case.n_input", format_count),
            figures("batch", "", "case.n_seqs", format_count),
            figures("Qwen2.5", "tok/s", "tok_s_qwen2_5", format_number),
            figures("Qwen3", "tok/s", "tok_s_qwen3", format_number),
            figures("decode", "tok/s", "decode_tok_s", format_number, 1),
            figures("prefill", "tok/s", "prefill_tok_s", format_number, 2),
            figures("memory", "GiB", "ended.memory_bytes", _gib, 3),
            notes(each.why for _, each in rows),
        ]
        labels = [f"{label}, {each.case.name}" for label, each in rows]
        served = dict.fromkeys(map(serving_caption, runs))
        caption = "\n".join(filter(None, (_DEFINITIONS, *served, twin_caption(subjects))))
        return fitted_table(cells, labels=labels, width=width, caption=caption)


def _gib(n_bytes: int | None) -> str:
    return UNKNOWN if n_bytes is None else f"{n_bytes / GIB:.2f}"


def _completed(result: object) -> list[SpeedCase]:
    cases = result.cases if isinstance(result, SpeedResult) else ()
    return [each for each in cases if each.tok_s_qwen2_5 is not None]


def _largest(run: Run) -> SpeedCase | None:
    """Return the completed case with most tokens; None if none completed."""
    return max(_completed(run.result), key=lambda each: each.case.n_tokens, default=None)


def _plotted(run: PlottedRun) -> list[SpeedCase]:
    """Return the completed cases; for a run in progress, those reported so far."""
    ended = tuple(each for each in run.observations if isinstance(each, SpeedCase))
    return _completed(run.result or SpeedResult(ended))


def _figure(n_seqs: int, runs: Sequence[PlottedRun]) -> LineChart:
    curves = []
    for run in runs:
        found = sorted(
            (each.case.n_input, each.tok_s_qwen2_5) for each in _plotted(run) if each.case.n_seqs == n_seqs
        )
        x = np.asarray([n_input for n_input, _ in found], np.int64)
        y = np.asarray([tok_s for _, tok_s in found], np.float64)
        note = f"{format_number(found[-1][1])} tok/s at {format_count(found[-1][0])}" if found else ""
        curves.append(Curve(run.name, x, y, np.zeros(len(y)), note=note, dimmed=run.dimmed))
    name = f"speed as Qwen2.5 counts, batch {format_count(n_seqs)}"
    return LineChart(f"speed-b{n_seqs}", name, "tok/s", "input", "tokens", tuple(curves), y_low=0.0)


def _case_metrics(case: Case) -> tuple[Metric, Metric]:
    """Return tokens/s of one case, without an interval as its prefill is timed once, and of its decode alone."""

    def found(summary: QuantSummary) -> SpeedCase | None:
        cases = _completed(summary.result(SpeedResult))
        return next((each for each in cases if each.case == case), None)

    whole, decode, interval = (reader(name, found) for name in ("tok_s_qwen2_5", "decode_tok_s", "decode_ci95"))
    key, name = f"i{case.n_input}_b{case.n_seqs}", f"decode after {case.name}"
    return (
        speed_metric(
            f"tok_s_{key}",
            case.name,
            case.name,
            lambda summary: format_number(whole(summary)),
            lambda summary: (whole(summary), None),
        ),
        speed_metric(
            f"decode_tok_s_{key}",
            name,
            name,
            lambda summary: format_number(decode(summary)),
            lambda summary: (decode(summary), interval(summary)),
        ),
    )


def _nearest(run: Run, case: Case) -> tuple[NearRow, ...]:
    """Return the nearest published speeds of the model, of batches for several sequences; empty if there are none."""
    own = own_speed(QuantSummary.of([run]), case.n_input, case.n_gen, case.n_seqs)
    stated = "tok_s" if case.n_seqs == 1 else "throughput_tok_s"
    rows = [row for row in load_published() if getattr(row, stated) is not None]
    return () if own is None else nearest_published(rows, own, _NEAREST)


def _against_table(run: Run, found: SpeedCase, near: Sequence[NearRow], width: int | None) -> RenderableType:
    columns = (
        FigureColumn("Qwen2.5", "tok/s", format_number(found.tok_s_qwen2_5), printed("tok_s")),
        FigureColumn("throughput", "tok/s", format_number(found.decode_tok_s), printed("throughput_tok_s")),
        FigureColumn("memory", "GiB", _gib(found.ended.memory_bytes), printed("memory_gb"), 1),
    )
    note = f"llama.cpp, {device_of(QuantSummary.of([run])) or 'unknown device'}"
    return against_table(found.case.name, sanitize(run.subject.quant), columns, near, note, width=width)


PRESENTER = SpeedPresenter()
