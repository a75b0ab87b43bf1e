"""Downloads on stderr: a bar in a terminal, lines at intervals elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ggbench.cli.output import Output
from ggbench.recording.progress import Working
from ggbench.stats.transfer_rate import TransferRate
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.hub.download_progress import FileProgress

_STEPS = 10
"""Lines for a whole download, without a terminal."""
_SHORTEST_S, _LONGEST_S = 1.0, 15.0
"""Between two lines."""
_STALLED_S = 15.0
"""Without data before a notice."""


class DownloadLines:
    """A line at each tenth of a download, and in between where that takes long."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._transfer = TransferRate(clock)
        self._written_at: float | None = None
        self._written_step = 0

    def update(self, done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
        """Take in the bytes so far, as `TransferRate.update` does, and write a line when it is time."""
        self._transfer.update(done_bytes, total_bytes, moved_bytes)
        now, step = self._clock(), _STEPS * done_bytes // max(1, total_bytes)
        if self._written_at is None:
            self._written_at, self._written_step = now, step
            return
        waited_s = now - self._written_at
        is_due = (step > self._written_step and waited_s >= _SHORTEST_S) or waited_s >= _LONGEST_S
        if is_due or (done_bytes >= total_bytes and self._written_step < _STEPS):
            self._written_at, self._written_step = now, step
            self._write(self._transfer.text())


def download_lines(output: Output) -> DownloadLines:
    """Lines about one download on stderr."""
    return DownloadLines(lambda text: output.notice(f"  downloaded {text}"))


class FileStatus:
    """The files of one run after another, made or downloaded."""

    def __init__(self) -> None:
        self._transfer = TransferRate()

    def text(self, record: Working) -> str:
        """`downloading 1.20 GiB of 4.43 GiB, 23.5 MiB/s, 2:21 left`, or `writing` for a twin."""
        self._transfer.update(round(record.done or 0), round(record.total or 0))
        return f"{'downloading' if record.stage == 'download' else 'writing'} {self._transfer.text()}"


class DownloadNotices:
    """Notices about a download beside its bytes: how it begins, and that it has stalled; each once."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._moved_bytes = 0
        self._moved_at: float | None = None
        self._has_reported_stall = False

    def update(self, files: Sequence[FileProgress]) -> None:
        """Take in the bytes so far."""
        now, moved_bytes = self._clock(), sum(each.moved_bytes for each in files)
        if self._moved_at is None:
            self._write_beginning(files)
        is_waiting = any(each.done_bytes < each.file.n_bytes and not each.has_copy for each in files)
        if self._moved_at is None or moved_bytes != self._moved_bytes or not is_waiting:
            self._moved_bytes, self._moved_at, self._has_reported_stall = moved_bytes, now, False
        elif now - self._moved_at >= _STALLED_S and not self._has_reported_stall:
            self._has_reported_stall = True
            self._write(f"no data for {_STALLED_S:.0f} s; trying again")

    def _write_beginning(self, files: Sequence[FileProgress]) -> None:
        coming = [each for each in files if each.kept_bytes or each.done_bytes < each.file.n_bytes]
        if any(each.has_copy for each in coming):
            self._write("copying from the cache")
        elif any(each.kept_bytes for each in coming):
            done_bytes = sum(each.done_bytes - each.moved_bytes for each in files)
            self._write(f"continues at {format_bytes(done_bytes)}")


@contextlib.contextmanager
def download_progress(output: Output, title: str) -> Iterator[Callable[[Sequence[FileProgress]], None]]:
    """Yield what takes the progress of files: a bar on stderr in a terminal, lines elsewhere, nothing with --quiet."""
    if output.quiet:
        yield lambda _files: None
        return
    from ggbench.hub.download_progress import summed

    notices = DownloadNotices(lambda text: output.notice(f"{title}: {text}"))
    if not sys.stderr.isatty():
        lines = DownloadLines(lambda text: output.notice(f"{title}: {text}"))

        def update_lines(files: Sequence[FileProgress]) -> None:
            notices.update(files)
            lines.update(*summed(files))

        yield update_lines
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

        def update_bar(files: Sequence[FileProgress]) -> None:
            notices.update(files)  # rich puts what is printed meanwhile above the bar
            done_bytes, total_bytes, moved_bytes = summed(files)
            transfer.update(done_bytes, total_bytes, moved_bytes)
            bar.update(task, completed=done_bytes, total=total_bytes, status=transfer.text())

        yield update_bar
