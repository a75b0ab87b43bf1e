"""The queue of runs. A run that fails, crashes or runs out of memory stays as an item with the reason, and the next
starts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from msgspec import field
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.machine.records import MachineReading
from ggbench.models.subject import Subject
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Experiment, Job
from ggbench.runs.progress import Finished, ModelReady, PointMeasured, Progress, SamplesTimed, Stage, Working
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.show.presenter import presenter_of
from ggbench.tui.live_job import LiveJob
from ggbench.tui.work_queue import WorkItem, WorkQueue, WorkState

_MOST_PLOTTED = 4
"""Jobs whose samples are kept for the plot: more curves hide the current one."""
_NOTIFY_EVERY_S = 1.0
"""Minimum time between notices of only more tokens, or of progress in the same work."""

_STATES: dict[Stage, WorkState] = {
    "download": WorkState.DOWNLOADING,
    "write": WorkState.PREPARING,
    "load": WorkState.LOADING,
    "prompt": WorkState.PROMPT,
    "decode": WorkState.DECODING,
    "probe": WorkState.SEARCHING,
    "score": WorkState.SCORING,
}
_ENDINGS = {Outcome.COMPLETED: WorkState.DONE, Outcome.CANCELLED: WorkState.STOPPED}
"""Any other is a failure."""


class QueueItem(WorkItem, frozen=True):
    subject: Subject
    """Details known before the file is read."""
    kind: str
    run: Run | None = None
    run_id: int | None = None
    """None while the run is not stored."""
    setup: EngineConfig = field(default_factory=LlamaConfig)


class RunQueue(WorkQueue[QueueItem]):
    def __init__(
        self,
        open_store: Callable[[], Store],
        run_context: Callable[[Store | None, Experiment], RunContext],
        notify: Callable[[], None],
    ) -> None:
        """The first two are those of `Services`."""
        super().__init__(notify)
        self._open_store, self._run_context = open_store, run_context
        self._jobs: dict[int, Job] = {}
        """Those that have not started."""
        self._cancel = threading.Event()
        """Cancels the running job; each job has its own."""
        self._notified_at = 0.0
        self.live: LiveJob | None = None
        """The running job, or else the last one."""
        self.plotted: tuple[LiveJob, ...] = ()
        """The latest jobs with something to plot, including the current one, which takes the oldest one's place."""
        self.store_error: StoreError | None = None
        """Why the last run is not stored, or only in part; None if it is stored."""
        self.revision = 0
        """Increases with each change."""

    def add(self, jobs: Sequence[Job]) -> None:
        """Append jobs; the first starts at once if none is running."""
        with self._changed:
            for job in jobs:
                item = QueueItem(job.target.subject, job.experiment.kind, setup=job.setup, id=len(self._items))
                self._items[item.id], self._jobs[item.id] = item, job
        self._wake()

    def stop(self, *item_ids: int) -> None:
        """Stop the job if it is running, keeping its measurements, and take those that wait out of the queue."""
        with self._changed:
            for item in (self._items[item_id] for item_id in item_ids):
                if item.state is WorkState.WAITING:
                    self._items[item.id] = replace(item, state=WorkState.STOPPED)
                    del self._jobs[item.id]
                elif item.state.is_at_work:
                    self._cancel.set()
        self._report()

    def _stop_work(self) -> None:
        self._cancel.set()

    def _begin(self, waiting: QueueItem) -> QueueItem:
        self._cancel = threading.Event()
        return replace(waiting, state=WorkState.PREPARING)

    def _work_on(self, item: QueueItem) -> None:
        """Run the job; if the store cannot be opened, it runs without being stored."""
        self.store_error = None
        store: Store | None = None
        with contextlib.ExitStack() as stack:
            try:
                store = stack.enter_context(self._open_store())
            except StoreError as error:
                self.store_error = error
            self._run(item, store)

    def _run(self, item: QueueItem, store: Store | None) -> None:
        job = self._jobs.pop(item.id)  # with the headers of its files, which take several MB
        live = self.live = LiveJob(item.id, settings=job.settings)
        self._report()

        def show_reading(reading: MachineReading) -> None:
            live.reading = reading
            self._report()

        context = replace(
            self._run_context(store, job.experiment), cancel=self._cancel, show_reading=show_reading
        )
        with contextlib.closing(run_job(context, job)) as progress:
            for record in progress:
                self._take(item, live, record)
        if not self._items[item.id].state.is_over:
            self._update(item.id, state=WorkState.STOPPED)

    def _take(self, item: QueueItem, live: LiveJob, record: Progress) -> None:
        live.take(record)
        match record:
            case SamplesTimed():
                self._plot(live)
                self._set_state(item.id, WorkState.DECODING)
            case Working(stage=stage):
                self._set_state(item.id, _STATES[stage])
            case ModelReady(run_id=run_id):
                self._update(item.id, run_id=run_id)
            case PointMeasured(observation=observation):
                if isinstance(observation, presenter_of(item.kind).plotted):
                    self._plot(live)
                self._report()
            case Finished(run=run):
                self.store_error = record.store_error or self.store_error
                state = _ENDINGS.get(run.outcome, WorkState.FAILED)
                run_id = run.run_id or self._items[item.id].run_id
                self._update(item.id, state=state, reason=run.reason, run=run, run_id=run_id)

    def _plot(self, live: LiveJob) -> None:
        if live not in self.plotted:
            place = live.item_id % _MOST_PLOTTED
            self.plotted = (*self.plotted[:place], live, *self.plotted[place + 1 :])

    def _set_state(self, item_id: int, state: WorkState) -> None:
        """Report a new state at once, and progress in the same state at most once a second."""
        if self._items[item_id].state is not state:
            self._update(item_id, state=state)
        elif time.monotonic() - self._notified_at >= _NOTIFY_EVERY_S:
            self._report()

    def _report(self) -> None:
        self.revision += 1
        self._notified_at = time.monotonic()
        super()._report()
