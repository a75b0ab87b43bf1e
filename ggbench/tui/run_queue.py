"""The jobs a person asked for, one after another in a thread of their own, whatever screen is in front.

Knows nothing of Textual: it says that something changed, and whoever draws looks. A job that fails, crashes or runs out
of memory is an item with its reason, and the next one starts.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ggbench.catalog.selector import Target
from ggbench.errors import GgbenchError, StoreError
from ggbench.experiments.bench import BenchProgress
from ggbench.experiments.maxctx import MaxctxSettings, run_maxctx
from ggbench.experiments.progress import (
    FilePrepared,
    ModelLoading,
    ModelReady,
    PromptRead,
    TokensDecoded,
    TrialFinished,
)
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import FarEndFilling, ProbeFinished, ProbeStarted, SearchFinished
from ggbench.experiments.settings import TrialSettings
from ggbench.experiments.trial import run_trials
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
from ggbench.records.setup import LlamaSetup
from ggbench.store.database import Store
from ggbench.tui.live_trial import LiveTrial

if TYPE_CHECKING:
    from ggbench.tui.services import Services

JobKind = Literal["bench", "maxctx"]

_TELL_EVERY_S = 1.0
"""Between two notices that only tell of more tokens."""
_SHUTDOWN_TIMEOUT_S = 10.0


class JobState(enum.StrEnum):
    """Where a job is; the last four are its end."""

    WAITING = "waiting"
    PREPARING = "preparing"
    LOADING = "loading"
    PROMPT = "prompt"
    DECODING = "decoding"
    SEARCHING = "searching"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self in (JobState.DONE, JobState.FAILED) or self.is_left

    @property
    def is_left(self) -> bool:
        """Whether a person ended it."""
        return self in (JobState.SKIPPED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class QueueItem:
    """One quant to measure or to search, as it is now."""

    id: int
    model: str
    quant: str
    kind: JobKind
    state: JobState = JobState.WAITING
    reason: str = ""
    """Why it failed or was left, in one line; not yet plain."""
    row: Row | None = None
    certificate: Certificate | None = None
    run_id: int | None = None
    """Of the store; None before the run is in it, and where it is not kept."""


class RunQueue:
    """Takes jobs and works them off. Its methods may be called from any thread; all but `close` return at once."""

    def __init__(self, services: Services, notify: Callable[[], None]) -> None:
        """`notify` is called, from the queue's thread or the caller's, when something changed."""
        self._services, self._notify = services, notify
        self._changed = threading.Condition()
        self._items: dict[int, QueueItem] = {}
        self._jobs: dict[int, tuple[Target, LlamaSetup, int]] = {}
        self._thread: threading.Thread | None = None
        self._cancel = threading.Event()
        """Of the running job; a new one for each."""
        self._left_as = JobState.CANCELLED
        """What the running job is once a person has ended it."""
        self._rig: Rig | None = None
        self._is_paused = self._is_closed = False
        self._told_at = 0.0
        self.live: LiveTrial | None = None
        """The running job, or the last that ran."""
        self.trials: tuple[LiveTrial, ...] = ()
        """Every job that decoded anything, in the order they ran, the running one included."""
        self.store_error: StoreError | None = None
        """Why the last run is not kept, or not whole; None when it is."""
        self.revision = 0
        """Grows with each change."""

    @property
    def items(self) -> tuple[QueueItem, ...]:
        """Every job that was ever asked for, in order."""
        with self._changed:
            return tuple(self._items.values())

    @property
    def running(self) -> QueueItem | None:
        """The job that is at work, or held."""
        waiting = JobState.WAITING
        return next((item for item in self.items if item.state is not waiting and not item.state.is_over), None)

    @property
    def is_busy(self) -> bool:
        """Whether any job runs or waits."""
        return any(not item.state.is_over for item in self.items)

    @property
    def is_paused(self) -> bool:
        """Whether decoding is held, and no job starts."""
        return self._is_paused

    def add(
        self, targets: Sequence[Target], kind: JobKind, config: LlamaSetup | None = None, n_gen: int = 10_000
    ) -> None:
        """Put one job for each target at the end; the first starts at once where none runs."""
        with self._changed:
            for target in targets:
                item = QueueItem(len(self._items), target.model, target.quant, kind)
                self._items[item.id] = item
                self._jobs[item.id] = (target, config or LlamaSetup(), n_gen)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._work, name="run-queue", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._tell()

    def pause(self) -> None:
        """Hold the decode between two of its steps, and start no other job."""
        with self._changed:
            self._is_paused = True
            if self._rig is not None:
                self._rig.hold.set()
        self._tell()

    def resume(self) -> None:
        """Go on after a pause."""
        with self._changed:
            self._is_paused = False
            if self._rig is not None:
                self._rig.hold.clear()
            self._changed.notify_all()
        self._tell()

    def skip(self) -> None:
        """End the running job, keeping what it has; the next one starts."""
        self._leave(JobState.SKIPPED)

    def cancel(self) -> None:
        """End the running job as `skip` does, and leave those that wait."""
        with self._changed:
            for item in self._items.values():
                if item.state is JobState.WAITING:
                    self._items[item.id] = replace(item, state=JobState.CANCELLED, reason="cancelled before it started")
        self._leave(JobState.CANCELLED)
        self._tell()

    def close(self) -> None:
        """End everything and wait until the worker is gone; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._cancel.set()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_SHUTDOWN_TIMEOUT_S)

    def _leave(self, state: JobState) -> None:
        with self._changed:
            if self.running is not None:
                self._left_as = state
                self._cancel.set()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            with contextlib.ExitStack() as stack:
                try:
                    store = self._open_store(stack)
                    self._run(item, store)
                except GgbenchError as error:
                    self._update(item.id, state=JobState.FAILED, reason=error.message)
                except Exception as error:  # a fault of ours must not end the queue, nor hide
                    self._update(item.id, state=JobState.FAILED, reason=f"unexpected: {error!r}")
                finally:
                    self._rig = None

    def _next(self) -> QueueItem | None:
        """The next job, once there is one; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                waiting = next((item for item in self._items.values() if item.state is JobState.WAITING), None)
                if waiting is not None and not self._is_paused:
                    self._cancel, self._left_as = threading.Event(), JobState.CANCELLED
                    self._items[waiting.id] = waiting = replace(waiting, state=JobState.PREPARING)
                    return waiting
                self._changed.wait()
        return None

    def _open_store(self, stack: contextlib.ExitStack) -> Store | None:
        """The store, which belongs to the thread that opened it; without one the run goes on and is not kept."""
        try:
            store = stack.enter_context(self._services.open_store())
        except StoreError as error:
            self.store_error = error
            return None
        self.store_error = None
        return store

    def _run(self, item: QueueItem, store: Store | None) -> None:
        target = self._jobs[item.id][0]
        live = self.live = LiveTrial(item.id, item.model, item.quant, is_twin=target.provenance == "twin")
        self._tell()
        rig = replace(self._services.make_rig(store), cancel=self._cancel)
        with self._changed:
            self._rig = rig
            if self._is_paused:
                rig.hold.set()
        with contextlib.closing(self._progress(rig, item)) as progress:
            for record in progress:
                self._take(item, live, record)
        if not self._items[item.id].state.is_over:
            self._update(item.id, state=self._left_as, reason="stopped before it started")

    def _progress(self, rig: Rig, item: QueueItem) -> Generator[BenchProgress]:
        target, config, n_gen = self._jobs[item.id]
        if item.kind == "maxctx":
            yield from run_maxctx(rig, (target,), MaxctxSettings(config))
        else:
            yield from run_trials(rig, (target,), TrialSettings("bench", config, n_gen=n_gen))

    def _take(self, item: QueueItem, live: LiveTrial, record: BenchProgress) -> None:
        match record:
            case TokensDecoded():
                if not live.n_total:
                    live.n_total = record.n_total
                    self.trials = (*self.trials, live)
                    self._update(item.id, state=JobState.DECODING)
                live.append(record.first_position, record.step_ns, record.text)
                self._tell_of_tokens()
            case FilePrepared():
                live.preparing = record
                self._tell_of_tokens()
            case ModelLoading():
                live.load_share = record.share
                self._update(item.id, state=JobState.SEARCHING if live.probes else JobState.LOADING)
            case ModelReady():
                live.n_ctx, live.buffers, live.limit = record.n_ctx, record.buffers, record.limit
                self._update(item.id, state=JobState.PROMPT, run_id=record.run_id)
            case PromptRead():
                live.prompt = record.n_prompt, record.prefill_ns
                self._tell()
            case ProbeStarted():
                live.ask(record)
                self._update(item.id, state=JobState.SEARCHING)
            case FarEndFilling():
                live.fill_share = record.share
                self._tell_of_tokens()
            case ProbeFinished():
                live.asking, live.probes = None, (*live.probes, record.probe)
                self._update(item.id, state=JobState.SEARCHING)
            case TrialFinished(row=row):
                self.store_error = record.store_error or self.store_error
                state = self._state_after(row.outcome)
                self._update(item.id, state=state, reason=row.reason, row=row, run_id=row.run_id)
            case SearchFinished(certificate=found):
                live.asking = None
                self.store_error = record.store_error or self.store_error
                state = self._state_after(found.outcome)
                self._update(item.id, state=state, reason=found.reason, certificate=found, run_id=found.run_id)

    def _update(
        self,
        item_id: int,
        *,
        state: JobState,
        reason: str = "",
        row: Row | None = None,
        certificate: Certificate | None = None,
        run_id: int | None = None,
    ) -> None:
        with self._changed:
            item = self._items[item_id]
            self._items[item_id] = replace(
                item, state=state, reason=reason, row=row, certificate=certificate, run_id=run_id or item.run_id
            )
        self._tell()

    def _tell_of_tokens(self) -> None:
        if time.monotonic() - self._told_at >= _TELL_EVERY_S:
            self._tell()

    def _tell(self) -> None:
        self.revision += 1
        self._told_at = time.monotonic()
        self._notify()

    def _state_after(self, outcome: Outcome) -> JobState:
        if outcome is Outcome.COMPLETED:
            return JobState.DONE
        return self._left_as if outcome is Outcome.CANCELLED else JobState.FAILED
