"""Asks for the format of a file to save."""

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
    """Ends with the format, or with None if it was closed."""

    AUTO_FOCUS = "OptionList"
    DEFAULT_CSS = """
    SaveChoice {
        #choices { width: 56; max-width: 96%; }
        OptionList, OptionList:focus { height: auto; margin: 1 0; border: none; padding: 0; background: $surface; }
        #where { color: $text-muted; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Close"),
        Binding("c", "choose('csv')", "CSV"),
        Binding("s", "choose('svg')", "SVG"),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
    ]

    def __init__(self, what: str, *, has_samples: bool) -> None:
        """`what` is named in the heading; without samples SVG is not offered."""
        super().__init__()
        self._what, self._has_samples = what, has_samples

    def compose(self) -> ComposeResult:
        """Lay out the heading over the formats."""
        with Vertical(id="choices", classes="dialog"):
            yield Static(f"Save {self._what}", markup=False)
            options = [Option("c  CSV: rows and samples, two files", id="csv")]
            if self._has_samples:
                options.append(Option("s  SVG: the latency curves", id="svg"))
            yield OptionList(*options, markup=False)
            yield Static("saved in the current folder; esc closes", id="where", markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose by enter or a click."""
        self.action_choose("csv" if event.option_id == "csv" else "svg")

    def action_choose(self, form: SavedForm) -> None:
        """Save in this format."""
        if self.is_current and (self._has_samples or form == "csv"):
            self.dismiss(form)

    def action_leave(self) -> None:
        """Close without saving."""
        if self.is_current:
            self.dismiss(None)
