"""Tables that scroll by whole columns, so that no number is cut; and the table of the Library's quants."""

from __future__ import annotations

from itertools import accumulate
from typing import ClassVar, Literal

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.strip import Strip
from textual.widgets import DataTable

from ggbench.text import shorten, shorten_alike
from ggbench.tui.library import PICKED, Library
from ggbench.tui.quant_rows import QuantColumn, QuantRow, quant_columns
from ggbench.tui.tables import MORE_LEFT, MORE_RIGHT, first_column, whole_columns

_MARKED, _UNMARKED = "●", "  "
_MOVES = ("up", "down", "j", "k", "pageup", "pagedown", "home", "end", "ctrl+home", "ctrl+end")
"""Keys that move the cursor."""
_GAP = 1
"""Blanks between two columns."""


class ColumnTable(DataTable[Text]):
    """Columns that do not fit entirely are left blank; a mark in the header shows that there are more on that side."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket,l", "scroll_columns(1)", "More columns", show=False),
        Binding("left_square_bracket,h", "scroll_columns(-1)", "More columns", show=False),
    ]

    def action_scroll_columns(self, steps: int) -> None:
        edges = [0, *accumulate(self._scrolled_widths)]
        first = first_column(self._scrolled_widths, round(self.scroll_target_x))
        self.scroll_to(x=edges[min(max(first + steps, 0), len(edges) - 1)], animate=False)

    def action_scroll_left(self) -> None:
        self.action_scroll_columns(-1)

    def action_scroll_right(self) -> None:
        self.action_scroll_columns(1)

    def on_resize(self) -> None:
        if self.row_count:
            self.call_after_refresh(self._scroll_cursor_into_view)

    @property
    def _scrolled_widths(self) -> list[int]:
        return [column.get_render_width(self) for column in self.ordered_columns[self.fixed_columns :]]

    def _render_line(self, y: int, x1: int, x2: int, base_style: Style) -> Strip:
        widths, width = self._scrolled_widths, self.size.width
        fixed = sum(column.get_render_width(self) for column in self.ordered_columns[: self.fixed_columns])
        shown = whole_columns(widths, x1, width - fixed)
        left, room = sum(widths[: shown.start]), sum(widths[shown.start : shown.stop])
        line = super()._render_line(y, left, left + width, base_style)
        if not shown:
            return line
        style = next((segment.style for segment in reversed(list(line)) if segment.style), base_style)
        end = min(fixed + room, width)
        parts = [line.crop(0, fixed), line.crop(fixed, end), Strip([Segment(" " * (width - end), style)])]
        if self.show_header and y == 0:
            if shown.start:
                parts[0] = Strip([*line.crop(0, fixed - 1), Segment(MORE_LEFT, style)])
            if shown.stop < len(widths) and end < width:
                parts[2] = Strip([Segment(f"{' ' * (width - end - 1)}{MORE_RIGHT}", style)])
        return Strip.join(parts)


class QuantsTable(ColumnTable):
    """Rows keep their place until the pick is made. The cursor follows the pick until it is moved, and then keeps its
    quant. Left and right change the context.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("left", "screen.change_n_ctx(-1)", show=False),
        Binding(
            "right",
            "screen.change_n_ctx(1)",
            "ctx",
            key_display="←→",
            tooltip="Need half or twice the context",
        ),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, fixed_columns=1, cell_padding=0)
        self._library = Library()
        self._shown: list[QuantRow] = []
        self._kept: str | None = None
        """The quant to which the cursor was moved; None while it follows the pick."""
        self._is_moved = False
        self.wanted: str | None = None
        """The quant or file to move the cursor to once it is planned."""

    def on_mount(self) -> None:
        self.show(self._library)

    def on_resize(self) -> None:
        self.show(self._library)

    @property
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor; None if the table is empty."""
        return self._shown[self.cursor_row] if 0 <= self.cursor_row < len(self._shown) else None

    def on_key(self, event: events.Key) -> None:
        if event.key in _MOVES:
            self._is_moved = True

    def on_click(self) -> None:
        self._is_moved = True

    def show(self, library: Library) -> None:
        if self._is_moved and self.chosen is not None:
            self._kept, self._is_moved = self.chosen.name, False
        self._library, top = library, self.scroll_offset
        self._shown = library.listed()
        for row in self._shown:
            if self.wanted is not None and row.is_called(self.wanted):
                self._kept, self.wanted = row.name, None
        self._fill()
        picked = None if library.picked is None else library.picked.name
        names, kept = [row.name for row in self._shown], self._kept or picked
        if kept in names:
            self.cursor_coordinate = Coordinate(names.index(kept), 0)
        self.scroll_to(top.x, top.y, animate=False, force=True)
        self.call_after_refresh(self._scroll_cursor_into_view)

    def _fill(self) -> None:
        columns = quant_columns(self._shown, self.size.width - len(_UNMARKED) - 1, _GAP)
        self.clear(columns=True)
        for index, column in enumerate(columns):
            margin = "" if index else _UNMARKED
            header = Text(margin + column.header, justify=side_of(column))
            self.add_column(header, key=column.key, width=len(margin) + column.width + _GAP)
        titles = shorten_alike([row.title for row in self._shown], columns[0].width)
        for row, title in zip(self._shown, titles, strict=True):
            texts = [title, *(shorten(column.text(row), column.width) for column in columns[1:])]
            cells = [
                Text(text, style_of(column, row), justify=side_of(column))
                for text, column in zip(texts, columns, strict=True)
            ]
            self.add_row(Text.assemble(self._marks(row), cells[0]), *cells[1:])

    def _marks(self, row: QuantRow) -> str:
        picked = self._library.picked
        is_pick = picked is not None and picked.name == row.name
        return f"{_MARKED if row.name in self._library.marks else ' '}{PICKED if is_pick else ' '}"

    def start_over(self) -> None:
        """Show another model: its cursor goes to its pick."""
        self._kept, self._is_moved = None, False
        self._shown = []


def style_of(column: QuantColumn, row: QuantRow) -> str:
    return "dim" if row.meets is False or row.is_old else column.style(row)


def side_of(column: QuantColumn) -> Literal["left", "right"]:
    return "right" if column.right_aligned else "left"
