"""The base of screens that keep answering keys: whatever may take a while is done in a thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual.screen import Screen
from textual.worker import Worker, get_current_worker

from ggbench.errors import GgbenchError
from ggbench.tui.screens.dialogs import ReportForm, SaveChoice
from ggbench.tui.widgets.bars import StatusMessage

if TYPE_CHECKING:
    from ggbench.tui.stored_runs import MeasuredRun

Result = TypeVar("Result")


class TaskScreen(Screen[None]):
    """Does tasks by name: a newer one replaces the older of the same name, whose further results are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[str, Worker[None]] = {}
        self.problems: dict[str, GgbenchError] = {}
        """Why the latest task of a name failed."""

    def perform(self, task: str, work: Callable[[], Iterable[Result]], show: Callable[[Result], object]) -> None:
        """Call `work` in a thread; pass each of its results to `show`, or its error to `show_failure`."""

        def in_thread() -> None:
            worker = get_current_worker()
            answer = partial(self.call_later, self._answer, task, worker)
            fail = partial(self.fail, task)
            try:
                for result in work():
                    if worker.is_cancelled:
                        return
                    answer(show, result)
            except GgbenchError as error:
                answer(fail, error)
            except Exception as error:  # a bug must not end the app, as runs may be in progress
                unexpected = GgbenchError(f"unexpected {type(error).__name__}: {error}", "please report it")
                answer(fail, unexpected)

        self.problems.pop(task, None)
        self._latest[task] = self.run_worker(in_thread, thread=True, exclusive=True, group=task)

    def drop(self, task: str) -> None:
        """Stop a task after its current result, and drop its results and its problem."""
        self.problems.pop(task, None)
        if (worker := self._latest.pop(task, None)) is not None:
            worker.cancel()

    def fail(self, task: str, error: GgbenchError) -> None:
        """Keep why a task failed, and show it."""
        self.problems[task] = error
        self.show_failure(task, error)

    @abstractmethod
    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show why a task failed."""

    def _answer(self, task: str, worker: Worker[Any], show: Callable[[Any], object], result: object) -> None:
        if self._latest.get(task) is worker:
            show(result)


class RunsScreen(TaskScreen):
    """A screen of stored runs with a status message."""

    def ask_to_save(self, what: str, load: Callable[[], Sequence[MeasuredRun]], *, has_figures: bool) -> None:
        """Ask for the format and save what `load`, called in a thread, returns; `what` is named in the question."""

        def ask(form: ReportForm | None) -> None:
            if form is not None:
                self.perform(f"save {what}", lambda: save(form), lambda lines: self.status.show(*lines))

        def save(form: ReportForm) -> Iterator[list[str]]:
            from ggbench.formats.report import save_report

            runs = [one.to_save() for one in load()]
            yield [f"Saved {path}" for path in save_report(runs, f".{form}", Path.cwd())]

        self.app.push_screen(SaveChoice(what, has_figures=has_figures), ask)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show the error in place of the last message."""
        self.status.show_error(error)

    @property
    def status(self) -> StatusMessage:
        """The outcome of the last key."""
        return self.query_one(StatusMessage)
