"""Speed by input length and batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.document import DOCUMENTS, case_against_tables, speed_against_document, speed_metrics
from ggbench.experiments.speed.record import Case, SpeedCase, SpeedResult, SpeedSettings, case_note, result_of
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.figures import Curve, Figure, PlottedRun, batch_sizes, latency_figure
from ggbench.show.machine import run_page, serving_caption
from ggbench.show.metric import Metric
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.show.tables import Cells, fitted_table, names, notes, right, spaced, twin_caption
from ggbench.show.text import b_text, w_text
from ggbench.stats.decode_timing import b_ratio, w_ratio
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
"""Of a grid of 28 characters: more batch sizes follow below."""

_SLOW = 0.1
"""Tokens/s below which a forecast has one digit, so that its cell holds it."""

_WAITING, _RUNNING, _FAILED, _FORECAST = "·", "…", "✗", "~"

_FEW_STEPS = "A dash: too few timed steps for W and B; a longer -n times more."

DEFINITIONS = (
    "tok/s as Qwen2.5's tables count: generated tokens / (prefill + decode); as Qwen3's: (input + generated) tokens / "
    "(prefill + decode). Of a batch, the tokens of all its sequences."
)


class SpeedPresenter(Presenter):
    kind: ClassVar[str] = "speed"
    title: ClassVar[str] = "speed"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeedCase,)
    no_answer: ClassVar[str] = "no case was measured"

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        measured = [_measured(run) for run in runs]
        batches = sorted({case.n_seqs for cases in measured for case in cases})
        return (*(_figure(n_seqs, runs, measured) for n_seqs in batches), *_steps(runs))

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """Return the case at work, and tokens/s of each case by input length and batch size, in lines of 28 characters.

        One that was skipped has what was forecast, one that failed `✗`, and one that waits `·`.
        """
        settings, ended = run.settings, {found.case: found for found in _ended(run)}
        if not isinstance(settings, SpeedSettings):
            return ()
        now = run.doing if isinstance(run.doing, Case) and run.doing not in ended else None
        lines = [] if now is None else [now.name]
        batches = sorted(set(settings.batches))
        for start in range(0, len(batches), _BATCHES_ACROSS):
            part = batches[start : start + _BATCHES_ACROSS]
            lines.append(f"{'input':>{_INPUT_WIDTH}}" + "".join(f"{f'b{n_seqs}':>{_CELL_WIDTH}}" for n_seqs in part))
            for n_input in sorted(set(settings.inputs)):
                cells = (_cell(Case(n_seqs, n_input, settings.n_gen), now, ended) for n_seqs in part)
                lines.append(
                    f"{format_count(n_input):>{_INPUT_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
                )
        if any(_FORECAST in line for line in lines):
            lines.append(f"{_FORECAST} forecast, and skipped")
        return (*lines, "tok/s as Qwen2.5 counts")

    def short_answer(self, run: Run) -> str:
        """Return `12.3 tok/s at 2kx8`, of the case with most tokens that ran; empty without any."""
        ran = _ran(run)
        if not ran:
            return ""
        case = ran[-1].case
        return f"{format_number(ran[-1].tok_s_qwen2_5)} tok/s at {format_length(case.n_input)}x{case.n_seqs}"

    def answer(self, run: Run) -> str:
        """`8 of 9 cases, 12.3 tok/s as Qwen2.5 counts at input 2,048, batch 8`: the largest that ran."""
        ran = _ran(run)
        if not ran:
            return ""
        last = ran[-1]
        speed = f"{format_number(last.tok_s_qwen2_5)} tok/s as Qwen2.5 counts at {last.case.name}"
        return f"{format_count(len(ran))} of {format_count(_n_cases(run))} cases, {speed}"

    def has_details(self, run: Run) -> bool:
        return bool(result_of(run).cases)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return speed_metrics(summaries)

    def against_document(self, run: Run) -> dict[str, object] | None:
        return speed_against_document(run) if result_of(run).cases else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return case_against_tables(runs, width=width)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        return run_page(run, quant_name(run.subject), [_AsWide(run)], folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return speed_table(runs, width=width)


def _steps(runs: Sequence[PlottedRun]) -> Iterator[Figure]:
    """The latency of steps: those of several batch sizes are on no one line, and their limits differ.

    Of runs that go on, whose series are not known, all steps so far.
    """
    batches = sorted({n_seqs for run in runs for n_seqs in batch_sizes(run)})
    if not batches:
        yield latency_figure([replace(run, fit=None, limit=None, end=None) for run in runs])
    for n_seqs in batches:
        yield latency_figure([_with_line(run, n_seqs) for run in runs], n_seqs)


def _with_line(run: PlottedRun, n_seqs: int) -> PlottedRun:
    """A run with the line of its steps of one batch size; one of another kind has its own for batch 1."""
    if not isinstance(run.settings, SpeedSettings):
        return run if n_seqs == 1 else replace(run, fit=None, limit=None, end=None)
    lines = run.result.lines if isinstance(run.result, SpeedResult) else ()
    line = next((each for each in lines if each.n_seqs == n_seqs), None)
    fit, limit = (None, None) if line is None else (line.fit, line.limit)
    return replace(run, fit=fit, limit=limit, end=None)


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
    end = max((_longest_input(run) for run in runs if run.result is None), default=0)
    return Figure(f"speed-b{n_seqs}", name, "tok/s", "input", "tokens", tuple(curves), end or None, y_low=0.0)


def _longest_input(run: PlottedRun) -> int:
    return max(run.settings.inputs) if isinstance(run.settings, SpeedSettings) else 0


def _measured(run: PlottedRun) -> dict[Case, float]:
    return {found.case: found.tok_s_qwen2_5 for found in _ended(run) if found.tok_s_qwen2_5 is not None}


def _ended(run: PlottedRun) -> Sequence[SpeedCase]:
    """The cases that ended, of a run that goes on as they were reported."""
    if isinstance(run.result, SpeedResult):
        return run.result.cases
    return [each for each in run.observations if isinstance(each, SpeedCase)]


def speed_table(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    served = dict.fromkeys(map(serving_caption, runs))
    caption = "\n".join(filter(None, (DEFINITIONS, *served, twin_caption([run.subject for run in runs]))))
    return spaced([_cases(runs, width, caption), *_lines(runs, width)])


class _AsWide:
    """The tables of a run, no wider than where they are shown."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield speed_table([self._run], width=options.max_width)


