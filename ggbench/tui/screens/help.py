"""The help screen: every key of the screen below it, and a glossary."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Static

from ggbench.report.glossary import FORMULA, terms
from ggbench.tui.screens.dialogs import Dialog

_TWIN = (
    "twin",
    "A file written here with a model's exact shape and random weights: same size and speed, meaningless text.",
)


class HelpScreen(Dialog[None]):
    """Closed by esc, q, ? or enter."""

    DEFAULT_CSS = "HelpScreen .dialog Static { width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "Close"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, about: Screen[Any]) -> None:
        """`about` is the screen to describe; its HELP is shown above its keys."""
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        """Lay out the screen's HELP, its keys and the glossary."""
        with VerticalScroll(classes="dialog") as sheet:
            sheet.border_subtitle = "esc closes"
            about = getattr(self._about, "HELP", "")
            if about:
                yield Static(f"{about}\n", markup=False)
            yield Static(self._keys())
            yield Static(f"\n{FORMULA}", markup=False)
            yield Static(_glossary())

    def action_scroll(self, direction: str) -> None:
        """Scroll by one line."""
        sheet = self.query_one(VerticalScroll)
        sheet.scroll_relative(y=1 if direction == "down" else -1, animate=False)

    def _keys(self) -> Table:
        """List each action once, with all of its keys."""
        keys: dict[str, list[str]] = {"Move": ["↑ ↓ j k"], "Next pane": ["tab"]}
        for active in self._about.active_bindings.values():
            binding = active.binding
            if binding.description and (binding.key, binding.action) not in _textual_bindings(type(active.node)):
                what = binding.tooltip or binding.description
                keys.setdefault(what, []).append(self.app.get_key_display(binding))
        table = Table.grid(padding=(0, 2))
        for description, names in keys.items():
            table.add_row(Text(" ".join(dict.fromkeys(names)), style="bold"), Text(description))
        return table


def _glossary() -> Table:
    """The numbers and marks of every table."""
    table = Table.grid(padding=(0, 2))
    for name, text in (*terms(), _TWIN):
        table.add_row(Text(name, style="bold"), Text(text))
    return table


def _textual_bindings(kind: type[DOMNode]) -> set[tuple[str, str]]:
    """Return the (key, action) pairs that Textual itself defines, such as moving and copying a selection."""
    return {
        (binding.key, binding.action)
        for each in kind.__mro__
        if each.__module__.startswith("textual.")
        for binding in Binding.make_bindings(each.__dict__.get("BINDINGS", ()))
    }
