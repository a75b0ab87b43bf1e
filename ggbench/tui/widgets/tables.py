"""Tables of rows by figures, with as many columns as fit, the least important left out first; and that of quants."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from ggbench.show import FITS, FITS_NOT
from ggbench.show.answer import Table
from ggbench.show.figure import Figure, Row
from ggbench.tui.library import PICKED, Library
from ggbench.tui.widgets.bars import key_links

if TYPE_CHECKING:
    from ggbench.tui.quant_rows import QuantRow

_COLOURS = {FITS: "green", "!": "yellow", FITS_NOT: "#ff5f5f"}
"""Colors of cells that begin with these characters."""
_MARKED = "●"
_MARKS = 2
"""Columns of the marks before a row."""


class FigureTable(DataTable[Text], Generic[Row]):
    """A changed table keeps the cursor on its row or, if that is gone, on its line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", "First"),
        Binding("end", "scroll_bottom", "Last"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", classes="panel")
        self.shown: dict[str, Row] = {}
        """The rows by key."""

    @property
    @abstractmethod
    def figures(self) -> Sequence[Figure[Row]]:
        """The columns, which are first asked for with a row."""

    @abstractmethod
    def key_of(self, row: Row) -> str:
        """Return the name of a row, which no other has."""

    def marks_of(self, row: Row) -> str:
        """Return at most two characters to draw before a row."""
        return ""

    def style_of(self, row: Row) -> str:
        return ""

    @property
    def chosen_key(self) -> str | None:
        """The key at the cursor; None if the table is empty."""
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value if self.row_count else None

    @property
    def chosen(self) -> Row | None:
        return self.shown.get(self.chosen_key or "")

    def show(self, rows: Iterable[Row]) -> None:
        self.shown = {self.key_of(row): row for row in rows}
        self.draw()

    def go_to(self, key: str | None) -> None:
        """Move the cursor to a row if there is one of that key."""
        if key in self.shown:
            self.move_cursor(row=self.get_row_index(key))

    def draw_marks(self, key: str) -> None:
        """Draw only the marks of a row again."""
        cell = self.get_cell(key, "0")
        cell.plain = f"{self.marks_of(self.shown[key]):{_MARKS}}{cell.plain[_MARKS:]}"
        self.update_cell(key, "0", cell)

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw the rows with their marks."""
        chosen, line, rows = self.chosen_key, self.cursor_row, [*self.shown.values()]
        room = self.scrollable_content_region.width - _MARKS - 2 * self.cell_padding
        columns = Table(self.figures, rows).columns(room) if rows else []
        self.clear(columns=True)
        for index, column in enumerate(columns):
            n_marks = 0 if index else _MARKS
            header = Text(" " * n_marks + column.header, justify="left" if column.is_text else "right")
            # which Textual would measure later, and keep lines that a dialog had drawn before that
            self.add_column(header, width=n_marks + column.width, key=str(index))
        for index, (key, row) in enumerate(self.shown.items()):
            cells = [Text(f"{self.marks_of(row):{_MARKS}}{columns[0].texts[index]}", self.style_of(row))]
            for column in columns[1:]:
                text = column.texts[index]
                style = _COLOURS.get(text[:1], self.style_of(row))
                cells.append(Text(text, style, justify="left" if column.is_text else "right"))
            self.add_row(*cells, key=key)
        self.move_cursor(row=line)
        self.go_to(chosen)


class QuantsTable(FigureTable["QuantRow"]):
    """Rows keep their place until the pick is made. The cursor follows the pick until it is moved, then its quant."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.measure"),
        Binding("left", "screen.leave"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_subtitle = key_links("␣ mark · b measure · p pull")
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
