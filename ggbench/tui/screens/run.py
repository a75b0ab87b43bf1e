"""The Run screen: the queue and the progress of the running job.

Drawing takes CPU time from the decode. So tokens do not trigger draws: the screen draws only changes, at its own pace,
the slower the more a draw costs.
"""

from __future__ import annotations

import time
from typing import ClassVar, Literal

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widgets import ContentSwitcher, OptionList, Static

from ggbench.show import letter
from ggbench.show.names import distinct_by_kv, row_labels
from ggbench.show.presenter import LiveView, line_charts_of, presenter_of
from ggbench.text import sanitize
from ggbench.tui.host import RunsOpened, host_of
from ggbench.tui.live_job import LiveJob
from ggbench.tui.run_queue import QueueItem, RunQueue
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.widgets.bars import KeysFooter
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.run_panels import (
    DecodedText,
    Lines,
    QueueList,
    bracket_lines,
    gauge_lines,
    number_lines,
)
from ggbench.tui.work_queue import WorkState
from ggbench.units import counted

_LOOK_EVERY_S = 0.1
_SHARE_OF_A_CORE = 0.01
"""Maximum share of the time spent drawing while the decode uses every core."""
_SHARE_BESIDE_A_GPU = 0.2
"""The same while the weights are on GPUs, so that the CPU is idle."""
_WIDGETS: dict[LiveView, str] = {"figures": "plot", "bracket": "bracket"}
"""Id of the widget that draws each live view."""

_NOTHING = """No runs yet.

Choose a model in the Library (1), mark quants with space,
then press b to measure them."""


