"""Progress of experiments: a few records that a front end draws without knowing the experiment, and the pace of work.

`text` is one line for the user.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Literal, TypeVar

from ggbench.engines.events import Memory
from ggbench.errors import GgbenchError, StoreError
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.stats.decode_timing import DecodeLimit

Stage = Literal["download", "write", "load", "prompt", "decode", "probe", "score"]
"""The stage of a job; the first two are counted in bytes."""


class Started(Record):
    """A job starts; its file may still have to be made."""

    kind: str
    model: str
    quant: str
    index: int
    """Index among the jobs of this command, from 0."""
    n_jobs: int


class Working(Record):
    """Progress of a slow step."""

    stage: Stage
    done: float | None = None
    """Part of `total`: bytes of a download or of a written twin, otherwise a share; None if unknown."""
    total: float | None = None
    text: str = ""
    """Details in addition to the stage."""

    @property
    def is_bytes(self) -> bool:
        """Whether `done` and `total` are bytes."""
        return self.stage in ("download", "write")


class ModelReady(Record):
    """Model and context are in memory."""

    memory: Memory
    run_id: int | None
    """None if nothing is stored."""
    limit: DecodeLimit | None = None
    """Limit by the memory of the weights; None if unknown."""


class SamplesTimed(Record):
    """Consecutive timed steps."""

    series: str
    first_position: int
    step_ns: tuple[int, ...]
    n_done: int
    """Timed steps so far, over all series of the run."""
    n_total: int


class PointMeasured(Record):
    """A single result, such as of a prompt or a probe."""

    text: str
    """One line for the user; empty if too small to mention."""
    observation: object
    """The record of it."""


class Finished(Record):
    """One job is done, whatever its outcome."""

    run: Run
    error: GgbenchError | None = None
    """Error that prevented a result; a front end with only this job raises it."""
    store_error: StoreError | None = None
    """Why the store lacks part of the run; the record is complete."""

    @property
    def ends_command(self) -> bool:
        """Whether a command with only this job ends with the run's error or answer."""
        return self.error is not None or self.run.is_complete


Progress = Started | Working | ModelReady | SamplesTimed | PointMeasured | Finished
_T = TypeVar("_T")
Measuring = Generator[Progress, None, _T]
"""Yields progress; returns a result."""

_PACE_WINDOW_S = 10.0


class Pace:
    """How fast work is done, by the last ten seconds of `clock`, and how long the rest takes at that rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, float]] = deque()
        self.done = self.total = 0.0

    def update(self, done: float, total: float, moved: float | None = None) -> None:
        """Record progress; `moved`, if given, counts for the rate."""
        now, counted = self._clock(), done if moved is None else moved
        if self._seen and (counted < self._seen[-1][1] or total != self.total):
            self._seen.clear()  # other work, or a restart
        self._seen.append((now, counted))
        self.done, self.total = done, total
        while len(self._seen) > 2 and now - self._seen[1][0] > _PACE_WINDOW_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """None until it can be computed."""
        if not self._seen:
            return None
        (start, before), (end, done) = self._seen[0], self._seen[-1]
        return (done - before) / (end - start) if end > start and done > before else None

    @property
    def left_s(self) -> float | None:
        """None while the rate is unknown."""
        return None if self.per_s is None else (self.total - self.done) / self.per_s
