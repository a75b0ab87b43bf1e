"""The right side of the Library: the table of quants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable

from ggbench.tui.library import Library, QuantRow
from ggbench.tui.tables import TableColumn
from ggbench.tui.widgets.column_table import ColumnTable
from ggbench.units import KV_CELLS

_MARKED = "●"
_STEP = 1024
_LARGEST_N_CTX = 1 << 20


class QuantsTable(ColumnTable):
    """The cursor stays on its quant while rows change; left and right change n_ctx, brackets scroll the columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("left", "change(-1)", show=False),
        Binding("right", "change(1)", "n_ctx×2", key_display="←→", tooltip="Halve or double the planned n_ctx"),
        Binding("shift+left", "step(-1)", "n_ctx −1,024", show=False),
        Binding("shift+right", "step(1)", "n_ctx +1,024", show=False),
    ]

    @dataclass
    class ContextChangeRequested(Message):
        """Change the planned n_ctx by a number of doublings and a number of steps of 1,024."""

        doublings: int
        steps: int

        def applied_to(self, n_ctx: int, n_ctx_train: int | None) -> int:
            """Return the changed n_ctx, clamped to the range that is useful with the model."""
            wanted = round(n_ctx * 2.0**self.doublings) + self.steps * _STEP
            return min(max(wanted, KV_CELLS), max(_LARGEST_N_CTX, n_ctx_train or 0))

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, fixed_columns=1, header_height=2)
        self._library = Library()
        self._shown: list[QuantRow] = []
        self.wanted: str | None = None
        """The quant or file to move the cursor to once it is planned."""

    def on_mount(self) -> None:
        self.show(self._library)

    @property
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor; None if the table is empty."""
        return self._shown[self.cursor_row] if 0 <= self.cursor_row < len(self._shown) else None

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self._library.order.sort_by(self._library.order.columns[event.column_index].key)
        self.show(self._library)

    def action_change(self, doublings: int) -> None:
        """Request twice or half the n_ctx."""
        self.post_message(self.ContextChangeRequested(doublings, 0))

    def action_step(self, steps: int) -> None:
        """Request 1,024 tokens of n_ctx more or less."""
        self.post_message(self.ContextChangeRequested(0, steps))

    def show(self, library: Library) -> None:
        """Draw the quants of the library as they are now."""
        self._library = library
        chosen, top = self.chosen, self.scroll_offset
        self._shown = shown = library.listed()
        columns = library.order.columns
        lines = [self._texts(row, columns) for row in shown]
        self._draw_columns(columns, lines)
        for row, line in zip(shown, lines, strict=True):
            style = "" if row.plan.fits else "dim"
            cells = zip(line, columns, strict=True)
            self.add_row(*(Text(text, style=style, justify=_side(column)) for text, column in cells))
        names = [row.name for row in shown]
        cursor = chosen.name if chosen is not None else None
        for row in shown:
            if self.wanted is not None and row.is_called(self.wanted):
                cursor, self.wanted = row.name, None
        if cursor in names:
            self.cursor_coordinate = Coordinate(names.index(cursor), 0)
        self.scroll_to(top.x, top.y, animate=False, force=True)
        self.call_after_refresh(self._scroll_cursor_into_view)

    def _draw_columns(self, columns: Sequence[TableColumn[QuantRow]], lines: Sequence[Sequence[str]]) -> None:
        """Set each column's width from its content; by itself the table would first draw them narrow."""
        order = self._library.order
        self.clear(columns=True)
        for index, column in enumerate(columns):
            arrow = "" if column.key != order.key else " ↓" if order.is_descending else " ↑"
            first, *below = column.header.splitlines()
            header = [f"{'' if index else '  '}{first}{arrow}", *below]
            width = max(cell_len(text) for text in (*header, *(line[index] for line in lines)))
            self.add_column(Text("\n".join(header), justify=_side(column)), key=column.key, width=width)

    def _texts(self, row: QuantRow, columns: Sequence[TableColumn[QuantRow]]) -> list[str]:
        name, *others = (column.text(row) for column in columns)
        return [f"{_MARKED if row.name in self._library.marks else ' '} {name}", *others]


def _side(column: TableColumn[QuantRow]) -> Literal["left", "right"]:
    return "right" if column.right_aligned else "left"
