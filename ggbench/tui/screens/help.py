"""The help sheet: every key of the screen beneath, and what the words on it mean."""

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

from ggbench.tui.screens.dialog import Dialog

_WORDS = """latency(n) = (n - 1) / W + B, with n tokens in the cache
B    ms of the first token: the weights are read once
W    tokens until one takes 1 ms longer: the cache is read
BPW  bits per weight, over all tensors
twin a file made here in a model's true shape, its weights random: as
     fast and as large, and it says nothing sensible"""


class HelpScreen(Dialog[None]):
    """Closed by any of the keys that close things."""

    DEFAULT_CSS = "HelpScreen .dialog Static { width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "Close"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, about: Screen[Any]) -> None:
        """`about` is the screen whose keys are told; its HELP goes before them."""
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        """What the screen is for, its keys, the words."""
        with VerticalScroll(classes="dialog") as sheet:
            sheet.border_subtitle = "esc closes"
            about = getattr(self._about, "HELP", "")
            if about:
                yield Static(f"{about}\n", markup=False)
            yield Static(self._keys())
            yield Static(f"\n{_WORDS}", markup=False)

    def action_scroll(self, direction: str) -> None:
        """By one line."""
        sheet = self.query_one(VerticalScroll)
        sheet.scroll_relative(y=1 if direction == "down" else -1, animate=False)

    def _keys(self) -> Table:
        """Each action once with all of its keys."""
        keys: dict[str, list[str]] = {"Move": ["↑ ↓ j k"], "Next part": ["tab"]}
        for active in self._about.active_bindings.values():
            binding = active.binding
            if binding.description and (binding.key, binding.action) not in _textuals_own(type(active.node)):
                what = binding.tooltip or binding.description
                keys.setdefault(what, []).append(self.app.get_key_display(binding))
        table = Table.grid(padding=(0, 2))
        for description, names in keys.items():
            table.add_row(Text(" ".join(dict.fromkeys(names)), style="bold"), Text(description))
        return table


def _textuals_own(kind: type[DOMNode]) -> set[tuple[str, str]]:
    """Keys with their actions that every app of Textual has: how to move, and how to copy what is selected."""
    return {
        (binding.key, binding.action)
        for each in kind.__mro__
        if each.__module__.startswith("textual.")
        for binding in Binding.make_bindings(each.__dict__.get("BINDINGS", ()))
    }
