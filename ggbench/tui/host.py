"""The interface that screens use instead of importing the app; and the base class of screens that wait for tasks."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

import msgspec
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.worker import Worker, get_current_worker

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.hub.access import HubAccess
from ggbench.models.added_places import added_models
from ggbench.models.catalog import Catalog, load_catalog
from ggbench.models.disk import LocalModel, find_local_models

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from ggbench.commands.budget_options import BudgetOptions
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment
    from ggbench.runs.session import RunContext
    from ggbench.runs.store.database import Store
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import LibraryPlanner
    from ggbench.tui.run_queue import RunQueue
    from ggbench.tui.work_queue import PullQueue


Result = TypeVar("Result")


def _make_planner(services: Services) -> LibraryPlanner:
    from ggbench.tui.planner import LibraryPlanner

    return LibraryPlanner(services.hub)


def _open_store() -> Store:
    from ggbench.runs.store.database import Store

    return Store.open()


def _run_context(store: Store | None, experiment: Experiment) -> RunContext:
    from ggbench.runs.session import run_context

    return run_context(store, timeout_s=experiment.timeout_s, needs_bandwidth=experiment.measures_speed)


def machine_budgets(memory: BudgetOptions, setup: LlamaConfig) -> Iterator[Budget]:
    quick: Budget | None = None
    for measures in (False, True):
        budget = memory.budget(setup, measures=measures)
        if quick is None or budget.bandwidth != quick.bandwidth:
            yield budget
        quick = budget


class Services(msgspec.Struct, frozen=True):
    """Functions that tests replace with fakes. Each may be slow or raise GgbenchError, so call them in threads."""

    hub: HubAccess
    open_store: Callable[[], Store] = _open_store
    """Open the results for the calling thread. Raises StoreError for a newer version, or a locked file."""
    run_context: Callable[[Store | None, Experiment], RunContext] = _run_context
    load_catalog: Callable[[], Catalog] = load_catalog
    local_models: Callable[[], Sequence[LocalModel]] = lambda: (*added_models(), *find_local_models())
    """List the models in places added by the user, then those in every program's store."""
    make_planner: Callable[[Services], LibraryPlanner] = _make_planner
    machine_budgets: Callable[[BudgetOptions, LlamaConfig], Iterable[Budget]] = machine_budgets
    """Yield the memory budget for a model loaded with this setup, with the known bandwidth, and again if measuring it,
    which takes a second or two, gave another value."""

    def resolve(
        self, model: str, quants: Sequence[str] = (), catalog: Catalog | None = None
    ) -> tuple[Target, ...]:
        """Return the targets that MODEL and QUANTS select, using this Hub access."""
        from ggbench.models.reference import parse_model
        from ggbench.models.targets import resolve

        return resolve(parse_model(model, *quants), hub=self.hub, catalog=catalog)

    def find_file_or_twin(self, model: str, quant: str, catalog: Catalog | None = None) -> Target:
        from ggbench.models.reference import parse_model
        from ggbench.models.targets import find_file_or_twin

        return find_file_or_twin(parse_model(model, quant), self.hub, catalog)


class Host(Protocol):
    """The app's interface for screens and widgets."""

    services: Services
    setup: LlamaConfig
    machine_text: str
    """The machine to plan for in a few words, printable; empty until it is known."""
    opens: Path | str | None
    """The model to open first: a folder, a file, or MODEL as the commands accept it."""
    opens_quant: str | None
    """The quant or file at which to open it; None once it is open."""
    run_queue: RunQueue
    pull_queue: PullQueue


def host_of(node: DOMNode) -> Host:
    """Return the app of a screen or a widget."""
    return cast("Host", node.app)


def runs_of(node: DOMNode) -> RunQueue | None:
    """Return the queue of runs; None before the first run, as reading the attribute would create it."""
    return vars(node.app).get("run_queue")


class _Coalesced(Message, bubble=False):
    """A newer notice replaces an unread older one: the reader looks at the whole queue."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


class QueueChanged(_Coalesced, bubble=False):
    """The run queue changed."""


class PullsChanged(_Coalesced, bubble=False):
    """The download queue changed."""


class RunStored(Message, bubble=False):
    """A run was added to the store, or another process may have changed it."""


class RunsOpened(Message, bubble=False):
    """Stored runs are to be shown on the Results screen."""

    def __init__(self, run_ids: Sequence[int]) -> None:
        super().__init__()
        self.run_ids = run_ids


class ModelsChanged(Message, bubble=False):
    """The models on this disk changed: a twin was written or a download finished."""


class PlotScreen(Screen[None]):
    """Passes the keys of a plot on to it, whatever has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "plot('show_next')", "Next plot", tooltip="Draw the next figure, such as KLD after PPL"),
        Binding("+", "plot('zoom(0.5)')", "Zoom in", tooltip="Zoom the plot, a running one at its newest"),
        Binding("-", "plot('zoom(2)')", "Zoom out", tooltip="Zoom the plot, a running one at its newest"),
        Binding("0", "plot('show_all')", "Show all", tooltip="Show the whole plot"),
        Binding("left", "plot('pan(-0.05)')", "Pan left"),
        Binding("right", "plot('pan(0.05)')", "Pan right"),
    ]

    async def action_plot(self, action: str) -> None:
        for plot in self.query("CurvesPlot"):
            await plot.run_action(action)


class TaskScreen(Screen[None]):
    """Runs slow tasks in threads, by name: a newer one replaces the older, whose further results are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[str, Worker[None]] = {}
        self.problems: dict[str, GgbenchError] = {}
        """Why the latest task of each name failed."""

    def perform(
        self, task: str, work: Callable[[], Iterable[Result]], show: Callable[[Result], object]
    ) -> None:
        """Call `work` in a thread; pass each of its results to `show`, or its error to `show_failure`."""

        def answer(worker: Worker[None], take: Callable[[Any], object], result: object) -> None:
            if self._latest.get(task) is worker:
                take(result)

        def in_thread() -> None:
            if get_current_worker().is_cancelled:  # before it began
                return
            worker, fail = get_current_worker(), functools.partial(self.fail, task)
            try:
                for result in work():
                    if worker.is_cancelled:
                        return
                    self.call_later(answer, worker, show, result)
            except GgbenchError as error:
                self.call_later(answer, worker, fail, error)
            except Exception as error:  # a bug must not stop the app, as runs may be in progress
                unexpected = GgbenchError(f"unexpected {type(error).__name__}: {error}", "please report it")
                self.call_later(answer, worker, fail, unexpected)

        self.forget(task)
        self._latest[task] = self.run_worker(in_thread, thread=True, exclusive=True, group=task)

    def drop(self, task: str) -> None:
        """Stop a task after its current result; drop its results and its error."""
        self.problems.pop(task, None)
        if (worker := self._latest.pop(task, None)) is not None:
            worker.cancel()

    def forget(self, *tasks: str) -> None:
        """Drop the errors of these tasks."""
        known = self.problems.keys() & tasks
        for task in known:
            del self.problems[task]
        if known:
            self.show_problems()

    def fail(self, task: str, error: GgbenchError) -> None:
        self.problems[task] = error
        self.show_failure(task, error)

    @abstractmethod
    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show why a task failed."""

    def show_problems(self) -> None:
        """Show the errors that are left after some were dropped."""
