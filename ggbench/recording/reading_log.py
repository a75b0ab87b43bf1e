"""Readings of the machine during a run, taken by a thread of the parent so that the timed child is not disturbed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from ggbench.records.machine import MachineReading

READING_INTERVAL_S = 1.0


class ReadingLog:
    """Takes a reading when it is entered, then one at each interval, and one when it is left."""

    def __init__(self, read: Callable[[], MachineReading] | None, interval_s: float = READING_INTERVAL_S) -> None:
        """`read` is called from a thread of its own; None takes no readings."""
        self.readings: list[MachineReading] = []
        """All so far, by rising time; other threads only append."""
        self._read, self._interval_s = read, interval_s
        self._n_handed_on = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)

    def __enter__(self) -> Self:
        if self._read is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)  # a driver that hangs keeps its thread, and nobody waits for it

    def take_new(self) -> tuple[MachineReading, ...]:
        """What has come since the last time."""
        new = tuple(self.readings[self._n_handed_on :])
        self._n_handed_on += len(new)
        return new

    def skip(self) -> None:
        """Leave what has come out of `take_new`, except for the last."""
        self._n_handed_on = max(self._n_handed_on, len(self.readings) - 1)

    def _run(self) -> None:
        assert self._read is not None
        is_last = False
        while True:
            try:
                self.readings.append(self._read())
            except OSError:
                return  # the kernel's files or the driver are gone; the run goes on without readings
            if is_last:
                return
            is_last = self._ended.wait(self._interval_s)
