"""The table of the Library's quants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from ggbench.tui.library import PICKED, Library
from ggbench.tui.widgets.bars import key_links
from ggbench.tui.widgets.figure_table import FigureTable

_MARKED = "●"


if TYPE_CHECKING:
    from ggbench.show.figure import Figure
    from ggbench.tui.quant_rows import QuantRow


class QuantsTable(FigureTable["QuantRow"]):
    """Rows keep their place until the pick is made. The cursor follows the pick, or what comes nearest, until it is
    moved, and then keeps its quant.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Plan", tooltip="Show the plan of the quant"),
        Binding("left", "screen.leave"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_subtitle = key_links("⏎ plan · ␣ mark · b measure · p pull")
        self._library = Library()
        self._kept: str | None = None
        """The quant at the cursor, also while its row is away."""
        self._followed: str | None = ""
        """The pick to which the cursor went; empty before the first, and None where it was sent elsewhere."""
        self.wanted: str | None = None
        """The quant or file to move the cursor to once it is planned."""

    @property
    def figures(self) -> Sequence[Figure[QuantRow]]:
        """A longest context is shown where the memory, and not the training, limits one."""
        from ggbench.tui.quant_rows import FIGURES

        longest = {(row.candidate.max_n_ctx, row.plan.n_ctx_train) for row in self.shown.values()}
        is_short = any(n_ctx != n_trained for n_ctx, n_trained in longest)
        return [each for each in FIGURES if is_short or each.key != "max_n_ctx"]

    def key_of(self, row: QuantRow) -> str:
        return row.name

    def marks_of(self, row: QuantRow) -> str:
        picked = self._library.picked
        is_pick = picked is not None and picked.name == row.name
        return f"{_MARKED if row.name in self._library.marks else ' '}{PICKED if is_pick else ' '}"

    def style_of(self, row: QuantRow) -> str:
        return "dim" if row.candidate.missed else ""

    def show_library(self, library: Library) -> None:
        if self._kept in (None, *self.shown):  # else its row is still to come
            self._kept = self.chosen_key
        is_first = self._followed == "" and self.cursor_row == 0
        if library.best is not None and (is_first or self._kept == self._followed):
            self._kept = self._followed = library.best.name
        self._library = library
        self.show(library.listed())
        wanted = [row.name for row in self.shown.values() if self.wanted and row.is_called(self.wanted)]
        if wanted:
            self._kept, self._followed, self.wanted = wanted[0], None, None
        self.go_to(self._kept)

    def start_over(self) -> None:
        """Show another model: its cursor goes to its pick."""
        self._kept, self._followed = None, ""
        self.show(())
