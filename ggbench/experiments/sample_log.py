"""The samples of one trial: kept whole for the fit, and handed on for keeping at least once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from ggbench.engine.protocol import Decoded

_KEEP_EVERY_S = 1.0

Keep = Callable[[int, int, list[int], list[int]], None]
"""Takes the repetition, the first position, and the nanoseconds of the steps and of the sampler."""


class SampleLog:
    """Decode steps in the order they were timed; repetitions follow each other, each from the first position on."""

    def __init__(self, keep: Keep) -> None:
        self.position: list[int] = []
        self.step_ns: list[int] = []
        self.sample_ns: list[int] = []
        self._keep = keep
        self._repeat = 0
        self._kept = 0
        self._kept_at = time.monotonic()

    def add(self, event: Decoded) -> None:
        """Take in some steps of the running repetition."""
        self.position.extend(range(event.first_position, event.first_position + len(event.step_ns)))
        self.step_ns.extend(event.step_ns)
        self.sample_ns.extend(event.sample_ns)
        if time.monotonic() - self._kept_at >= _KEEP_EVERY_S:
            self.flush()

    def end_repetition(self) -> None:
        """What comes next starts again from the first position."""
        self.flush()
        self._repeat += 1

    def flush(self) -> None:
        """Hand on what has come since the last time."""
        start, end = self._kept, len(self.step_ns)
        self._kept, self._kept_at = end, time.monotonic()
        if start < end:
            self._keep(self._repeat, self.position[start], self.step_ns[start:end], self.sample_ns[start:end])
