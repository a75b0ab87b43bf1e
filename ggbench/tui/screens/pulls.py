"""The Pulls screen: downloads in the background, with how far they are and when they will be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from ggbench.plain import plain
from ggbench.tui.messages import PullsChanged
from ggbench.tui.pull_queue import PullItem, PullQueue, PullState, amount_text
from ggbench.units import format_bytes, format_duration, format_percent

_GLYPHS = {
    PullState.WAITING: "·",
    PullState.DOWNLOADING: "↓",
    PullState.DONE: "✓",
    PullState.FAILED: "✗",
    PullState.STOPPED: "–",
}
_COLUMNS = ("model", "quant", "state", "", "rate", "ETA", "there", "")
_BAR_WIDTH = 10
_NOTHING = """Nothing is being downloaded.

Choose a model of the catalog or the Hub in the Library (1),
mark quants with space, then press p. Twins need no download."""

if TYPE_CHECKING:

    class _Host(Protocol):
        """What this screen needs of its app."""

        pull_queue: PullQueue


class _PullsTable(DataTable[Text]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "screen.again", "Go on"),
    ]


class PullsScreen(Screen[None]):
    """What is downloaded, what waits, what became of the rest."""

    CSS_PATH = "pulls.tcss"
    HELP = (
        "Downloads go on whatever screen is in front, one after another, into Hugging Face's cache. A file appears "
        "there only when its sha256 is right; what was moved of one that is stopped is kept."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "stop", "Stop, keep the part"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._told: tuple[int, PullState, bool] | None = None
        """Of which download the detail and the keys are: to draw those anew is dear."""

    def compose(self) -> ComposeResult:
        """A table and, under it, what the chosen one has to say."""
        yield Static(_NOTHING, id="nothing", markup=False)
        yield _PullsTable(id="pulls", cursor_type="row")
        yield Static(id="detail", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Draw what there is."""
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.query_one(DataTable).focus()
        self._draw()

    @on(ScreenResume)
    def _go_to_running(self) -> None:
        """From one that is over to the one that goes on, which is what a person comes to see."""
        chosen, stoppable = self._chosen, self._stoppable
        if chosen is not None and chosen.state.is_over and stoppable is not None:
            self.query_one(DataTable).move_cursor(row=stoppable.id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they do something."""
        item = self._chosen
        if action == "stop":
            return self._stoppable is not None
        if action == "again":
            return item is not None and item.state in (PullState.FAILED, PullState.STOPPED)
        return True

    def action_stop(self) -> None:
        """End the chosen one, or the running one where the chosen is over; its part stays."""
        if (item := self._stoppable) is not None:
            self._queue.stop(item.id)

    def action_again(self) -> None:
        """Go on with one that failed or was stopped."""
        if (item := self._chosen) is not None:
            self._queue.again(item.id)

    @on(DataTable.RowHighlighted, "#pulls")
    def _show_detail(self) -> None:
        item = self._chosen
        told = None if item is None else (item.id, item.state, self._stoppable is not None)
        if item is None or told == self._told:
            return
        self._told = told
        text = item.reason or ("" if item.path is None else str(item.path))
        self.query_one("#detail", Static).update(Text(plain(text)))
        self.refresh_bindings()

    @on(PullsChanged)
    def _draw(self) -> None:
        items = self._queue.items
        self.set_class(bool(items), "-some")
        table = cast("DataTable[Text]", self.query_one(DataTable))
        for item in items:
            cells = pull_cells(item)
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
        return cast("_Host", self.app).pull_queue

    @property
    def _stoppable(self) -> PullItem | None:
        """The chosen one, where it can be stopped; else what is being downloaded, else what waits."""
        chosen = self._chosen
        if chosen is not None and not chosen.state.is_over:
            return chosen
        left = [item for item in self._queue.items if not item.state.is_over]
        return min(left, key=lambda item: item.state is PullState.WAITING, default=None)

    @property
    def _chosen(self) -> PullItem | None:
        items, row = self._queue.items, self.query_one(DataTable).cursor_row
        return items[row] if row < len(items) else None


def pull_cells(item: PullItem) -> list[Text]:
    """Model, quant, state in words, share, rate, the time to its end, bytes, and the share as a bar."""
    share = 1.0 if item.state is PullState.DONE else item.share
    filled = round((share or 0) * _BAR_WIDTH)
    bar = "━" * filled + "╌" * (_BAR_WIDTH - filled)
    rate = "" if item.bytes_per_s is None else f"{format_bytes(item.bytes_per_s)}/s"
    eta = "" if item.eta_s is None else format_duration(item.eta_s)
    return [
        Text(plain(item.model)),
        Text(plain(item.quant)),
        Text(f"{_GLYPHS[item.state]} {item.state.value}"),
        Text(format_percent(share), justify="right"),
        Text(rate, justify="right"),
        Text(eta, justify="right"),
        Text(amount_text(item)),
        Text(bar),
    ]
