"""Transfers on stderr: a line that moves in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ggbench.cli.output import Output
from ggbench.experiments.progress import FilePrepared
from ggbench.stats.transfer_rate import TransferRate
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.hub.download_progress import FileProgress

_STEPS = 10
"""Lines for a whole transfer, where nothing can move."""
_SHORTEST_S, _LONGEST_S = 1.0, 15.0
"""Between two lines."""
_SILENCE_S = 15.0
"""For how long nothing may arrive before it is told."""


class TransferLines:
    """A line now and then, where nothing can move: at each tenth of the way, and where that takes long, in between."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._transfer = TransferRate(clock)
        self._told_at: float | None = None
        self._told_step = 0

    def note(self, done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
        """Take in how far it has come, as `TransferRate.update` does, and tell it when it is time."""
        self._transfer.update(done_bytes, total_bytes, moved_bytes)
        now, step = self._clock(), _STEPS * done_bytes // max(1, total_bytes)
        if self._told_at is None:
            self._told_at, self._told_step = now, step
            return
        waited_s = now - self._told_at
        is_due = (step > self._told_step and waited_s >= _SHORTEST_S) or waited_s >= _LONGEST_S
        if is_due or (done_bytes >= total_bytes and self._told_step < _STEPS):
            self._told_at, self._told_step = now, step
            self._tell(self._transfer.text())


def download_lines(output: Output) -> TransferLines:
    """Lines about one download on stderr."""
    return TransferLines(lambda text: output.notice(f"  downloaded {text}"))


class Preparation:
    """The files of one trial after another, made or downloaded."""

    def __init__(self) -> None:
        self._transfer = TransferRate()

    def text(self, record: FilePrepared) -> str:
        """`downloading 1.20 GiB of 4.43 GiB, 23.5 MiB/s, 2:21 left`, or `writing` for a twin."""
        self._transfer.update(record.done_bytes, record.total_bytes)
        return f"{'downloading' if record.is_download else 'writing'} {self._transfer.text()}"


class ArrivalNotices:
    """What is told of a download beside its bytes: how it begins, and that nothing comes; each once."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._moved_bytes = 0
        self._moved_at: float | None = None
        self._has_told_silence = False

    def note(self, files: Sequence[FileProgress]) -> None:
        """Take in how far it has come."""
        now, moved_bytes = self._clock(), sum(each.moved_bytes for each in files)
        if self._moved_at is None:
            self._tell_beginning(files)
        is_waiting = any(each.done_bytes < each.file.n_bytes and not each.has_copy for each in files)
        if self._moved_at is None or moved_bytes != self._moved_bytes or not is_waiting:
            self._moved_bytes, self._moved_at, self._has_told_silence = moved_bytes, now, False
        elif now - self._moved_at >= _SILENCE_S and not self._has_told_silence:
            self._has_told_silence = True
            self._tell(f"no data for {_SILENCE_S:.0f} s; trying again")

    def _tell_beginning(self, files: Sequence[FileProgress]) -> None:
        coming = [each for each in files if each.kept_bytes or each.done_bytes < each.file.n_bytes]
        if any(each.has_copy for each in coming):
            self._tell("copying from the cache")
        elif any(each.kept_bytes for each in coming):
            done_bytes = sum(each.done_bytes - each.moved_bytes for each in files)
            self._tell(f"continues at {format_bytes(done_bytes)}")


@contextlib.contextmanager
def arrival_progress(output: Output, title: str) -> Iterator[Callable[[Sequence[FileProgress]], None]]:
    """Where to tell how files arrive: a bar on stderr in a terminal, lines elsewhere, nothing with --quiet."""
    if output.quiet:
        yield lambda _files: None
        return
    notices = ArrivalNotices(lambda text: output.notice(f"{title}: {text}"))
    if not sys.stderr.isatty():
        lines = TransferLines(lambda text: output.notice(f"{title}: {text}"))

        def note_lines(files: Sequence[FileProgress]) -> None:
            notices.note(files)
            lines.note(*_bytes_of(files))

        yield note_lines
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[status]}", markup=False),
    )
    transfer = TransferRate()
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, status="")

        def note_bar(files: Sequence[FileProgress]) -> None:
            notices.note(files)  # rich puts what is printed meanwhile above the bar
            done_bytes, total_bytes, moved_bytes = _bytes_of(files)
            transfer.update(done_bytes, total_bytes, moved_bytes)
            bar.update(task, completed=done_bytes, total=total_bytes, status=transfer.text())

        yield note_bar


def _bytes_of(files: Sequence[FileProgress]) -> tuple[int, int, int]:
    """Done, in all, and moved."""
    return (
        sum(each.done_bytes for each in files),
        sum(each.file.n_bytes for each in files),
        sum(each.moved_bytes for each in files),
    )
