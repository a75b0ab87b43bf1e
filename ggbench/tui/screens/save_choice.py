"""Asks what to save."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ggbench.report.saving import SavedForm
from ggbench.tui.screens.dialog import Dialog


class SaveChoice(Dialog[SavedForm | None]):
    """The form to save in; None where a person thinks better of it."""

    AUTO_FOCUS = "OptionList"
    DEFAULT_CSS = """
    SaveChoice {
        #choices { width: 56; max-width: 96%; }
        OptionList, OptionList:focus { height: auto; margin: 1 0; border: none; padding: 0; background: $surface; }
        #where { color: $text-muted; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Leave"),
        Binding("c", "choose('csv')", "CSV"),
        Binding("s", "choose('svg')", "SVG"),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
    ]

    def __init__(self, what: str, *, has_samples: bool) -> None:
        """`what` is named in the heading; without samples there are no curves to save."""
        super().__init__()
        self._what, self._has_samples = what, has_samples

    def compose(self) -> ComposeResult:
        """A question with its answers."""
        with Vertical(id="choices", classes="dialog"):
            yield Static(f"Save {self._what}", markup=False)
            options = [Option("c  rows and samples, as two CSV files", id="csv")]
            if self._has_samples:
                options.append(Option("s  the curves, as an SVG picture", id="svg"))
            yield OptionList(*options, markup=False)
            yield Static("in the folder that ggbench was started in; esc leaves", id="where", markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter, or a click."""
        self.action_choose("csv" if event.option_id == "csv" else "svg")

    def action_choose(self, form: SavedForm) -> None:
        """Save in this form."""
        if self.is_current and (self._has_samples or form == "csv"):
            self.dismiss(form)

    def action_leave(self) -> None:
        """Save nothing."""
        if self.is_current:
            self.dismiss(None)
