"""What was seen of one trial so far, kept in memory for its row and in the store against a kill."""

from __future__ import annotations

import time
from collections.abc import Callable

from ggbench.engine import protocol
from ggbench.engine.logs import Allocations, parse_allocations
from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.reading_log import ReadingLog
from ggbench.experiments.sample_log import SampleLog
from ggbench.records import Environment, Row
from ggbench.stats.gpu_use import Span
from ggbench.store.database import Store
from ggbench.store.runs import RunStart

_PAUSE_NS = 1_000_000_000
"""A gap of this length between timed steps is no part of what was timed."""


class Observations:
    """Takes in the worker's events. A store that fails costs the trial its place in it, never the measurement."""

    def __init__(self, store: Store | None, readings: ReadingLog) -> None:
        self._store = store
        self.readings = readings
        self.store_error: StoreError | None = None
        """Why the store does not have the trial, or not all of it; None when it has."""
        self.has_begun = False
        self.run_id: int | None = None
        """Of the store; None where nothing is kept."""
        self.worker_pid: int | None = None
        self.environment: Environment | None = None
        """None until the worker is ready."""
        self.n_ctx: int | None = None
        """As llama.cpp rounded it; None until there is a context."""
        self.n_batch: int | None = None
        self.n_ubatch: int | None = None
        """Both as llama.cpp clamped them."""
        self.prefill_ns: dict[int, list[int]] = {}
        """Every timed prompt, by its length."""
        self.samples = SampleLog(self._append)
        self.peak_bytes: int | None = None
        """Of the worker's resident memory; None where it could not be asked."""
        self.prefill_spans: list[Span] = []
        self.decode_spans: list[Span] = []
        """When timed steps ran; a pause parts them."""
        self._log: list[str] = []

    @property
    def allocations(self) -> Allocations:
        """What llama.cpp's log tells of memory, up to the context."""
        return parse_allocations(self._log)

    def note_worker(self, event: protocol.Ready, describe: Callable[[str, str, str], Environment]) -> None:
        """Keep who measures."""
        self.worker_pid = event.pid
        self.environment = describe(event.llama_cpp_python, event.llama_cpp, event.system_info)

    def begin(self, start: RunStart) -> None:
        """Open a run in the store, so that a kill leaves a trace."""
        self.has_begun = True
        try:
            self.run_id = None if self._store is None else self._store.begin(start)
        except StoreError as error:
            self._give_up(error)

    def note(self, event: protocol.Event) -> None:
        """Take in one event of the worker."""
        match event:
            case protocol.Log() if self.n_ctx is None:
                self._log.append(event.text)
            case protocol.ContextMade():
                self.n_ctx, self.n_batch, self.n_ubatch = event.n_ctx, event.n_batch, event.n_ubatch
            case protocol.Prefilled(n_prompt, prefill_ns):
                _add_span(self.prefill_spans, prefill_ns)
                timings = self.prefill_ns.setdefault(n_prompt, [])
                timings.append(prefill_ns)
                number = len(timings) - 1
                self._keep(lambda store, run_id: store.append_prefill(run_id, number, n_prompt, prefill_ns))
            case protocol.Decoded(phase="warmup", first_position=first, step_ns=step_ns, sample_ns=sample_ns):
                self._keep(
                    lambda store, run_id: store.append_samples(run_id, 0, first, step_ns, sample_ns, phase="warmup")
                )
            case protocol.Decoded():
                _add_span(self.decode_spans, sum(event.step_ns) + sum(event.sample_ns))
                self.samples.add(event)
        self.keep_readings()

    def keep_readings(self) -> None:
        """Hand the readings since the last time to the store, once it has a run for them."""
        if self.run_id is not None and (new := self.readings.take_new()):
            self._keep(lambda store, run_id: store.append_readings(run_id, new))

    def finish(self, row: Row) -> Row:
        """End the run in the store with its row; the row then knows its run."""
        self.samples.flush()
        self.keep_readings()
        self._keep(lambda store, run_id: store.finish(run_id, row))
        return row.in_run(self.run_id)

    def _append(self, repeat: int, first_position: int, step_ns: list[int], sample_ns: list[int]) -> None:
        self._keep(lambda store, run_id: store.append_samples(run_id, repeat, first_position, step_ns, sample_ns))

    def _keep(self, write: Callable[[Store, int], object]) -> None:
        if self._store is None or self.run_id is None:
            return
        try:
            write(self._store, self.run_id)
        except UnknownName:  # deleted from another container, which takes the run for dead
            self._store = None
        except StoreError as error:
            self._give_up(error)

    def _give_up(self, error: StoreError) -> None:
        self._store, self.store_error = None, error


def _add_span(spans: list[Span], length_ns: int) -> None:
    """Something of that length has just ended."""
    ended = time.time_ns()
    began = ended - length_ns
    if spans and began - spans[-1][1] < _PAUSE_NS:
        spans[-1] = (spans[-1][0], ended)
    else:
        spans.append((began, ended))
