"""Keeps what a running experiment sees: whole in memory for its result, and in the store against a kill."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from ggbench.engines.events import Steps
from ggbench.errors import StoreError, UnknownName
from ggbench.machine.host import peak_rss_bytes
from ggbench.machine.readings import moment_ns
from ggbench.machine.records import MachineReading
from ggbench.runs.recording import PAUSE_NS, Observation, Recording, Series, WorkerPeak, WorkerStarted, kind_of
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store

READING_INTERVAL_S = 1.0
_STORE_EVERY_S = 1.0


class ReadingLog:
    """Takes a reading when it is entered, then one at each interval, and one when it is left.

    A thread of the parent takes them, so that the timed child is not disturbed.
    """

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


class Recorder:
    """One run. A store that fails costs the run its place in it, never the measurement."""

    def __init__(self, head: RunHead, store: Store | None, readings: ReadingLog) -> None:
        self.recording = Recording(head)
        self.run_id: int | None = None
        """Of the store; None where nothing is kept."""
        self.store_error: StoreError | None = None
        """Why the store does not have the run, or not all of it; None when it has."""
        self.has_begun = False
        self._store = store
        self._readings = readings
        self._n_stored: dict[str, int] = {}
        self._stored_at = time.monotonic()
        self._arrived_ns = 0
        self._pid: int | None = None

    def begin(self, head: RunHead) -> None:
        """Open a run in the store, so that a kill leaves a trace; what was observed before goes with it."""
        self.has_begun, self.recording.head = True, head
        try:
            self.run_id = None if self._store is None else self._store.begin(head)
        except StoreError as error:
            self._give_up(error)
        self._write_observations(self.recording.observations)

    def observe(self, body: object) -> None:
        """Keep a record; its type is the kind that the store knows it by."""
        if isinstance(body, WorkerStarted):
            self._pid = body.pid
        observation = Observation(moment_ns(), body)
        self.recording.observations.append(observation)
        self._write_observations([observation])

    def add_steps(self, series: str, steps: Steps) -> None:
        """Take in some consecutive steps of a series; they are stored at least once a second."""
        now_ns = moment_ns()
        if now_ns - sum(steps.step_ns) - sum(steps.sample_ns) - self._arrived_ns >= PAUSE_NS:
            self.flush()  # a chunk ends where a pause begins, so that its span is that of its steps
        self._arrived_ns = now_ns
        kept = self.recording.series.setdefault(series, Series())
        if kept.position and steps.first_position != kept.position[-1] + 1:
            self.flush()  # as it ends where its positions do
        kept.extend(steps.first_position, steps.step_ns, steps.sample_ns)
        if time.monotonic() - self._stored_at >= _STORE_EVERY_S:
            self.flush()
        self.keep_readings()

    def flush(self) -> None:
        self._stored_at = time.monotonic()
        for name, series in self.recording.series.items():
            start, end = self._n_stored.get(name, 0), len(series.step_ns)
            if start < end:
                self._n_stored[name] = end
                step_ns, sample_ns = series.step_ns[start:end], series.sample_ns[start:end]
                self._write_chunk(name, series.position[start], step_ns, sample_ns)

    def skip_readings(self) -> None:
        """Leave out the readings so far but the last, which was taken before what comes next."""
        self._readings.skip()

    def keep_readings(self) -> None:
        """Store the readings of the machine since the last time, and the worker's peak of memory where it has grown."""
        new = self._readings.take_new()
        if not new:
            return
        observations = [Observation(reading.at_ns, reading) for reading in new]
        self.recording.observations += observations
        self._write_observations(observations)
        self.keep_peak()

    def keep_peak(self) -> None:
        """Store the most memory that the worker has had resident, where it has grown."""
        if self._pid is None:
            return
        peak_bytes, known = peak_rss_bytes(self._pid), self.recording.last(WorkerPeak)
        if peak_bytes is not None and (known is None or peak_bytes > known.peak_bytes):
            self.observe(WorkerPeak(peak_bytes))

    def finish(self, run: Run) -> None:
        self._write(lambda store, run_id: store.finish(run_id, run))

    def _write_chunk(self, series: str, first_position: int, step_ns: list[int], sample_ns: list[int]) -> None:
        at_ns = self._arrived_ns
        self.recording.chunk_spans.append((series, (at_ns - sum(step_ns) - sum(sample_ns), at_ns)))
        self._write(
            lambda store, run_id: store.append_samples(
                run_id, series, first_position, step_ns, sample_ns or None, at_ns=at_ns
            )
        )

    def _write_observations(self, observations: list[Observation]) -> None:
        if observations:
            rows = [(each.at_ns, kind_of(type(each.body)), each.body) for each in observations]
            self._write(lambda store, run_id: store.append_observations(run_id, rows))

    def _write(self, write: Callable[[Store, int], object]) -> None:
        if self._store is None or self.run_id is None:
            return
        try:
            write(self._store, self.run_id)
        except UnknownName:  # deleted from another container, which sees no process of ours
            self._store = self.run_id = None
        except StoreError as error:
            self._give_up(error)

    def _give_up(self, error: StoreError) -> None:
        self._store, self.store_error = None, error
