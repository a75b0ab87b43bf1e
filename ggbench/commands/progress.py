"""Live progress of jobs on stderr: a bar in a terminal, otherwise lines; nothing with `--quiet`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ggbench.commands.downloads import DownloadLines, transfer_text
from ggbench.commands.output import Output
from ggbench.runs.progress import (
    Finished,
    ModelReady,
    Pace,
    PointMeasured,
    Progress,
    SamplesTimed,
    Started,
    Working,
)
from ggbench.runs.recording import PromptTiming
from ggbench.show.presenter import presenter_of
from ggbench.units import format_count, format_ms, format_number, format_percent

_STATUS = {
    "download": "downloading",
    "write": "writing",
    "load": "loading",
    "prompt": "reading the prompt",
    "decode": "decoding",
}
"""Texts for stages that have none of their own."""


class View:
    """Draws the progress of a command's jobs; this base class draws nothing."""

    def draw(self, record: Progress) -> None: ...

    def notice(self, text: str) -> None:
        """Print a line above anything being drawn."""

    def refresh(self) -> None: ...

    def close(self) -> None:
        """Restore the terminal."""


def view_of(output: Output, names: Sequence[str]) -> View:
    """Return the view for stderr; `names` are the names of the jobs."""
    if output.quiet:
        return View()
    return _BarView(output, names) if sys.stderr.isatty() else _LineView(output, names)


class _LineView(View):
    """Lines when a job starts and ends, for each point, and during downloads."""

    def __init__(self, output: Output, names: Sequence[str]) -> None:
        self._output, self._names = output, names

    def draw(self, record: Progress) -> None:
        match record:
            case Started():
                self._output.notice(_title(record, self._names))
                self._download = DownloadLines(lambda text: self._output.notice(f"  downloaded {text}"))
            case Working("download", done, total):
                self._download.update(round(done or 0), round(total or 0))
            case PointMeasured(text) if _has_line(record):
                self._output.notice(f"  {text}")
            case Finished():
                self._output.notice(f"  {presenter_of(record.run.head.kind).ending(record.run)}")

    def notice(self, text: str) -> None:
        self._output.notice(text)


class _BarView(View):
    """A progress bar, and a line above it for each point and each finished job."""

    def __init__(self, output: Output, names: Sequence[str]) -> None:
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
        self._names, self._title, self._status = names, "", ""
        self._pace = Pace()

    def draw(self, record: Progress) -> None:
        match record:
            case Started():
                self._title = _title(record, self._names)
                # reset() replaces all fields, and the refresh thread may draw before the next update
                self._rich.reset(self._task, description=self._title, total=1, status="")
            case Working():
                self._draw_work(record)
            case ModelReady(memory):
                self._restart("" if memory.n_ctx is None else f"n_ctx {format_count(memory.n_ctx)}")
            case SamplesTimed():
                self._draw_samples(record)
            case PointMeasured(text) if _has_line(record):
                self.notice(f"  {text}")
            case PointMeasured(text) if text:
                self._rich.update(self._task, status=text)
            case Finished():
                self.notice(f"{self._title}  {presenter_of(record.run.head.kind).ending(record.run)}")
                self._restart("")

    def notice(self, text: str) -> None:
        self._rich.console.print(text, markup=False)

    def refresh(self) -> None:
        self._rich.refresh()

    def close(self) -> None:
        self._rich.stop()

    def _draw_work(self, record: Working) -> None:
        status = record.text or _STATUS.get(record.stage, "")
        if record.is_bytes:
            self._pace.update(record.done or 0, record.total or 0)
            status = f"{_STATUS[record.stage]} {transfer_text(self._pace)}"
            self._rich.update(self._task, completed=record.done, total=record.total, status=status)
        elif record.done is None or not record.total:
            self._restart(status)
        elif record.done >= record.total and self._status:
            self._restart(self._status)  # a new worker has loaded the model: resume the previous status
        else:
            if record.stage not in _STATUS:
                status = f"{status or self._status}; {format_percent(record.done / record.total)}"
            self._rich.update(self._task, completed=record.done, total=record.total, status=status)

    def _draw_samples(self, record: SamplesTimed) -> None:
        ms = record.step_ns[-1] / 1e6
        status = f"{record.n_done:,}/{record.n_total:,}  {format_number(1e3 / ms)} tok/s  {format_ms(ms)} ms"
        self._rich.update(self._task, completed=record.n_done, total=record.n_total, status=status)

    def _restart(self, status: str) -> None:
        """Show a bar of unknown length."""
        self._status = status
        self._rich.reset(self._task, description=self._title, total=None, status=status)


def _title(record: Started, names: Sequence[str]) -> str:
    return f"[{record.index + 1}/{record.n_jobs}] {names[record.index]}"


def _has_line(record: PointMeasured) -> bool:
    """Return whether a point gets its own line; a repeated prompt does not."""
    return bool(record.text) and not isinstance(record.observation, PromptTiming)