class RunScreen(Screen[None]):
    """Every job of this session, and the current one as it runs."""

    AUTO_FOCUS = "QueueList"
    CSS_PATH = "run.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "p", "order('pause')", "Pause", tooltip="Pause the decode between two tokens; no other job starts"
        ),
        Binding("p", "order('resume')", "Resume", tooltip="Continue after a pause"),
        Binding(
            "s", "order('skip')", "Skip", tooltip="Stop the running job, keep its measurements, start the next"
        ),
        Binding(
            "x",
            "order('cancel')",
            "Cancel all",
            tooltip="Stop the running job and cancel waiting ones; measurements are kept",
        ),
        Binding("d,delete", "remove", "Remove", tooltip="Remove the waiting run at the cursor from the queue"),
        Binding("v", "next_plot", "Next plot", tooltip="Draw the next figure, such as KLD after PPL"),
        Binding("r", "reset_zoom", "Reset zoom", show=False, tooltip="Show all of a plot that was zoomed"),
        Binding("t", "toggle_text", "Text", tooltip="Show or hide the decoded text"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._drawn_items: tuple[QueueItem, ...] | None = None
        self._drawn_revision = -1
        self._due_at = 0.0
        """Time at which more tokens of the same job may be drawn; a change of state is drawn at once."""

    def compose(self) -> ComposeResult:
        yield Static(_NOTHING, id="nothing", markup=False)
        with Vertical(id="board"):
            yield QueueList(id="queue")
            yield Static(id="reason", markup=False)
            with Horizontal(id="middle"):
                with ContentSwitcher(id="curves", initial="plot"):
                    yield CurvesPlot(id="plot")
                    yield Lines(id="bracket")
                with Vertical(id="side"):
                    yield Lines(id="numbers")
                    yield Lines(id="gauges")
            yield DecodedText(id="text")
        yield KeysFooter()

    def on_mount(self) -> None:
        self.set_interval(_LOOK_EVERY_S, self._look)
        self._draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        queue, chosen = self._queue, self._chosen
        match action, parameters:
            case "remove", _:
                return chosen is not None and chosen.state is WorkState.WAITING
            case "open", _:
                return chosen is not None and chosen.state.is_over and chosen.run_id is not None
            case "order", ("pause" | "resume" as order,):
                return queue.is_busy and queue.is_paused == (order == "resume")
            case "order", _:
                return queue.is_busy
            case "next_plot", _:
                return len(self.query_one(CurvesPlot).figures) > 1
            case "toggle_text", _:
                return not self._is_mute
        return True

    def action_order(self, order: Literal["pause", "resume", "skip", "cancel"]) -> None:
        """Pause, resume, skip or cancel; ask first if runs that wait would be cancelled."""

        def go_on(confirmed: bool | None) -> None:
            if confirmed:
                getattr(self._queue, order)()
                self._draw()

        n_waiting = sum(item.state is WorkState.WAITING for item in self._queue.items)
        if order == "cancel" and n_waiting:
            running = "the running run and " if self._queue.running is not None else ""
            question = f"Cancel {running}{counted(n_waiting, 'waiting run')}? Measurements are kept."
            self.app.push_screen(ConfirmScreen(question, "Cancel all"), go_on)
        else:
            go_on(confirmed=True)

    def action_remove(self) -> None:
        if (item := self._chosen) is not None:
            self._queue.remove(item.id)
            self._draw()

    @on(OptionList.OptionSelected, "#queue")
    def action_open(self) -> None:
        """Open the run at the cursor among the results, unless it waits, runs or is not stored."""
        item = self._chosen
        if item is not None and item.run_id is not None and item.state.is_over:
            self.app.post_message(RunsOpened([item.run_id]))

    def action_next_plot(self) -> None:
        self.query_one(CurvesPlot).show_next()

    def action_reset_zoom(self) -> None:
        self.query_one(CurvesPlot).action_reset_scales()

    def action_toggle_text(self) -> None:
        self.toggle_class("-text")
        self._draw()

    @property
    def _queue(self) -> RunQueue:
        return host_of(self).run_queue

    @property
    def _is_mute(self) -> bool:
        live = self._queue.live
        return live is None or not presenter_of(self._queue.items[live.item_id].kind).has_samples

    def _look(self) -> None:
        """Draw changes: another state at once, more tokens when they are due."""
        queue = self._queue
        if not self.is_current or queue.revision == self._drawn_revision:
            return
        if queue.items != self._drawn_items or time.monotonic() >= self._due_at:
            self._draw()

    @on(ScreenResume)
    def _draw(self) -> None:
        if not self.app.is_running:  # during exit, widgets may have lost their children
            return
        queue, started = self._queue, time.thread_time()
        live, items, plotted = (
            queue.live,
            queue.items,
            queue.plotted,
        )  # in this order: the live job is among the items
        is_token = items == self._drawn_items
        self._drawn_items, self._drawn_revision = items, queue.revision
        self.set_class(bool(items), "-busy").set_class(self._is_mute, "-mute")
        letters = {job.item_id: letter(index) for index, job in enumerate(plotted)}
        self.query_one(QueueList).show(items, letters, paused=queue.is_paused)
        self._show_reason()
        if live is not None:
            self._show_live(live, items, plotted)
        if is_token:
            self.call_after_refresh(self._note_cost, started)

    def _note_cost(self, started: float) -> None:
        """Set the time of the next draw, by this thread's CPU time since a draw that has been painted."""
        live = self._queue.live
        beside_gpu = live is not None and live.memory is not None and live.memory.weights_on_gpu
        share = _SHARE_BESIDE_A_GPU if beside_gpu else _SHARE_OF_A_CORE
        self._due_at = time.monotonic() + (time.thread_time() - started) / share

    @property
    def _chosen(self) -> QueueItem | None:
        """The item at the cursor of the queue."""
        items, row = self._queue.items, self.query_one(QueueList).highlighted
        return items[row] if row is not None and row < len(items) else None

    def _show_live(self, live: LiveJob, items: tuple[QueueItem, ...], plotted: tuple[LiveJob, ...]) -> None:
        item, queue = items[live.item_id], self._queue
        switcher, widget_id = self.query_one(ContentSwitcher), _WIDGETS[presenter_of(item.kind).live_view]
        switcher.current = widget_id
        view = switcher.get_child_by_id(widget_id)
        if isinstance(view, Lines):
            lines = bracket_lines(live.answers, live.question, live.asked_s)
            view.lines = tuple(lines[-max(1, view.size.height) :])
        elif isinstance(view, CurvesPlot):
            self._show_curves(view, live, items, plotted)
        numbers = number_lines(live, item, paused=queue.is_paused)
        self.query_one("#numbers", Lines).lines = tuple(numbers)
        reading = live.reading if queue.is_busy else None
        self.query_one("#gauges", Lines).lines = () if reading is None else tuple(gauge_lines(reading))
        if self.has_class("-text"):
            self.query_one(DecodedText).text = live.text

    def _show_curves(
        self, view: CurvesPlot, live: LiveJob, items: tuple[QueueItem, ...], plotted: tuple[LiveJob, ...]
    ) -> None:
        item, shown = items[live.item_id], [items[job.item_id] for job in plotted]
        names = distinct_by_kv(row_labels([each.subject for each in shown]), [each.setup for each in shown])
        own = live.plotted("")
        runs = [
            job.plotted(name, behind=None if job is live else own)
            for job, name in zip(plotted, names, strict=True)
        ]
        view.show(line_charts_of([item.kind], runs))
        # without values there is no scale, and that of an earlier run is not this one's
        view.visible = not view.figure.is_empty and (live in plotted or item.state.is_over)

    @on(OptionList.OptionHighlighted, "#queue")
    def _show_reason(self) -> None:
        """Show why the run is not stored or, if it is, why the chosen job failed."""
        text, error, chosen = "", self._queue.store_error, self._chosen
        if error is not None:
            text = f"! not stored: {error.message}; {error.hint}"
        elif chosen is not None and chosen.state is WorkState.FAILED:
            text = f"✗ {chosen.reason}"
        reason = self.query_one("#reason", Static)
        reason.display = bool(text)
        reason.update(Text(sanitize(text)))
        self.refresh_bindings()
