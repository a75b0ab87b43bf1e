"""Progress of trials on stderr: a line that moves in a terminal, a line for each step elsewhere."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from types import FrameType
from typing import Protocol

from ggbench.cli.output import Output
from ggbench.cli.transfer import Preparation, download_lines
from ggbench.experiments.bench import BenchProgress, RowExtended
from ggbench.experiments.bracket_text import answer, ending, question
from ggbench.experiments.progress import (
    FilePrepared,
    ModelLoading,
    ModelReady,
    PromptRead,
    TokensDecoded,
    TrialFinished,
    TrialStarted,
)
from ggbench.experiments.search_progress import FarEndFilling, ProbeFinished, ProbeStarted, SearchFinished
from ggbench.records.outcome import Outcome
from ggbench.report.columns import b_text, note, outcome_words, w_text
from ggbench.stats.linefit import RunningFit
from ggbench.units import format_ms, format_number


def follow(progress: Generator[BenchProgress], output: Output, cancel: threading.Event) -> list[TrialFinished]:
    """Draw the progress until it ends; the first Ctrl-C sets `cancel`, and what was measured is kept."""
    view: _View
    if output.quiet:
        view = _Silent()
    elif sys.stderr.isatty():
        view = _Bar(output)
    else:
        view = _Lines(output)
    finished: list[TrialFinished] = []
    with interrupt_sets(cancel), contextlib.closing(view), contextlib.closing(progress):
        told, n_trials = False, 0
        for record in progress:
            if cancel.is_set() and not told and not isinstance(record, FilePrepared):
                told = True
                view.tell("stopping; what was measured is kept (Ctrl-C again leaves at once)")
            if not (isinstance(record, TrialFinished) and record.error and n_trials == 1):  # the command ends with it
                view.draw(record)
            if isinstance(record, TrialStarted):
                n_trials = record.n_trials
            if isinstance(record, TrialFinished):
                finished.append(record)
            elif isinstance(record, RowExtended):
                finished[-1] = replace(finished[-1], row=record.row, store_error=record.store_error)
    return finished


class _View(Protocol):
    def draw(self, record: BenchProgress) -> None: ...

    def tell(self, text: str) -> None: ...

    def close(self) -> None: ...


class _Silent:
    def draw(self, record: BenchProgress) -> None:
        """Nothing."""

    def tell(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Lines:
    """One line when a trial starts and one when it ends, and some while its file is downloaded."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._download = download_lines(output)

    def draw(self, record: BenchProgress) -> None:
        match record:
            case TrialStarted():
                self._output.notice(f"[{record.index + 1}/{record.n_trials}] {record.model} {record.quant}")
                self._download = download_lines(self._output)
            case FilePrepared(done, total, is_download) if is_download:
                self._download.note(done, total)
            case TrialFinished():
                self._output.notice(f"  {_ending(record)}")
            case ProbeFinished() if record.probe.kind != "dry":
                self._output.notice(f"  {answer(record)}")
            case SearchFinished():
                self._output.notice(f"  {ending(record.certificate)}")

    def tell(self, text: str) -> None:
        self._output.notice(text)

    def close(self) -> None:
        """Nothing."""


class _Bar:
    """One line that moves, at most ten times a second."""

    def __init__(self, output: Output) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=output.console(stderr=True),
            refresh_per_second=10,
            transient=True,
        )
        self._rich.start()
        self._task = self._rich.add_task("", total=1, status="")
        self._title = ""
        self._fit = RunningFit()
        self._preparation = Preparation()

    def draw(self, record: BenchProgress) -> None:
        match record:
            case TrialStarted(model, quant, index, n_trials):
                self._fit = RunningFit()
                self._title = f"[{index + 1}/{n_trials}] {model} {quant}"
                self._rich.reset(self._task, description=self._title, total=1, status="")
            case FilePrepared(done, total):
                status = self._preparation.text(record)
                self._rich.update(self._task, completed=done, total=total, status=status)
            case ModelLoading(_, share):
                self._rich.update(self._task, completed=share, total=1, status="loading")
            case ModelReady(n_ctx):
                self._rich.reset(self._task, description=self._title, total=None, status=f"n_ctx {n_ctx}")
            case PromptRead(n_prompt, prefill_ns):
                self._rich.update(self._task, status=f"prompt of {n_prompt}: {format_ms(prefill_ns / 1e6)} ms")
            case TokensDecoded():
                self._draw_tokens(record)
            case TrialFinished():
                self._rich.console.print(f"{self._title}  {_ending(record)}", markup=False)
                self._rich.reset(self._task, total=None, status="")
            case ProbeStarted():
                self._rich.reset(self._task, total=None, status=question(record))
            case FarEndFilling(share):
                self._rich.update(self._task, completed=share, total=1)
            case ProbeFinished() if record.probe.kind != "dry":
                self._rich.console.print(f"  {answer(record)}", markup=False)
            case SearchFinished():
                self._rich.console.print(f"{self._title}  {ending(record.certificate)}", markup=False)

    def tell(self, text: str) -> None:
        self._rich.console.print(text, markup=False)

    def _draw_tokens(self, record: TokensDecoded) -> None:
        self._fit.add(range(record.first_position, record.first_position + len(record.step_ns)), record.step_ns)
        latest_ms = record.step_ns[-1] / 1e6
        w, b = self._fit.w_tokens_per_ms, self._fit.b_ms
        status = (
            f"{record.n_done:,}/{record.n_total:,}  {format_number(1e3 / latest_ms)} tok/s  {format_ms(latest_ms)} ms"
            f"  W {format_number(w)}  B {format_ms(b)} ms"
        )
        self._rich.update(self._task, completed=record.n_done, total=record.n_total, status=status)

    def close(self) -> None:
        self._rich.stop()


def _ending(record: TrialFinished) -> str:
    row = record.row
    if row.outcome is not Outcome.COMPLETED:
        words, why = outcome_words(row.outcome), note(row)
        return why if words in why.partition(":")[0] else f"{words}: {why}"
    if row.fit is None:
        return "done"
    tok_s = row.latency.tok_s if row.latency else None
    return f"{format_number(tok_s)} tok/s  W {w_text(row.fit)} tokens/ms  B {b_text(row.fit)} ms"


@contextlib.contextmanager
def interrupt_sets(cancel: threading.Event) -> Iterator[None]:
    """The first Ctrl-C sets the event, the second one leaves at once."""

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()  # and no more: a handler that prints may interrupt a print

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
