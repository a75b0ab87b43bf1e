"""Bytes over time for people: how many of how many, how fast, and how long the rest takes.

The rate is of the last seconds, and never counts what an earlier try had left.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ggbench.cli.output import Output
from ggbench.experiments.progress import FilePrepared
from ggbench.units import format_bytes, format_duration

if TYPE_CHECKING:
    from ggbench.hub.arrivals import FileArrival

_WINDOW_S = 10.0
_STEPS = 10
"""Lines for a whole transfer, where nothing can move."""
_SHORTEST_S, _LONGEST_S = 1.0, 15.0
"""Between two lines."""
_SILENCE_S = 15.0
"""For how long nothing may arrive before it is told."""


class Transfer:
    """One transfer as it goes on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._done_bytes = 0
        self._total_bytes = 0

    def note(self, done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
        """Take in how far it has come, and what of it was moved where that is not the same: the rate is of that."""
        now, counted = self._clock(), done_bytes if moved_bytes is None else moved_bytes
        if self._seen and (counted < self._seen[-1][1] or total_bytes != self._total_bytes):
            self._seen.clear()  # another file, or the same one from its start
        self._seen.append((now, counted))
        self._done_bytes, self._total_bytes = done_bytes, total_bytes
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW_S:
            self._seen.popleft()

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Over the last seconds; None until there is something to tell it from."""
        if not self._seen:
            return None
        (start, before), (end, done) = self._seen[0], self._seen[-1]
        return (done - before) / (end - start) if end > start and done > before else None

    @property
    def left_s(self) -> float | None:
        """Until it ends at this rate."""
        rate = self.rate_bytes_per_s
        return None if rate is None else (self._total_bytes - self._done_bytes) / rate

    def text(self) -> str:
        """`1.20 GiB of 4.43 GiB, 23.5 MiB/s, 2:21 left`."""
        text = f"{format_bytes(self._done_bytes)} of {format_bytes(self._total_bytes)}"
        rate = self.rate_bytes_per_s
        if rate is None:
            return text
        text += f", {format_bytes(rate)}/s"
        return text if self._done_bytes >= self._total_bytes else f"{text}, {format_duration(self.left_s)} left"


class TransferLines:
    """A line now and then, where nothing can move: at each tenth of the way, and where that takes long, in between."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._transfer = Transfer(clock)
        self._told_at: float | None = None
        self._told_step = 0

    def note(self, done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
        """Take in how far it has come, as `Transfer.note` does, and tell it when it is time."""
        self._transfer.note(done_bytes, total_bytes, moved_bytes)
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
        self._transfer = Transfer()

    def text(self, record: FilePrepared) -> str:
        """`downloading 1.20 GiB of 4.43 GiB, 23.5 MiB/s, 2:21 left`, or `writing` for a twin."""
        self._transfer.note(record.done_bytes, record.total_bytes)
        return f"{'downloading' if record.is_download else 'writing'} {self._transfer.text()}"


class ArrivalNotices:
    """What is told of a download beside its bytes: how it begins, and that nothing comes; each once."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._moved_bytes = 0
        self._moved_at: float | None = None
        self._has_told_silence = False

    def note(self, files: Sequence[FileArrival]) -> None:
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

    def _tell_beginning(self, files: Sequence[FileArrival]) -> None:
        coming = [each for each in files if each.kept_bytes or each.done_bytes < each.file.n_bytes]
        if any(each.has_copy for each in coming):
            self._tell("copying from the cache")
        elif any(each.kept_bytes for each in coming):
            done_bytes = sum(each.done_bytes - each.moved_bytes for each in files)
            self._tell(f"continues at {format_bytes(done_bytes)}")


@contextlib.contextmanager
def arrival_progress(output: Output, title: str) -> Iterator[Callable[[Sequence[FileArrival]], None]]:
    """Where to tell how files arrive: a bar on stderr in a terminal, lines elsewhere, nothing with --quiet."""
    if output.quiet:
        yield lambda _files: None
        return
    notices = ArrivalNotices(lambda text: output.notice(f"{title}: {text}"))
    if not sys.stderr.isatty():
        lines = TransferLines(lambda text: output.notice(f"{title}: {text}"))

        def note_lines(files: Sequence[FileArrival]) -> None:
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
    transfer = Transfer()
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, status="")

        def note_bar(files: Sequence[FileArrival]) -> None:
            notices.note(files)  # rich puts what is printed meanwhile above the bar
            done_bytes, total_bytes, moved_bytes = _bytes_of(files)
            transfer.note(done_bytes, total_bytes, moved_bytes)
            bar.update(task, completed=done_bytes, total=total_bytes, status=transfer.text())

        yield note_bar


def _bytes_of(files: Sequence[FileArrival]) -> tuple[int, int, int]:
    """Done, in all, and moved."""
    return (
        sum(each.done_bytes for each in files),
        sum(each.file.n_bytes for each in files),
        sum(each.moved_bytes for each in files),
    )
