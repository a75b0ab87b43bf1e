"""A table that may be wider than its place: it scrolls by whole columns, so that no number is ever shown in part."""

from __future__ import annotations

from itertools import accumulate
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widgets import DataTable

from ggbench.tui.tables import first_column, whole_columns

_MORE_LEFT, _MORE_RIGHT = "‹", "›"


class ColumnTable(DataTable[Text]):
    """Columns that do not fit whole are left blank; a mark in the header shows that there are more on that side."""

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
        """Render a line from the first whole column to the last."""
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
                parts[0] = Strip([*line.crop(0, fixed - 1), Segment(_MORE_LEFT, style)])
            if shown.stop < len(widths) and end < width:
                parts[2] = Strip([Segment(f"{' ' * (width - end - 1)}{_MORE_RIGHT}", style)])
        return Strip.join(parts)