def _cases(runs: Sequence[Run], width: int | None, caption: str) -> RenderableType:
    rows = all_cases(runs)
    found = [each for _, each in rows]
    labels = _labels(runs)
    quants = [labels[id(run)] for run, _ in rows]

    def figures(header: str, unit: str, name: str, form: Callable[[Any], str], priority: int) -> Cells:
        return right(header, _texts(found, name, form), unit, priority)

    of_requests = (
        figures("a request", "tok/s", "requests.tok_s", format_number, 2),
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
            *([names("quant", quants)] if len(runs) > 1 else []),
            right("input", (format_count(each.case.n_input) for each in found), "tokens", stays=True),
            right("batch", (format_count(each.case.n_seqs) for each in found), stays=True),
            right("Qwen2.5", _texts(found, "tok_s_qwen2_5", format_number), "tok/s", stays=True),
            right("Qwen3", _texts(found, "tok_s_qwen3", format_number), "tok/s", stays=True),
            figures("decode", "tok/s", "decode_tok_s", format_number, 1),
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
        labels=[
            f"{f'{quant}, ' if len(runs) > 1 else ''}{each.case.name}"
            for quant, each in zip(quants, found, strict=True)
        ],
        dim=[each.tok_s_qwen2_5 is None for each in found],
        width=width,
        caption=caption,
    )


def _lines(runs: Sequence[Run], width: int | None) -> list[RenderableType]:
    labels = _labels(runs)
    rows = [(labels[id(run)], each) for run in runs for each in result_of(run).lines]
    if not rows:
        return []
    lines = [each for _, each in rows]
    table = fitted_table(
        [
            *([names("quant", (quant for quant, _ in rows))] if len(runs) > 1 else []),
            right("batch", (format_count(each.n_seqs) for each in lines), stays=True),
            right("W", (w_text(each.fit) for each in lines), "tokens/ms", stays=True),
            right("W%", (format_percent(w_ratio(each.fit, each.limit)) for each in lines), "of limit", 1),
            right("limit of W", _texts(lines, "limit.w_tokens_per_ms", format_number), "tokens/ms", 2),
            right("B", (b_text(each.fit) for each in lines), "ms", stays=True),
            right("B%", (format_percent(b_ratio(each.fit, each.limit)) for each in lines), "of limit", 1),
            right("limit of B", _texts(lines, "limit.b_ms", format_ms), "ms", 2),
        ],
        title="Latency of a step: (n - 1) / W + B, n tokens in each sequence's cache",
        width=width,
        caption=_FEW_STEPS if any(each.fit is None or each.fit.w_ci95 is None for each in lines) else "",
    )
    return [table]


def _labels(runs: Sequence[Run]) -> dict[int, str]:
    return {id(run): label for run, label in zip(runs, row_labels([run.subject for run in runs]), strict=True)}


def _texts(records: Sequence[object], path: str, text: Callable[[Any], str]) -> Iterator[str]:
    for record in records:
        value: Any = record
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        yield text(value)


def _gib(n_bytes: int | None) -> str:
    return format_gb(n_bytes, binary=True)


def all_cases(runs: Sequence[Run]) -> list[tuple[Run, SpeedCase]]:
    return [(run, each) for run in runs for each in result_of(run).cases]


def _ran(run: Run) -> list[SpeedCase]:
    """The cases that ran to their end, those with fewer tokens first."""
    ran = [each for each in result_of(run).cases if each.tok_s_qwen2_5 is not None]
    return sorted(ran, key=lambda each: each.case.n_tokens)


def _n_cases(run: Run) -> int:
    settings = run.head.settings
    return len(settings.cases) if isinstance(settings, SpeedSettings) else len(result_of(run).cases)


PRESENTER = SpeedPresenter()
