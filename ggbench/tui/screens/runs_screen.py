"""What the screens of stored runs share: answers of threads, errors, and saving to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from textual import on, work
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from ggbench.errors import GgbenchError
from ggbench.report.saving import SavedForm, save_runs
from ggbench.tui.screens.dialogs import SaveChoice
from ggbench.tui.stored_runs import MeasuredRun
from ggbench.tui.widgets.status_message import StatusMessage


class RunsScreen(Screen[None]):
    """A screen of stored runs with a status message."""

    def ask_to_save(self, what: str, load: Callable[[], Sequence[MeasuredRun]], *, has_samples: bool) -> None:
        """Ask for the format and save what `load`, called in a thread, returns; `what` is named in the question."""

        def save(form: SavedForm | None) -> None:
            if form is not None:
                self._save(load, form)

        self.app.push_screen(SaveChoice(what, has_samples=has_samples), save)

    def show_failure(self, error: GgbenchError) -> None:
        """Show the error of the last key."""
        self._status.show_error(error)

    def answer(self, show: Callable[..., None], *results: object) -> None:
        """Pass results from a thread to the screen, unless a newer worker has replaced this one."""
        if not get_current_worker().is_cancelled:
            self.call_later(show, *results)

    @contextmanager
    def reporting(self, show: Callable[[GgbenchError], None]) -> Iterator[None]:
        """Pass an error from a thread to the screen."""
        try:
            yield
        except GgbenchError as error:
            self.answer(show, error)

    @property
    def _status(self) -> StatusMessage:
        return self.query_one(StatusMessage)

    @work(thread=True, group="save", exit_on_error=False)
    def _save(self, load: Callable[[], Sequence[MeasuredRun]], form: SavedForm) -> None:
        with self.reporting(self.show_failure):
            paths = save_runs([one.to_save() for one in load()], form, Path.cwd())
            self.answer(self._status.show, *(f"Saved {path}" for path in paths))

    @on(Worker.StateChanged)
    def _show_unexpected_error(self, event: Worker.StateChanged) -> None:
        """Report a bug without ending the app, as runs may be in progress."""
        if event.state is WorkerState.ERROR:
            message = f"a bug in ggbench: {event.worker.error!r}"
            self._status.show_error(GgbenchError(message, "please report it, with the steps before it"))
