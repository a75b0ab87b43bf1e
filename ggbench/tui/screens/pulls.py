"""The Pulls screen: background downloads with their progress, rate and remaining time."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widgets import Static

from ggbench.show.figure import Figure
from ggbench.text import sanitize, shorten_middle
from ggbench.tui.host import PullsChanged, host_of
from ggbench.tui.widgets.bars import KeysFooter
from ggbench.tui.widgets.figure_list import FigureList
from ggbench.tui.work_queue import GLYPHS, PullItem, PullQueue, WorkState
from ggbench.units import format_bytes, format_duration, format_percent

_BAR_WIDTH = 10
_WIDEST = 36
_NOTHING = """No downloads yet.

Choose a model from the catalog or the Hub in the Library (1),
mark quants with space, then press p. Twins need no download."""


def _bar(item: PullItem) -> str:
    filled = round((item.share or 0) * _BAR_WIDTH)
    return "━" * filled + "╌" * (_BAR_WIDTH - filled)


def _at_work(item: PullItem, value: float | None) -> float | None:
    return None if item.state.is_over else value


_FIGURES: tuple[Figure[PullItem], ...] = (
    Figure("model", "model", lambda item: shorten_middle(sanitize(item.model), _WIDEST)),
    Figure("quant", "quant", lambda item: item.quant),
    Figure("state", "state", lambda item: f"{GLYPHS[item.state]} {item.state.value}"),
    Figure("share", "", lambda item: item.share, format_percent),
    Figure("left_s", "left", lambda item: _at_work(item, item.left_s), format_duration, priority=1),
    Figure(
        "rate",
        "rate",
        lambda item: _at_work(item, item.bytes_per_s),
        lambda rate: f"{format_bytes(rate)}/s",
        priority=2,
    ),
    Figure("bar", "", _bar, priority=3),
    Figure("downloaded", "downloaded", lambda item: item.amount, priority=4),
)


class _PullsTable(FigureList[PullItem]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.retry", "Resume", tooltip="Resume a stopped or failed download"),
    ]

    def key_of(self, row: PullItem) -> str:
        return str(row.id)


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
        yield _PullsTable(_FIGURES, id="pulls")
        yield Static(id="detail", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        self._table.focus()
        self._draw()

    @on(ScreenResume)
    def _go_to_running(self) -> None:
        """Move the cursor from a finished download to the one in progress."""
        chosen, stoppable = self._chosen, self._stoppable
        if chosen is not None and chosen.state.is_over and stoppable is not None:
            self._table.highlighted = stoppable.id

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

    @on(_PullsTable.OptionHighlighted, "#pulls")
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
        self.set_class(bool(items), "-some")
        self._table.show(items)
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
    def _table(self) -> _PullsTable:
        return self.query_one(_PullsTable)

    @property
    def _chosen(self) -> PullItem | None:
        return self._table.chosen
