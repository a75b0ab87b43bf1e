"""The Run screen: the queue, the progress of the running job, and the downloads.

Drawing takes CPU time from the decode. So tokens do not trigger draws: the screen draws only changes, at its own pace.
"""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import ScreenResume
from textual.widgets import OptionList, Static

from ggbench.show import letter
from ggbench.show.names import distinct_by_kv, row_labels
from ggbench.show.presenter import line_charts_of
from ggbench.show.words import say
from ggbench.text import sanitize
from ggbench.tui.host import PlotScreen, PullsChanged, RunsOpened, host_of
from ggbench.tui.live_job import LiveJob
from ggbench.tui.run_queue import QueueItem, RunQueue
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.widgets.bars import KeysFooter, TopLine, key_links
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.run_panels import WorkList, number_lines, point_lines, pull_lines, queue_lines
from ggbench.tui.work_queue import PullItem, PullQueue
from ggbench.units import counted

_LOOK_EVERY_S = 0.1
_DRAW_EVERY_S = 1.0
"""Minimum time between two draws of only more tokens; one takes some 20 ms of a core."""


class RunScreen(PlotScreen):
    """Every job and download of this session, and the current job as it runs."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop", "Stop", tooltip="Stop the run or download at the cursor, keeping what it has"),
        Binding("X", "stop_all", "Stop all", tooltip="Stop the running job and those that wait"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._drawn_items: tuple[QueueItem, ...] | None = None
        self._drawn_revision = -1
        self._due_at = 0.0
        """Time at which more tokens of the same job may be drawn; a change of state is drawn at once."""

    def compose(self) -> ComposeResult:
        yield TopLine("run")
        yield Static(say("tui.no_work"), id="nothing", markup=False)
        with Vertical(id="board"):
            yield WorkList("queue", "⏎ open", id="queue")
            yield WorkList("downloads", "⏎ resume · x stop", id="pulls")
            with Horizontal(id="middle"):
                yield CurvesPlot(id="figures")
                with VerticalScroll(id="so-far", classes="panel", can_focus=False):
                    yield Static(id="points", markup=False)
                yield Static(id="numbers", classes="panel", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        so_far = self.query_one("#so-far")
        so_far.border_title = "so far"
        so_far.anchor()
        self.query_one("#numbers").border_title = "numbers"
        self.set_interval(_LOOK_EVERY_S, self._look)
        self._draw()

    def action_stop(self) -> None:
        match self._chosen:
            case PullItem() as pull:
                self._pulls.stop(pull.id)
            case QueueItem() as item:
                self._queue.stop(item.id)
        self._draw()

    def action_stop_all(self) -> None:
        """Stop all jobs after a question."""
        item_ids = [item.id for item in self._queue.items if not item.state.is_over]

        def stop(confirmed: bool | None) -> None:
            if confirmed:
                self._queue.stop(*item_ids)
                self._draw()

        if item_ids:
            question = f"Stop {counted(len(item_ids), 'run')}? Measurements are kept."
            self.app.push_screen(ConfirmScreen(question, "Stop all"), stop)

    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        """Resume the download at the cursor, or open the run that is over; of one not stored, say why in full."""
        match self._chosen:
            case PullItem() as pull:
                self._pulls.retry(pull.id)
            case QueueItem(run_id=int(run_id), state=state) if state.is_over:
                self.app.post_message(RunsOpened([run_id]))
            case QueueItem(reason=reason) if reason:
                self.notify(sanitize(reason), severity="error", markup=False)

    @property
    def _queue(self) -> RunQueue:
        return host_of(self).run_queue

    @property
    def _pulls(self) -> PullQueue:
        return host_of(self).pull_queue

    @property
    def _chosen(self) -> QueueItem | PullItem | None:
        """The item at the cursor of the list with the focus, else of the queue."""
        downloads = self.query_one("#pulls", WorkList)
        if self.focused is downloads:
            return downloads.chosen(self._pulls.items)
        return self.query_one("#queue", WorkList).chosen(self._queue.items)

    def _look(self) -> None:
        """Draw changes: another state at once, more tokens when they are due."""
        queue = self._queue
        if not self.is_current or queue.revision == self._drawn_revision:
            return
        if queue.items != self._drawn_items or time.monotonic() >= self._due_at:
            self._draw()

    @on(PullsChanged)
    def _draw_beside_no_decode(self) -> None:
        if self.is_current and not self._queue.is_busy:
            self._draw()

    @on(ScreenResume)
    def _draw(self) -> None:
        if not self.app.is_running:  # during exit, widgets may have lost their children
            return
        queue = self._queue
        # in this order: the live job is among the items
        live, items, plotted = queue.live, queue.items, queue.plotted
        self._due_at = time.monotonic() + _DRAW_EVERY_S
        self._drawn_items, self._drawn_revision = items, queue.revision
        pulls = self._pulls.items
        self.set_class(bool(items), "-busy").set_class(bool(pulls), "-pulling")
        letters = {job.item_id: letter(index) for index, job in enumerate(plotted)}
        rows = self.query_one("#queue", WorkList)
        rows.show(items, queue_lines(items, letters))
        downloads = self.query_one("#pulls", WorkList)
        downloads.show(pulls, pull_lines(pulls))
        if self.focused is None and (items or pulls):
            self.set_focus(rows if items else downloads)
        error = queue.store_error
        title = "queue" if error is None else sanitize(f"! not stored: {error.line}")
        rows.border_title = Text(title)
        rows.border_subtitle = key_links("⏎ open · x stop · X stop all" if queue.is_busy else "⏎ open")
        if live is not None:
            self._show_live(live, items, plotted)

    def _show_live(self, live: LiveJob, items: tuple[QueueItem, ...], plotted: tuple[LiveJob, ...]) -> None:
        view, item = self.query_one(CurvesPlot), items[live.item_id]
        self.query_one("#points", Static).update("\n".join(point_lines(live)))
        numbers = self.query_one("#numbers", Static)
        numbers.update("\n".join(number_lines(live, item)), layout=False)
        shown = [items[job.item_id] for job in plotted]
        names = distinct_by_kv(row_labels([each.subject for each in shown]), [each.setup for each in shown])
        own = live.plotted("")
        runs = [
            job.plotted(name, behind=None if job is live else own)
            for job, name in zip(plotted, names, strict=True)
        ]
        view.show(line_charts_of([item.kind], runs))
        # without values there is no scale, and that of an earlier run is not this one's
        has_values = not view.figure.is_empty and (live in plotted or item.state.is_over)
        self.set_class(not has_values, "-plain")
