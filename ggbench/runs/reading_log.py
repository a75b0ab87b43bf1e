"""Readings of the machine while a run goes on, in a thread of their own, which leaves the timed child undisturbed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Self

from msgspec.structs import replace

from ggbench.machine.host import cpu_seconds_of, disk_waits
from ggbench.machine.records import MachineReading

READING_INTERVAL_S = 1.0


class ReadingLog:
    """Takes a reading on entry, when the engine's process starts, at each interval, and before that process ends."""

    def __init__(
        self,
        read: Callable[[], MachineReading] | None,
        interval_s: float = READING_INTERVAL_S,
        show: Callable[[MachineReading], None] = lambda reading: None,
    ) -> None:
        """`read` is called from a separate thread, as is `show` with each reading; None for no readings."""
        self._new: list[MachineReading] = []
        """The readings since `take_new`, in order of time; the thread only appends."""
        self._worker_pid: int | None = None
        """The engine's process, whose waits for the disk and CPU time are read as well; None before its start."""
        self._own: tuple[int, int, float] | None = None
        """The engine's process, when it was read last, and its and our CPU time until then."""
        self._read, self._interval_s, self._show = read, interval_s, show
        self._due = threading.Event()
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)

    def __enter__(self) -> Self:
        if self._read is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def watch(self, pid: int) -> None:
        """Take a reading of the engine's process, which has started, and of the machine."""
        self._worker_pid = pid
        self._due.set()

    def end(self) -> None:
        """Take the last reading, and wait for it."""
        self._is_ended = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)  # a hanging driver blocks only this thread, which nobody waits for

    def take_new(self) -> tuple[MachineReading, ...]:
        new = tuple(self._new)
        del self._new[: len(new)]
        return new

    def skip(self) -> None:
        """Exclude the readings so far, except the last, from `take_new`."""
        del self._new[:-1]

    def _run(self) -> None:
        assert self._read is not None
        is_last = False
        while True:
            try:
                reading = self._read()
                if self._worker_pid is not None:
                    faults, read_bytes = disk_waits(self._worker_pid)
                    others = self._others_share(self._worker_pid, reading)
                    reading = replace(
                        reading, worker_faults=faults, worker_read_bytes=read_bytes, others_share=others
                    )
                self._new.append(reading)
                self._show(reading)
            except OSError:
                return  # the kernel's files or the driver are gone; the run continues without readings
            if is_last:
                return
            self._due.wait(self._interval_s)
            self._due.clear()
            is_last = self._is_ended

    def _others_share(self, pid: int, reading: MachineReading) -> float | None:
        """Return the part of a reading's `cpu_share` that neither we nor the engine used since the previous one."""
        own_s, before = cpu_seconds_of(pid), self._own
        self._own = None if own_s is None else (pid, reading.at_ns, own_s + time.process_time())
        if before is None or self._own is None or before[0] != pid or reading.cpu_share is None:
            return None
        elapsed_s = (reading.at_ns - before[1]) / 1e9 * (os.cpu_count() or 1)
        return max(0.0, reading.cpu_share - (self._own[2] - before[2]) / elapsed_s) if elapsed_s > 0 else None
