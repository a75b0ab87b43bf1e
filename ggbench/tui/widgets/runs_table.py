"""The list of stored runs by model: a cursor, marks, a filter, and columns that sort.

Only visible lines are drawn, so filtering stays fast with many runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ggbench.show.listed_runs import ListedRun
from ggbench.text import shorten, shorten_middle
from ggbench.tui.stored_runs import COLUMNS_OF_RUNS, by_model, matching
from ggbench.tui.tables import MORE_LEFT, MORE_RIGHT, Order, first_column, whole_columns
from ggbench.units import counted, format_count

_GAP = "  "
_MARGIN = 3
"""Characters at the left, for the cursor and the mark."""
_WIDEST = {"quant": 14, "note": 60}
_WIDEST_OTHER = 20
_MEASURED = 200
"""Number of lines that the columns fit from the start; formatting one takes a tenth of a millisecond."""
_N_PINNED = 3
"""Number of columns that stay in place while the others scroll: run, state and quant."""


class RunsTable(ScrollView, can_focus=True):
    DEFAULT_CSS = """
    RunsTable {
        height: 1fr; scrollbar-size-horizontal: 0;
        & > .runs-table--header { text-style: bold; color: $foreground; background: $panel; }
        & > .runs-table--cursor { background: $block-cursor-blurred-background; text-style: bold; }
        &:focus > .runs-table--cursor { color: $block-cursor-foreground; background: $block-cursor-background; }
        & > .runs-table--dim { text-style: dim; }
        & > .runs-table--marked { text-style: bold; color: $text-warning; }
        & > .runs-table--model { text-style: bold; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"runs-table--{part}" for part in ("header", "cursor", "dim", "marked", "model")
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Move", show=False),
        Binding("down,j", "move(1)", "Move", show=False),
        Binding("pageup", "page(-1)", "Move a page", show=False),
        Binding("pagedown", "page(1)", "Move a page", show=False),
        Binding("home,g", "jump(0)", "First, last", show=False),
        Binding("end,G", "jump(-1)", "First, last", show=False),
        Binding("left,left_square_bracket,h", "scroll_columns(-1)", "More columns", show=False),
        Binding("right,right_square_bracket,l", "scroll_columns(1)", "More columns", show=False),
        Binding("enter", "choose", "Open", tooltip="Show all details of the chosen run"),
        Binding("space", "mark", "Mark", key_display="␣", tooltip="Mark or unmark the run"),
    ]

    @dataclass
    class Chosen(Message):
        """Open this run."""

        run: ListedRun

    class Changed(Message):
        """A run was marked or unmarked, or the order changed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._all: Sequence[ListedRun] = ()
        self._words = ""
        self.runs: Sequence[ListedRun] = ()
        """The runs that match the filter, in displayed order."""
        self._lines: list[str | ListedRun] = []
        """The runs, and above those of each model its name."""
        self._line_of: list[int] = []
        """The line of each of `runs`."""
        self.marks: frozenset[int] = frozenset()
        """Ids of the marked runs, including hidden ones."""
        self.order = Order(COLUMNS_OF_RUNS, COLUMNS_OF_RUNS[0].key)
        self._cursor = 0
        self._texts: dict[int, tuple[ListedRun, list[str]]] = {}
        self._widths = tuple(len(column.header) + 1 for column in COLUMNS_OF_RUNS)

    @property
    def cursor_run(self) -> ListedRun | None:
        return self.runs[self._cursor] if self.runs else None

    @property
    def marked(self) -> list[ListedRun]:
        """The marked runs in the order of the list, including hidden ones."""
        return by_model(self.order.sorted(run for run in self._all if run.run_id in self.marks))

    @property
    def summary(self) -> str:
        """Return `2 of 4 runs, 1 marked, by run ▼`; empty without runs."""
        if not self._all:
            return ""
        n_shown, n_runs = len(self.runs), counted(len(self._all), "run")
        parts = [n_runs if n_shown == len(self._all) else f"{format_count(n_shown)} of {n_runs}"]
        if self.marks:
            parts.append(f"● {format_count(len(self.marks))} marked")
        name = (self.order.column and self.order.column.header) or self.order.key
        return ", ".join([*parts, f"by {name} {self._arrow}"])

    def show(self, runs: Sequence[ListedRun], words: str) -> None:
        """Show the runs that contain these words; the cursor stays on its run, or on its line if the run is gone."""
        self._all, self._words = runs, words
        self.marks &= {run.run_id for run in runs}
        if len(self._texts) > len(runs):
            self._texts = {run.run_id: self._texts[run.run_id] for run in runs if run.run_id in self._texts}
        chosen = self.cursor_run
        self.runs = by_model(self.order.sorted(matching(runs, words)))
        self._lines, self._line_of = [], []
        for model, group in groupby(self.runs, key=lambda run: run.model):
            self._lines.append(model)
            for run in group:
                self._line_of.append(len(self._lines))
                self._lines.append(run)
        places = {run.run_id: index for index, run in enumerate(self.runs)}
        line = min(self._cursor, max(0, len(self.runs) - 1))
        self._cursor = line if chosen is None else places.get(chosen.run_id, line)
        self.on_resize()
        self.refresh()

    def show_sorted(self) -> None:
        self.show(self._all, self._words)
        self.post_message(self.Changed())

    def action_move(self, lines: int) -> None:
        self._go_to(self._cursor + lines)

    def action_page(self, pages: int) -> None:
        self._go_to(self._cursor + pages * max(1, self._n_visible - 1))

    def action_jump(self, line: int) -> None:
        self._go_to(line if line >= 0 else len(self.runs) - 1)

    def action_scroll_columns(self, steps: int) -> None:
        widths = [width + len(_GAP) for width in self._widths[_N_PINNED:]]
        edges, first = [0, *accumulate(widths)], first_column(widths, round(self.scroll_target_x))
        self.scroll_to(x=edges[min(max(first + steps, 0), len(edges) - 1)], animate=False)

    def action_choose(self) -> None:
        if self.cursor_run is not None:
            self.post_message(self.Chosen(self.cursor_run))

    def action_mark(self) -> None:
        if self.cursor_run is not None:
            self._toggle(self.cursor_run)

    def mark(self, run_ids: Iterable[int]) -> None:
        self.marks |= frozenset(run_ids)
        self.refresh()
        self.post_message(self.Changed())

    def unmark(self) -> None:
        self.marks = frozenset()
        self.refresh()
        self.post_message(self.Changed())

    def on_click(self, event: Click) -> None:
        """Sort by a clicked header; move to a clicked run, mark it by its margin, open it by a double click."""
        x, y = event.get_content_offset_capture(self)
        if y == 0:
            self._sort_at(x)
            return
        line = y - 1 + round(self.scroll_y)
        if line not in self._line_of:
            return
        index = self._line_of.index(line)
        self._go_to(index)
        if x < _MARGIN:
            self._toggle(self.runs[index])
        elif event.chain == 2:
            self.action_choose()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        base = self.rich_style
        if y == 0:
            style = base + self.get_component_rich_style("runs-table--header", partial=True)
            texts = [
                f"{one.header}{self._arrow if one.key == self.order.key else ''}" for one in COLUMNS_OF_RUNS
            ]
            return self._line(" " * _MARGIN, texts, style, width, is_header=True)
        line = y - 1 + round(self.scroll_y)
        if line >= len(self._lines):
            return Strip.blank(width, base)
        run = self._lines[line]
        if isinstance(run, str):
            style = base + self.get_component_rich_style("runs-table--model", partial=True)
            return Strip([Segment(f" {shorten_middle(run, width - 1)}", style)]).adjust_cell_length(
                width, style
            )
        margin = f"{'❯' if run is self.cursor_run else ' '}{'●' if run.run_id in self.marks else ' '} "
        return self._line(margin, self._cells(run), self._style_of(run), width)

    def _style_of(self, run: ListedRun) -> Style:
        if run is self.cursor_run:
            part = "cursor"
        elif run.run_id in self.marks:
            part = "marked"
        elif not run.is_completed:
            part = "dim"
        else:
            return self.rich_style
        return self.rich_style + self.get_component_rich_style(f"runs-table--{part}", partial=True)

    @property
    def _n_visible(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def _toggle(self, run: ListedRun) -> None:
        self.marks ^= {run.run_id}
        self.refresh()
        self.post_message(self.Changed())

    def _go_to(self, index: int) -> None:
        self._cursor = min(max(index, 0), max(0, len(self.runs) - 1))
        self.on_resize()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._measure()

    def on_resize(self) -> None:
        """Scroll the cursor into view, with the model's name above its first run."""
        self._measure()
        if not self.runs:
            return
        top, line = round(self.scroll_y), self._line_of[self._cursor]
        first = line - isinstance(self._lines[line - 1], str)
        if first < top:
            self.scroll_to(y=first, animate=False, force=True)
        elif line >= top + self._n_visible:
            self.scroll_to(y=line - self._n_visible + 1, animate=False, force=True)

    def _measure(self) -> None:
        """Fit the columns to the first lines and the visible ones; they never shrink, so a filter moves none."""
        top = round(self.scroll_y)
        for run in (*self._lines[:_MEASURED], *self._lines[top : top + self._n_visible + 1]):
            if not isinstance(run, str):
                self._cells(run)
        self.virtual_size = Size(
            _MARGIN + sum(self._widths) + len(_GAP) * len(self._widths), len(self._lines) + 1
        )

    def _cells(self, run: ListedRun) -> list[str]:
        """Return a run's texts, which are formatted when they are first needed."""
        known = self._texts.get(run.run_id)
        if known is None or known[0] is not run:
            texts = [shorten(each.text(run), _WIDEST.get(each.key, _WIDEST_OTHER)) for each in COLUMNS_OF_RUNS]
            known = self._texts[run.run_id] = run, texts
            self._widths = tuple(map(max, self._widths, map(cell_len, texts)))
        return known[1]

    @property
    def _arrow(self) -> str:
        return "▼" if self.order.is_descending else "▲"

    def _scrolled(self, width: int) -> range:
        """Return the indices of the columns that fit entirely beside the pinned ones."""
        widths = [width + len(_GAP) for width in self._widths]
        room = width - _MARGIN - sum(widths[:_N_PINNED])
        shown = whole_columns(widths[_N_PINNED:], round(self.scroll_x), room)
        return range(_N_PINNED + shown.start, _N_PINNED + shown.stop)

    def _line(
        self, margin: str, texts: Sequence[str], style: Style, width: int, *, is_header: bool = False
    ) -> Strip:
        """Render a line; `‹` and `›` in the header say that there are more columns on that side."""
        cells, shown = [], self._scrolled(width)
        for column, cell, cell_width in zip(COLUMNS_OF_RUNS, texts, self._widths, strict=True):
            padding = " " * (cell_width - cell_len(cell)) if column.right_aligned else ""
            cells.append(set_cell_size(padding + cell, cell_width) + _GAP)
        text = margin + "".join(cells[:_N_PINNED])
        if is_header and shown.start > _N_PINNED:
            text = f"{text[: -len(_GAP)]}{MORE_LEFT:>{len(_GAP)}}"
        text += "".join(cells[shown.start : shown.stop])
        if is_header and shown.stop < len(cells):
            return Strip([Segment(set_cell_size(text, width - 1) + MORE_RIGHT, style)])
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)

    def _sort_at(self, x: int) -> None:
        edge = _MARGIN
        for index in (*range(_N_PINNED), *self._scrolled(self.scrollable_content_region.width)):
            edge += self._widths[index] + len(_GAP)
            if x < edge:
                self.order.sort_by(COLUMNS_OF_RUNS[index].key)
                self.show_sorted()
                return
