"""The base of the screens of one run and of several: their samples are loaded and can be saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen

from ggbench.errors import GgbenchError
from ggbench.report.saving import SavedForm, save_runs
from ggbench.tui.screens.save_choice import SaveChoice
from ggbench.tui.stored_runs import MeasuredRun
from ggbench.tui.widgets.status_message import StatusMessage


@dataclass
class _Saved(Message):
    """A thread wrote files, or failed to."""

    paths: tuple[Path, ...] = ()
    error: GgbenchError | None = None


class MeasuredScreen(Screen[None]):
    """Runs with their samples, over the Results screen; esc closes it."""

    AUTO_FOCUS = "DetailsPane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("w", "save", "Save"),
    ]

    def __init__(self, runs: tuple[MeasuredRun, ...]) -> None:
        super().__init__()
        self.runs = runs

    def action_back(self) -> None:
        """Return to the list of runs."""
        self.app.pop_screen()

    def action_save(self) -> None:
        """Ask for the file format."""
        numbers = ", ".join(str(one.run_id) for one in self.runs)
        what = f"run {numbers}" if len(self.runs) == 1 else f"runs {numbers}"
        has_samples = any(one.has_samples for one in self.runs)
        self.app.push_screen(SaveChoice(what, has_samples=has_samples), self._save_as)

    @on(_Saved)
    def show_saved(self, event: _Saved) -> None:
        """Show the paths, or the error."""
        if event.error is not None:
            self.query_one(StatusMessage).show_error(event.error)
        else:
            self.query_one(StatusMessage).show(*(f"Saved {path}" for path in event.paths))

    def _save_as(self, form: SavedForm | None) -> None:
        if form is not None:
            self._save(form)

    @work(thread=True, group="save", exit_on_error=False)
    def _save(self, form: SavedForm) -> None:
        try:
            self.post_message(_Saved(save_runs([one.to_save() for one in self.runs], form, Path.cwd())))
        except GgbenchError as error:
            self.post_message(_Saved(error=error))


class DetailsPane(VerticalScroll, can_focus=True):
    """Scrolls with j and k, like the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
    ]
