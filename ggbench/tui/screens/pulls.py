"""The Pulls screen: background downloads with their progress, rate and remaining time."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widgets import DataTable, Static

from ggbench.text import sanitize
from ggbench.tui.host import PullsChanged, host_of
from ggbench.tui.model_list import short_titles
from ggbench.tui.widgets.bars import KeysFooter
from ggbench.tui.widgets.quants_table import ColumnTable
from ggbench.tui.work_queue import GLYPHS, PullItem, PullQueue, WorkState
from ggbench.units import format_bytes, format_duration, format_percent

_COLUMNS = ("model", "quant", "state", "", "", "rate", "left", "downloaded")
_BAR_WIDTH = 10
_OTHER_COLUMNS = 64
"""Width of the columns after the model, without the last, which may be scrolled to."""
_NOTHING = """No downloads yet.

Choose a model from the catalog or the Hub in the Library (1),
mark quants with space, then press p. Twins need no download."""


class _PullsTable(ColumnTable):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "screen.retry", "Resume", tooltip="Resume a stopped or failed download"),
    ]


class PullsScreen(Screen[None]):
    """Every download of this session and its state."""

    CSS_PATH = "pulls.tcss"
    HELP = (
        "Downloads run one after another in the background, into Hugging Face's cache. A file appears there only"
        " after its SHA-256 has been verified. A stopped download keeps its partial file and can be resumed."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop", "Stop", tooltip="Stop the download, keep the partial file"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[int, WorkState, bool] | None = None
        """The download whose details and keys are shown; kept, as redrawing the footer is expensive."""

    def compose(self) -> ComposeResult:
        yield Static(_NOTHING, id="nothing", markup=False)
        yield _PullsTable(id="pulls", cursor_type="row")
        yield Static(id="detail", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.query_one(DataTable).focus()
        self._draw()

    @on(ScreenResume)
    def _go_to_running(self) -> None:
        """Move the cursor from a finished download to the one in progress."""
        chosen, stoppable = self._chosen, self._stoppable
        if chosen is not None and chosen.state.is_over and stoppable is not None:
            self.query_one(DataTable).move_cursor(row=stoppable.id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        item = self._chosen
        if action == "stop":
            return self._stoppable is not None
        if action == "retry":
            return item is not None and item.can_resume
        return True

    def action_stop(self) -> None:
        if (item := self._stoppable) is not None:
            self._queue.stop(item.id)

    def action_retry(self) -> None:
        if (item := self._chosen) is not None:
            self._queue.retry(item.id)

    @on(DataTable.RowHighlighted, "#pulls")
    def _show_detail(self) -> None:
        item = self._chosen
        shown = None if item is None else (item.id, item.state, self._stoppable is not None)
        if item is None or shown == self._shown:
            return
        self._shown = shown
        text = item.reason or ("" if item.path is None else str(item.path))
        self.query_one("#detail", Static).update(Text(sanitize(text)))
        self.refresh_bindings()

    @on(PullsChanged)
    def _draw(self) -> None:
        items = self._queue.items
        names = short_titles(
            [sanitize(item.model) for item in items], max(16, self.size.width - _OTHER_COLUMNS)
        )
        self.set_class(bool(items), "-some")
        table = self.query_one(_PullsTable)
        for item, name in zip(items, names, strict=True):
            cells = pull_cells(item, name)
            if item.id >= table.row_count:
                table.add_row(*cells, key=str(item.id))
                continue
            for column, cell in enumerate(cells):
                at = Coordinate(item.id, column)
                if table.get_cell_at(at) != cell:
                    table.update_cell_at(at, cell, update_width=True)
        self._show_detail()

    @property
    def _queue(self) -> PullQueue:
        return host_of(self).pull_queue

    @property
    def _stoppable(self) -> PullItem | None:
        """The chosen download if not finished, else the one in progress, else the first waiting one."""
        chosen = self._chosen
        if chosen is not None and not chosen.state.is_over:
            return chosen
        left = [item for item in self._queue.items if not item.state.is_over]
        return min(left, key=lambda item: item.state is WorkState.WAITING, default=None)

    @property
    def _chosen(self) -> PullItem | None:
        items, row = self._queue.items, self.query_one(DataTable).cursor_row
        return items[row] if row < len(items) else None


def pull_cells(item: PullItem, name: str) -> list[Text]:
    """Return the cells of a row."""
    share = 1.0 if item.state is WorkState.DONE else item.share
    filled = round((share or 0) * _BAR_WIDTH)
    bar = "━" * filled + "╌" * (_BAR_WIDTH - filled)
    is_idle = item.bytes_per_s is None or item.state.is_over
    rate, left = ("", "") if is_idle else (f"{format_bytes(item.bytes_per_s)}/s", format_duration(item.left_s))
    return [
        Text(name),
        Text(sanitize(item.quant)),
        Text(f"{GLYPHS[item.state]} {item.state.value}"),
        Text(format_percent(share), justify="right"),
        Text(bar),
        Text(rate, justify="right"),
        Text(left, justify="right"),
        Text(item.amount),
    ]
