"""Show speed by input length and batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace
from rich.console import RenderableType

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.document import (
    DOCUMENTS,
    case_against_tables,
    case_value,
    nearest_to_case,
    speed_metrics,
)
from ggbench.experiments.speed.record import (
    BatchLine,
    Case,
    SpeedCase,
    SpeedResult,
    SpeedSettings,
    case_note,
    result_of,
)
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import ESSENTIAL
from ggbench.show.columns import reader
from ggbench.show.figures import Curve, Figure, PlottedRun, batch_sizes, latency_figure
from ggbench.show.machine import run_page, serving_caption
from ggbench.show.metric import Metric
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.show.tables import AsWide, Cells, fitted_table, names, notes, right, spaced, twin_caption
from ggbench.show.text import b_text, w_text
from ggbench.units import (
    format_count,
    format_duration,
    format_gb,
    format_length,
    format_ms,
    format_number,
    format_percent,
)

_INPUT_WIDTH, _CELL_WIDTH, _BATCHES_ACROSS = 8, 6, 3
"""Batch sizes in a grid of 28 characters; further ones follow below."""

_SLOW = 0.1
"""Tokens/s below which a forecast has one digit, to fit its cell."""

_WAITING, _RUNNING, _FAILED, _FORECAST = "·", "now", "✗", "~"

_FEW_STEPS = "A dash: too few timed steps for W and B; use a larger -n."

DEFINITIONS = (
    "tok/s as in Qwen2.5's tables: generated tokens / (prefill + decode); as in Qwen3's: (input + generated)"
    " tokens / (prefill + decode); tokens of all sequences of a batch."
)


class SpeedPresenter(Presenter):
    kind: ClassVar[str] = "speed"
    title: ClassVar[str] = "speed"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    measures: ClassVar[str] = "time each case"
    has_line: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeedCase,)
    no_answer: ClassVar[str] = "no case was measured"

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """Plot tokens/s (Qwen2.5's definition) against input length, then step latency, one figure per batch size.

        A live run has no known series, so its steps share one figure.
        """
        measured = [
            {found.case: found.tok_s_qwen2_5 for found in _ended(run) if found.tok_s_qwen2_5 is not None}
            for run in runs
        ]
        batches = sorted({case.n_seqs for cases in measured for case in cases})
        stepped = sorted({n_seqs for run in runs for n_seqs in batch_sizes(run)})
        if stepped:
            steps = [latency_figure([_with_line(run, n_seqs) for run in runs], n_seqs) for n_seqs in stepped]
        else:
            steps = [latency_figure([replace(run, fit=None, limit=None, end=None) for run in runs])]
        return (*(_figure(n_seqs, runs, measured) for n_seqs in batches), *steps)

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """Return the case in progress, and a grid of tokens/s: a forecast for a skipped case, `✗` for a failed one, `·`
        for a waiting one.
        """
        settings, ended = run.settings, {found.case: found for found in _ended(run)}
        if not isinstance(settings, SpeedSettings):
            return ()
        now = run.doing if isinstance(run.doing, Case) and run.doing not in ended else None
        lines = [] if now is None else [now.name]
        every = sorted(set(settings.batches))
        for start in range(0, len(every), _BATCHES_ACROSS):
            batches = every[start : start + _BATCHES_ACROSS]
            rows = [["input", *(f"b{n_seqs}" for n_seqs in batches)]]
            for n_input in sorted(set(settings.inputs)):
                cells = [_cell(Case(n_seqs, n_input, settings.n_gen), now, ended) for n_seqs in batches]
                rows.append([format_count(n_input), *cells])
            for name, *row in rows:
                lines.append(f"{name:>{_INPUT_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in row))
        if any(_FORECAST in line for line in lines):
            lines.append(f"{_FORECAST} forecast, and skipped")
        return (*lines, "tok/s as Qwen2.5 counts")

    def short_answer(self, run: Run) -> str:
        """Return `12.3 tok/s at 2kx8`, for the completed case with most tokens."""
        ran = _ran(run)
        if not ran:
            return ""
        case = ran[-1].case
        return f"{format_number(ran[-1].tok_s_qwen2_5)} tok/s at {format_length(case.n_input)}x{case.n_seqs}"

    def answer(self, run: Run) -> str:
        """Return `8 of 9 cases, 12.3 tok/s as Qwen2.5 counts at input 2,048, batch 8`, for the largest completed
        case.
        """
        ran, settings = _ran(run), run.head.settings
        if not ran:
            return ""
        n_cases = len(settings.cases if isinstance(settings, SpeedSettings) else result_of(run).cases)
        speed = f"{format_number(ran[-1].tok_s_qwen2_5)} tok/s as Qwen2.5 counts at {ran[-1].case.name}"
        return f"{format_count(len(ran))} of {format_count(n_cases)} cases, {speed}"

    def has_details(self, run: Run) -> bool:
        return bool(result_of(run).cases)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return speed_metrics(summaries)

    def against_document(self, run: Run) -> dict[str, object] | None:
        cases = result_of(run).cases
        found = [case_value(run, each, against=nearest_to_case(run, each.case)) for each in cases]
        return {"cases": found} if found else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return case_against_tables(runs, width=width)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        return run_page(
            run,
            quant_name(run.subject),
            [AsWide(lambda width: self.table([run], width=width))],
            folded=folded,
            readings=readings,
        )

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """Return the cases of every run, then W and B of every batch size."""
        subjects = [run.subject for run in runs]
        labels = row_labels(subjects)
        served = dict.fromkeys(map(serving_caption, runs))
        caption = "\n".join(filter(None, (DEFINITIONS, *served, twin_caption(subjects))))
        cases = [(label, each) for run, label in zip(runs, labels, strict=True) for each in result_of(run).cases]
        lines = [(label, each) for run, label in zip(runs, labels, strict=True) for each in result_of(run).lines]
        tables = [_cases_table(cases, width, caption, has_quants=len(runs) > 1)]
        return spaced([*tables, *([_lines_table(lines, width, has_quants=len(runs) > 1)] if lines else [])])


def _with_line(run: PlottedRun, n_seqs: int) -> PlottedRun:
    """Return a run with the line of one batch size; a run of another kind keeps its own for batch 1."""
    if n_seqs == 1 and not isinstance(run.settings, SpeedSettings):
        return run
    lines = run.result.lines if isinstance(run.result, SpeedResult) else ()
    line = next((each for each in lines if each.n_seqs == n_seqs), BatchLine(n_seqs, None, None))
    return replace(run, fit=line.fit, limit=line.limit, end=None)


def _cell(case: Case, now: Case | None, ended: Mapping[Case, SpeedCase]) -> str:
    found = ended.get(case)
    if found is None:
        return _RUNNING if case == now else _WAITING
    if found.tok_s_qwen2_5 is not None:
        return format_number(found.tok_s_qwen2_5)
    expected_s = found.ended.expected_s
    if found.ended.outcome is Outcome.SKIPPED and expected_s:
        tok_s = case.n_seqs * case.n_gen / expected_s
        return f"{_FORECAST}{format_number(tok_s, 2 if tok_s >= _SLOW else 1)}"
    return _FAILED


def _figure(n_seqs: int, runs: Sequence[PlottedRun], measured: Sequence[Mapping[Case, float]]) -> Figure:
    curves = []
    for run, cases in zip(runs, measured, strict=True):
        found = sorted((case.n_input, tok_s) for case, tok_s in cases.items() if case.n_seqs == n_seqs)
        x = np.asarray([n_input for n_input, _ in found], np.int64)
        y = np.asarray([tok_s for _, tok_s in found], np.float64)
        note = f"{format_number(found[-1][1])} tok/s at {format_count(found[-1][0])}" if found else ""
        curves.append(Curve(run.name, x, y, np.zeros(len(y)), note=note, dimmed=run.dimmed))
    name = f"speed as Qwen2.5 counts, batch {format_count(n_seqs)}"
    going_on = [run.settings for run in runs if run.result is None]
    end = max((max(each.inputs) for each in going_on if isinstance(each, SpeedSettings)), default=None)
    return Figure(f"speed-b{n_seqs}", name, "tok/s", "input", "tokens", tuple(curves), end, y_low=0.0)


def _ended(run: PlottedRun) -> Sequence[SpeedCase]:
    """Return the finished cases; for a run in progress, those reported so far."""
    if isinstance(run.result, SpeedResult):
        return run.result.cases
    return [each for each in run.observations if isinstance(each, SpeedCase)]


def _cases_table(
    rows: Sequence[tuple[str, SpeedCase]], width: int | None, caption: str, *, has_quants: bool
) -> RenderableType:
    found = [each for _, each in rows]
    is_batched = any(each.case.n_seqs > 1 for each in found)

    def figures(header: str, unit: str, path: str, form: Callable[[Any], str], priority: int = ESSENTIAL) -> Cells:
        value: Callable[[Any], Any] = reader(path)
        return right(header, (form(value(each)) for each in found), unit, priority, stays=priority == ESSENTIAL)

    of_requests = (
        figures("slowest", "tok/s", "requests.tok_s_low", format_number, 9),
        figures("max TTFT", "ms", "requests.ttft_max_ms", format_ms, 5),
    )
    of_memory = (
        figures("memory", "GB", "ended.memory.total_bytes", format_gb, 3),
        figures("memory", "GiB", "ended.memory.total_bytes", _gib, 10),
        figures("peak", "GiB", "ended.peak_bytes", _gib, 11),
        figures("on GPU", "GiB", "ended.gpu_bytes", _gib, 11),
    )
    return fitted_table(
        [
            *([names("quant", (quant for quant, _ in rows))] if has_quants else []),
            figures("input", "tokens", "case.n_input", format_count),
            figures("batch", "", "case.n_seqs", format_count),
            figures("Qwen2.5", "tok/s", "tok_s_qwen2_5", format_number),
            figures("Qwen3", "tok/s", "tok_s_qwen3", format_number),
            figures("decode", "tok/s", "decode_tok_s", format_number, 1),
            *([figures("each", "tok/s", "tok_s_each", format_number, 1)] if is_batched else []),
            figures("prefill", "tok/s", "prefill_tok_s", format_number, 2),
            figures("TTFT", "ms", "ttft_ms", format_ms, 4),
            *(of_requests if any(each.requests for each in found) else ()),
            figures("p50", "ms", "latency.p50_ms", format_ms, 6),
            figures("p95", "ms", "latency.p95_ms", format_ms, 8),
            figures("p99", "ms", "latency.p99_ms", format_ms, 7),
            figures("token", "ms", "token_ms", format_ms, 9),
            figures("gain", "", "gain", lambda gain: f"{format_number(gain)}x" if gain else "—", 5),
            *(() if found and all(each.requests for each in found) else of_memory),
            figures("expected", "", "ended.expected_s", format_duration, 12),
            notes(map(case_note, found)),
        ],
        labels=[f"{quant}, {each.case.name}" if has_quants else each.case.name for quant, each in rows],
        dim=[each.tok_s_qwen2_5 is None for each in found],
        width=width,
        caption=caption,
    )


def _lines_table(rows: Sequence[tuple[str, BatchLine]], width: int | None, *, has_quants: bool) -> RenderableType:
    lines = [each for _, each in rows]
    limits = [(each.limit.w_tokens_per_ms, each.limit.b_ms) if each.limit else (None, None) for each in lines]
    return fitted_table(
        [
            *([names("quant", (quant for quant, _ in rows))] if has_quants else []),
            right("batch", (format_count(each.n_seqs) for each in lines), stays=True),
            right("W", (w_text(each.fit) for each in lines), "tokens/ms", stays=True),
            right("W MBU", (format_percent(each.w_ratio) for each in lines), "of limit", 1),
            right("limit of W", (format_number(w) for w, _ in limits), "tokens/ms", 2),
            right("B", (b_text(each.fit) for each in lines), "ms", stays=True),
            right("B MBU", (format_percent(each.b_ratio) for each in lines), "of limit", 1),
            right("limit of B", (format_ms(b_ms) for _, b_ms in limits), "ms", 2),
        ],
        title="Latency of a step: (n - 1) / W + B, n tokens in each sequence's cache",
        width=width,
        caption=_FEW_STEPS if any(each.fit is None or each.fit.w_ci95 is None for each in lines) else "",
    )


def _gib(n_bytes: int | None) -> str:
    return format_gb(n_bytes, binary=True)


def _ran(run: Run) -> list[SpeedCase]:
    """Return the completed cases, those with fewer tokens first."""
    ran = [each for each in result_of(run).cases if each.tok_s_qwen2_5 is not None]
    return sorted(ran, key=lambda each: each.case.n_tokens)


PRESENTER = SpeedPresenter()
