"""The right side of the Library: the table of quants with its filter, its sort order and its marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from ggbench.models.added_places import typed_path, typed_server
from ggbench.tui.library_quants import QuantRow, labelled, quant_columns
from ggbench.tui.tables import Column, has_words, in_order
from ggbench.tui.widgets.bars import FilterInput
from ggbench.tui.widgets.column_table import ColumnTable
from ggbench.units import KV_CELLS, format_count

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

    class ContextChangeRequested(Message):
        """Change the planned n_ctx by a number of doublings and a number of steps of 1,024."""

        def __init__(self, doublings: int, steps: int) -> None:
            super().__init__()
            self._doublings, self._steps = doublings, steps

        def applied_to(self, n_ctx: int, n_ctx_train: int | None) -> int:
            """Return the changed n_ctx, clamped to the range that is useful with the model."""
            wanted = round(n_ctx * 2.0**self._doublings) + self._steps * _STEP
            return min(max(wanted, KV_CELLS), max(_LARGEST_N_CTX, n_ctx_train or 0))

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, fixed_columns=1, header_height=2)
        self._rows: Sequence[QuantRow] = ()
        self._shown: list[QuantRow] = []
        self._marks: dict[str, None] = {}
        self._words = ""
        self._columns = quant_columns(None)
        self._sorted_by: str | None = None
        """Key of a column; None keeps the order of the model."""
        self._is_reversed = False
        self.is_fits_only = False
        self.wanted: str | None = None
        """The quant or file to move the cursor to once it is planned."""

    def on_mount(self) -> None:
        self._draw()

    def show(self, rows: Mapping[str, QuantRow], marks: dict[str, None]) -> None:
        """Show these quants; `marks` holds the names of the marked ones, and `toggle_mark` changes it."""
        self._rows, self._marks = labelled(rows.values()), marks
        n_ctx = next((row.plan.n_ctx for row in self._rows if row.plan.n_ctx), None)
        self._columns = quant_columns(n_ctx, has_expected=any(row.plan.expected for row in self._rows))
        self._draw()

    @property
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor; None if the table is empty."""
        return self._shown[self.cursor_row] if 0 <= self.cursor_row < len(self._shown) else None

    @property
    def n_shown(self) -> int:
        """Number of quants in the table."""
        return len(self._shown)

    @property
    def n_quants(self) -> int:
        """Number of quants, those that are hidden included."""
        return len(self._rows)

    @property
    def hidden(self) -> list[str]:
        """Counts of the quants that are not shown, a text for each reason."""
        n_matching = sum(has_words(f"{row.title} {row.name}", self._words) for row in self._rows)
        counts = [
            (n_matching - self.n_shown, "that do not fit (f)"),
            (self.n_quants - n_matching, "by the filter"),
        ]
        return [f"{format_count(count)} hidden {reason}" for count, reason in counts if count]

    def filter(self, text: str) -> None:
        """Show the quants whose name contains every word."""
        self._words = text
        self._draw()

    def toggle_fits(self) -> None:
        """Hide or show the quants that do not fit."""
        self.is_fits_only = not self.is_fits_only
        self._draw()

    def toggle_mark(self) -> None:
        """Mark or unmark the chosen quant and move to the next."""
        if (chosen := self.chosen) is None:
            return
        if chosen.name in self._marks:
            del self._marks[chosen.name]
        else:
            self._marks[chosen.name] = None
        self._draw()
        self.action_cursor_down()

    def sort_by(self, key: str) -> None:
        """Sort by a column; the same column again reverses the order."""
        self._is_reversed = key == self._sorted_by and not self._is_reversed
        self._sorted_by = key
        self._draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self.sort_by(self._columns[event.column_index].key)

    def sort_by_next(self) -> None:
        """Sort by the next column."""
        keys = [column.key for column in self._columns]
        index = keys.index(self._sorted_by) + 1 if self._sorted_by in keys else 0
        self.sort_by(keys[index % len(keys)])

    def reverse_sort(self) -> None:
        """Reverse the order."""
        self.sort_by(self._sorted_by or self._columns[0].key)

    def action_change(self, doublings: int) -> None:
        """Request twice or half the n_ctx."""
        self.post_message(self.ContextChangeRequested(doublings, 0))

    def action_step(self, steps: int) -> None:
        """Request 1,024 tokens of n_ctx more or less."""
        self.post_message(self.ContextChangeRequested(0, steps))

    def _draw(self) -> None:
        chosen, top = self.chosen, self.scroll_offset
        shown = [row for row in self._rows if not (self.is_fits_only and row.plan.fits is False)]
        shown = [row for row in shown if has_words(f"{row.title} {row.name}", self._words)]
        for column in self._columns:
            if column.key == self._sorted_by:
                shown = in_order(shown, column, descending=column.descending != self._is_reversed)
        self._shown = shown
        lines = [self._texts(row) for row in shown]
        self._draw_columns(lines)
        for row, line in zip(shown, lines, strict=True):
            style = "" if row.plan.fits else "dim"
            cells = zip(line, self._columns, strict=True)
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

    def _draw_columns(self, lines: Sequence[Sequence[str]]) -> None:
        """Set each column's width from its content; by itself the table would first draw them narrow."""
        self.clear(columns=True)
        for index, column in enumerate(self._columns):
            arrow = ""
            if column.key == self._sorted_by:
                arrow = " ↓" if column.descending != self._is_reversed else " ↑"
            first, *below = column.header.splitlines()
            header = [f"{'' if index else '  '}{first}{arrow}", *below]
            width = max(cell_len(text) for text in (*header, *(line[index] for line in lines)))
            self.add_column(Text("\n".join(header), justify=_side(column)), key=column.key, width=width)

    def _texts(self, row: QuantRow) -> list[str]:
        name, *others = (column.text(row) for column in self._columns)
        return [f"{_MARKED if row.name in self._marks else ' '} {name}", *others]


def _side(column: Column[QuantRow]) -> Literal["left", "right"]:
    return "right" if column.right_aligned else "left"


class QuantsPane(Vertical):
    """The filter is hidden until it is opened; a path or a URL in it is for the models."""

    class PlaceEntered(Message):
        """Add the folder, file or server of this text to the models."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def compose(self) -> ComposeResult:
        yield FilterInput("filter these quants by name", id="quant-filter")
        yield QuantsTable(id="quants")
        yield Static(id="none-shown", markup=False)

    @property
    def table(self) -> QuantsTable:
        return self.query_one(QuantsTable)

    @property
    def input(self) -> Input:
        return self.query_one(Input)

    def open_filter(self) -> None:
        """Show and focus the filter."""
        self.add_class("-filter")
        self.input.focus()

    def close_filter(self) -> None:
        """Clear and hide the filter, and focus the table."""
        self.input.clear()
        self.remove_class("-filter")
        self.table.focus()

    def show_empty(self, reasons: Sequence[str]) -> None:
        """Show these reasons in place of the quants; the quants where there are none."""
        self.set_class(bool(reasons), "-empty")
        if reasons:
            lines = [*reasons, *(["enter adds this to the models"] if _is_place(self.input.value) else [])]
            self.query_one("#none-shown", Static).update("\n".join(lines))

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self.table.filter(event.value)

    @on(Input.Submitted)
    def _leave_filter(self) -> None:
        text = self.input.value
        if _is_place(text):
            self.close_filter()
            self.post_message(self.PlaceEntered(text))
        else:
            self.table.focus()


def _is_place(text: str) -> bool:
    """Whether it is a path or the URL of a server, which no quant's name is."""
    return typed_path(text) is not None or typed_server(text) is not None
