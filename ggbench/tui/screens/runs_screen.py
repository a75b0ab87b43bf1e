"""What the screens of stored runs share: errors, and saving to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ggbench.errors import GgbenchError
from ggbench.tui.screens.dialogs import ReportForm, SaveChoice
from ggbench.tui.screens.task_screen import TaskScreen
from ggbench.tui.stored_runs import MeasuredRun
from ggbench.tui.widgets.status_message import StatusMessage


class RunsScreen(TaskScreen):
    """A screen of stored runs with a status message."""

    def ask_to_save(self, what: str, load: Callable[[], Sequence[MeasuredRun]], *, has_figures: bool) -> None:
        """Ask for the format and save what `load`, called in a thread, returns; `what` is named in the question."""

        def save(form: ReportForm | None) -> None:
            if form is not None:
                self.perform(f"save {what}", lambda: [save_as(form)], lambda lines: self.status.show(*lines))

        def save_as(form: ReportForm) -> list[str]:
            from ggbench.show.report_files import save_report

            runs = [one.to_save() for one in load()]
            return [f"Saved {path}" for path in save_report(runs, f".{form}", Path.cwd())]

        self.app.push_screen(SaveChoice(what, has_figures=has_figures), save)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show the error in place of the last message."""
        self.status.show_error(error)

    @property
    def status(self) -> StatusMessage:
        """The outcome of the last key."""
        return self.query_one(StatusMessage)
