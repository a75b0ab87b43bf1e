"""Dialogs over a screen that end with an answer.

A key pressed twice quickly may arrive again after the answer. Textual would then dismiss the screen below, or end the
app if there is none.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Literal, TypeAlias, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label, OptionList, Static
from textual.widgets.option_list import Option

ReportForm: TypeAlias = Literal["html", "csv", "svg"]
_FORMS: tuple[ReportForm, ...] = ("html", "csv", "svg")
Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """Accepts one answer and ignores later ones."""

    AUTO_FOCUS = "*"

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        """Set once its first widget has the focus."""

    def on_mount(self) -> None:
        """Let the app go on with the keys that were typed meanwhile."""
        self.opened.set()

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with this answer unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()


class Palette(CommandPalette):
    """Textual's list of commands or themes, closed once."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()


class ConfirmScreen(Dialog[bool]):
    """Ends with True for yes; escape means no."""

    DEFAULT_CSS = """
    ConfirmScreen Label { width: 1fr; margin-bottom: 1; }
    ConfirmScreen Horizontal { height: auto; }
    ConfirmScreen Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
        Binding("left,h,right,l", "app.focus_next", "Other answer", show=False),
    ]

    def __init__(self, question: str, yes_label: str = "Yes") -> None:
        """`question` is shown without markup; pass untrusted text in it through `plain`."""
        super().__init__()
        self._question, self._yes_label = question, yes_label

    def compose(self) -> ComposeResult:
        """Lay out the question over its two answers."""
        with Vertical(classes="dialog"):
            yield Label(self._question, markup=False)
            with Horizontal():
                yield Button(f"{self._yes_label} (y)", id="yes", variant="primary", compact=True)
                yield Button("No (n, esc)", id="no", compact=True)

    @on(Button.Pressed)
    def _answer_with_button(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class SaveChoice(Dialog["ReportForm | None"]):
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
        Binding("escape,q", "dismiss", "Close"),
        Binding("c", "choose('csv')", "CSV"),
        Binding("s", "choose('svg')", "SVG"),
        Binding("h", "choose('html')", "HTML"),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
    ]

    def __init__(self, what: str, *, has_figures: bool) -> None:
        """`what` is named in the heading; without figures SVG is not offered."""
        super().__init__()
        self._what, self._has_figures = what, has_figures

    def compose(self) -> ComposeResult:
        """Lay out the heading over the formats."""
        with Vertical(id="choices", classes="dialog"):
            yield Static(f"Save {self._what}", markup=False)
            options = [
                Option("h  HTML: a report, one file", id="html"),
                Option("c  CSV: rows and samples, two files", id="csv"),
            ]
            if self._has_figures:
                options.append(Option("s  SVG: the charts, a file each", id="svg"))
            yield OptionList(*options, markup=False)
            yield Static("saved in the current folder; esc closes", id="where", markup=False)

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.action_choose(_FORMS[event.option_index])

    def action_choose(self, form: ReportForm) -> None:
        """Save in this format."""
        if self._has_figures or form != "svg":
            self.dismiss(form)
