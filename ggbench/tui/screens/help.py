"""The help screen: every key of the screen below it, and what its numbers mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Static

from ggbench.show.glossary import FORMULA, terms
from ggbench.tui.screens.dialogs import Dialog

_TWIN = (
    "twin",
    "A file written here with a model's exact shape and random weights: same size and speed, meaningless text.",
)


class HelpScreen(Dialog[None]):
    """Closed by esc, q, ? or enter."""

    DEFAULT_CSS = """
    HelpScreen { .dialog Static { width: 1fr; } .heading { text-style: bold; } }
    """
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
        """Lay out the screen's HELP, its keys and the numbers."""
        with VerticalScroll(classes="dialog") as sheet:
            sheet.border_subtitle = "esc closes"
            about = getattr(self._about, "HELP", "")
            if about:
                yield Static(f"{about}\n", markup=False)
            yield Static(self._keys())
            yield Static("\nNumbers\n", classes="heading", markup=False)
            yield Static(f"{FORMULA}\n", markup=False)
            yield Static(_two_columns(dict((*terms(), _TWIN))))

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
        return _two_columns({" ".join(dict.fromkeys(names)): description for description, names in keys.items()})


def _two_columns(rows: Mapping[str, str]) -> Table:
    """Return names and what they mean; a long meaning wraps within its column."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for name, meaning in rows.items():
        table.add_row(Text(name, style="bold"), Text(meaning))
    return table


def _textual_bindings(kind: type[DOMNode]) -> set[tuple[str, str]]:
    """Return the (key, action) pairs that Textual itself defines, such as moving and copying a selection."""
    return {
        (binding.key, binding.action)
        for each in kind.__mro__
        if each.__module__.startswith("textual.")
        for binding in Binding.make_bindings(each.__dict__.get("BINDINGS", ()))
    }
