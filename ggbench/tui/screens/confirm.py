"""Asks for confirmation before something irreversible or expensive."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Label

from ggbench.tui.screens.dialog import Dialog


class ConfirmScreen(Dialog[bool]):
    """Ends with True for yes; escape means no."""

    DEFAULT_CSS = """
    ConfirmScreen Label { width: 1fr; margin-bottom: 1; }
    ConfirmScreen Horizontal { height: auto; }
    ConfirmScreen Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
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
    def answer_with_button(self, event: Button.Pressed) -> None:
        """Answer by a click or enter on a button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Close with the answer."""
        self.dismiss(answer)
