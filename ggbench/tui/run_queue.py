"""The queue of jobs, done one after another in a thread of their own, whatever screen is in front.

Knows nothing of Textual: it reports that something changed, and whoever draws looks. A job that fails, crashes or runs
out of memory is an item with its reason, and the next one starts.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import field
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, StoreError
from ggbench.models.subject import Subject
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished, ModelReady, Point, Progress, Samples, Stage, Working
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.show.presenter import presenter_of
from ggbench.tui.live_job import LiveJob

if TYPE_CHECKING:
    from ggbench.tui.services import Services


_NOTIFY_EVERY_S = 1.0
"""Between two notices of nothing but more tokens, or of more of the same work."""
_SHUTDOWN_TIMEOUT_S = 10.0


class JobState(enum.StrEnum):
    """Where a job is; the last four are its end."""

    WAITING = "waiting"
    PREPARING = "preparing"
    LOADING = "loading"
    PROMPT = "prompt"
    DECODING = "decoding"
    SEARCHING = "searching"
    SCORING = "scoring"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self in (JobState.DONE, JobState.FAILED) or self.is_left

    @property
    def is_at_work(self) -> bool:
        """Whether the job runs, or is held while it does."""
        return self is not JobState.WAITING and not self.is_over

    @property
    def is_left(self) -> bool:
        """Whether the user ended it."""
        return self in (JobState.SKIPPED, JobState.CANCELLED)


_STATES: dict[Stage, JobState] = {
    "download": JobState.PREPARING,
    "write": JobState.PREPARING,
    "load": JobState.LOADING,
    "prompt": JobState.PROMPT,
    "decode": JobState.DECODING,
    "probe": JobState.SEARCHING,
    "score": JobState.SCORING,
}


class QueueItem(msgspec.Struct, frozen=True):
    """One job as it is now."""

    id: int
    subject: Subject
    """As far as is known before its file is read."""
    kind: str
    """Of its experiment; its presenter says how to show it."""
    state: JobState = JobState.WAITING
    reason: str = ""
    """Why it failed or was left, in one line; not yet plain."""
    run: Run | None = None
    """None until it has ended."""
    run_id: int | None = None
    """Of the store; None before the run is in it, and where it is not kept."""
    setup: EngineConfig = field(default_factory=LlamaConfig)


class RunQueue:
    """Takes jobs and does them. Its methods may be called from any thread; all but `close` return at once."""

    def __init__(self, services: Services, notify: Callable[[], None]) -> None:
        """`notify` is called, from the queue's thread or the caller's, when something changed."""
        self._services, self._notify = services, notify
        self._changed = threading.Condition()
        self._items: dict[int, QueueItem] = {}
        self._jobs: dict[int, Job] = {}
        self._thread: threading.Thread | None = None
        self._cancel = threading.Event()
        """Of the running job; a new one for each."""
        self._left_as = JobState.CANCELLED
        """What the running job is once the user has ended it."""
        self._context: RunContext | None = None
        self._is_paused = self._is_closed = False
        self._notified_at = 0.0
        self.live: LiveJob | None = None
        """The running job, or the last that ran."""
        self.plotted: tuple[LiveJob, ...] = ()
        """Every job that has something to plot, in the order in which they ran, the running one included."""
        self.store_error: StoreError | None = None
        """Why the last run is not kept, or not whole; None when it is."""
        self.revision = 0
        """Grows with each change."""

    @property
    def items(self) -> tuple[QueueItem, ...]:
        """Every job that was ever added, in order."""
        with self._changed:
            return tuple(self._items.values())

    @property
    def running(self) -> QueueItem | None:
        """The job that is at work, or held."""
        return next((item for item in self.items if item.state.is_at_work), None)

    @property
    def is_busy(self) -> bool:
        """Whether any job runs or waits."""
        return any(not item.state.is_over for item in self.items)

    @property
    def is_paused(self) -> bool:
        """Whether decoding is held, and no job starts."""
        return self._is_paused

    def add(self, jobs: Sequence[Job]) -> None:
        """Put jobs at the end; the first starts at once where none runs."""
        with self._changed:
            for job in jobs:
                item = QueueItem(len(self._items), job.target.subject, job.experiment.kind, setup=job.setup)
                self._items[item.id] = item
                self._jobs[item.id] = job
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._work, name="run-queue", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._report()

    def pause(self) -> None:
        """Hold the decode between two of its steps, and start no other job."""
        self._set_paused(True)

    def resume(self) -> None:
        """Go on after a pause."""
        self._set_paused(False)

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
        self._report()

    def close(self) -> None:
        """End everything and wait until the worker is gone; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._cancel.set()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_SHUTDOWN_TIMEOUT_S)

    def _set_paused(self, is_paused: bool) -> None:
        with self._changed:
            self._is_paused = is_paused
            if self._context is not None:
                (self._context.hold.set if is_paused else self._context.hold.clear)()
            self._changed.notify_all()
        self._report()

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
                    self._update(item.id, JobState.FAILED, error.message)
                except Exception as error:  # a bug must neither end the queue nor hide
                    self._update(item.id, JobState.FAILED, f"unexpected: {error!r}")
                finally:
                    self._context = None

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
        job = self._jobs[item.id]
        live = self.live = LiveJob(item.id, is_twin=job.target.provenance == "twin", settings=job.settings)
        self._report()
        context = replace(self._services.run_context(store, job.experiment), cancel=self._cancel)
        with self._changed:
            self._context = context
            if self._is_paused:
                context.hold.set()
        with contextlib.closing(run_job(context, job)) as progress:
            for record in progress:
                self._take(item, live, record)
        if not self._items[item.id].state.is_over:
            self._update(item.id, self._left_as, "stopped before it started")

    def _take(self, item: QueueItem, live: LiveJob, record: Progress) -> None:
        live.take(record)
        match record:
            case Samples():
                self._plot(live)
                self._set_state(item.id, JobState.DECODING)
            case Working(stage=stage):
                self._set_state(item.id, JobState.SEARCHING if live.question else _STATES[stage])
            case ModelReady(run_id=run_id):
                is_search = self._items[item.id].state is JobState.SEARCHING
                self._update(item.id, JobState.SEARCHING if is_search else JobState.PROMPT, run_id=run_id)
            case Point(observation=observation):
                if isinstance(observation, presenter_of(item.kind).plotted):
                    self._plot(live)
                self._report()
            case Finished(run=run):
                self.store_error = record.store_error or self.store_error
                self._update(item.id, self._state_after(run.outcome), run.reason, run, run.run_id)

    def _plot(self, live: LiveJob) -> None:
        if live not in self.plotted:
            self.plotted = (*self.plotted, live)

    def _set_state(self, item_id: int, state: JobState) -> None:
        """Report a new state at once, and more of the same once in a while."""
        if self._items[item_id].state is not state:
            self._update(item_id, state)
        elif time.monotonic() - self._notified_at >= _NOTIFY_EVERY_S:
            self._report()

    def _update(
        self, item_id: int, state: JobState, reason: str = "", run: Run | None = None, run_id: int | None = None
    ) -> None:
        with self._changed:
            item = self._items[item_id]
            self._items[item_id] = replace(item, state=state, reason=reason, run=run, run_id=run_id or item.run_id)
        self._report()

    def _report(self) -> None:
        self.revision += 1
        self._notified_at = time.monotonic()
        self._notify()

    def _state_after(self, outcome: Outcome) -> JobState:
        if outcome is Outcome.COMPLETED:
            return JobState.DONE
        return self._left_as if outcome is Outcome.CANCELLED else JobState.FAILED
