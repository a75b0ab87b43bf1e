"""The table of the Library's quants."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from ggbench.tui.library import PICKED, Library
from ggbench.tui.quant_rows import FIGURES, QuantRow
from ggbench.tui.widgets.figure_table import FigureTable

_MARKED = "●"
_MOVES = ("up", "down", "pageup", "pagedown", "home", "end")
"""Keys that move the cursor."""


class QuantsTable(FigureTable[QuantRow]):
    """Rows keep their place until the pick is made. The cursor follows the pick until it is moved, and then keeps its
    quant.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Plan", tooltip="Show the plan of the quant"),
        Binding("left", "screen.leave", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(FIGURES, id=id)
        self.border_subtitle = "⏎ plan · ␣ mark · b measure · p pull"
        self._library = Library()
        self._kept: str | None = None
        """The quant to which the cursor was moved; None while it follows the pick."""
        self._is_moved = False
        self.wanted: str | None = None
        """The quant or file to move the cursor to once it is planned."""

    def key_of(self, row: QuantRow) -> str:
        return row.name

    def marks_of(self, row: QuantRow) -> str:
        picked = self._library.picked
        is_pick = picked is not None and picked.name == row.name
        return f"{_MARKED if row.name in self._library.marks else ' '}{PICKED if is_pick else ' '}"

    def style_of(self, row: QuantRow) -> str:
        return "dim" if row.meets is False or row.is_old else ""

    def on_key(self, event: events.Key) -> None:
        self._is_moved |= event.key in _MOVES

    def on_click(self) -> None:
        self._is_moved = True

    def show_library(self, library: Library) -> None:
        if self._is_moved and self.chosen is not None:
            self._kept, self._is_moved = self.chosen.name, False
        self._library = library
        self.show(library.listed())
        for row in self.shown.values():
            if self.wanted is not None and row.is_called(self.wanted):
                self._kept, self.wanted = row.name, None
        self.go_to(self._kept or (None if library.picked is None else library.picked.name))

    def start_over(self) -> None:
        """Show another model: its cursor goes to its pick."""
        self._kept, self._is_moved = None, False
        self.show(())
