"""The Run screen: the queue and the progress of the running job.

Drawing takes CPU time from the decode. So tokens do not trigger draws: the screen draws only changes, at its own pace,
the slower the more a draw costs.
"""

from __future__ import annotations

import time
from typing import ClassVar, Literal

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widgets import ContentSwitcher, OptionList, Static

from ggbench.show import letter
from ggbench.show.names import distinct_by_kv, row_labels
from ggbench.show.presenter import LiveView, figures_of, presenter_of
from ggbench.text import sanitize
from ggbench.tui.host import RunsOpened, host_of
from ggbench.tui.live_job import LiveJob
from ggbench.tui.run_queue import QueueItem, RunQueue
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.widgets.bars import KeysFooter
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.run_panels import BracketPlot, DecodedText, Lines, QueueList, gauge_lines, number_lines
from ggbench.tui.work_queue import WorkState
from ggbench.units import counted

_LOOK_EVERY_S = 0.1
_SHARE_OF_A_CORE = 0.01
"""Maximum share of the time spent drawing while the decode uses every core."""
_SHARE_BESIDE_A_GPU = 0.2
"""The same while the weights are on GPUs, so that the CPU is idle."""
_READ_EVERY_S = 1.0
_LAST = "last reading"
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
        Binding("p", "order('pause')", "Pause", tooltip="Pause the decode between two tokens; no other job starts"),
        Binding("p", "order('resume')", "Resume", tooltip="Continue after a pause"),
        Binding("s", "order('skip')", "Skip", tooltip="Stop the running job, keep its measurements, start the next"),
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
        self._is_reading = False
        self._drawn_asked_s: int | None = None
        self._shown_keys: tuple[bool, ...] | None = None
        """State of the keys when last shown."""
        self._reason = ""

    def compose(self) -> ComposeResult:
        yield Static(_NOTHING, id="nothing", markup=False)
        with Vertical(id="board"):
            yield QueueList(id="queue")
            yield Static(id="reason", markup=False)
            with Horizontal(id="middle"):
                with ContentSwitcher(id="curves", initial="plot"):
                    yield CurvesPlot(id="plot")
                    yield BracketPlot(id="bracket")
                with Vertical(id="side"):
                    yield Lines(id="numbers")
                    yield Lines(id="gauges")
            yield DecodedText(id="text")
        yield KeysFooter()

    def on_mount(self) -> None:
        self.set_interval(_READ_EVERY_S, self._read_machine)
        self.set_interval(_LOOK_EVERY_S, self._look)
        self._draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_busy, is_paused, is_mute, has_figures, is_waiting, is_stored = self._keys()
        if action == "remove":
            return is_waiting
        if action == "open":
            return is_stored
        if action == "order":
            return is_busy and (parameters[0] in ("skip", "cancel") or is_paused == (parameters[0] == "resume"))
        if action == "next_plot":
            return has_figures
        return not (action == "toggle_text" and (is_mute or self._queue.live is None))

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

    def _look(self) -> None:
        """Draw changes: another state at once, more tokens when they are due."""
        queue = self._queue
        asked_s = None if queue.live is None else queue.live.asked_s
        if not self.is_current or (queue.revision == self._drawn_revision and asked_s == self._drawn_asked_s):
            return
        if queue.items != self._drawn_items or time.monotonic() >= self._due_at:
            self._draw()

    @on(ScreenResume)
    def _draw(self) -> None:
        if not self.app.is_running:  # during exit, widgets may have lost their children
            return
        queue, started = self._queue, time.thread_time()
        live, items, plotted = queue.live, queue.items, queue.plotted  # in this order: the live job is among the items
        is_token = items == self._drawn_items
        self._drawn_items, self._drawn_revision = items, queue.revision
        self._drawn_asked_s = None if live is None else live.asked_s
        self.set_class(bool(items), "-busy")
        letters = {job.item_id: letter(index) for index, job in enumerate(plotted)}
        self.query_one(QueueList).show(items, letters, paused=queue.is_paused)
        self._show_reason()
        if not queue.is_busy:
            gauges = self.query_one("#gauges", Lines)
            if gauges.lines and gauges.lines[0] != _LAST:
                gauges.lines = (_LAST, *gauges.lines)
        if live is not None:
            self._show_live(live, items, plotted, paused=queue.is_paused)
        self._show_keys()
        if is_token:
            self.call_after_refresh(self._note_cost, started)

    def _note_cost(self, started: float) -> None:
        """Set the time of the next draw, by this thread's CPU time since a draw that has been painted."""
        live = self._queue.live
        beside_gpu = live is not None and live.memory is not None and live.memory.weights_on_gpu
        share = _SHARE_BESIDE_A_GPU if beside_gpu else _SHARE_OF_A_CORE
        self._due_at = time.monotonic() + (time.thread_time() - started) / share

    def _show_keys(self) -> None:
        keys = self._keys()
        if keys != self._shown_keys:
            self._shown_keys = keys
            self.set_class(keys[2], "-mute")
            self.refresh_bindings()

    @property
    def _chosen(self) -> QueueItem | None:
        """The item at the cursor of the queue."""
        items, row = self._queue.items, self.query_one(QueueList).highlighted
        return items[row] if row is not None and row < len(items) else None

    def _keys(self) -> tuple[bool, bool, bool, bool, bool, bool]:
        """Return whether a run is in progress, is paused, has no text, has several figures, and whether the chosen one
        waits, and is over and stored.
        """
        queue = self._queue
        live = queue.live
        is_mute = live is not None and not presenter_of(queue.items[live.item_id].kind).has_samples
        is_plotted = self.query_one(ContentSwitcher).current == "plot"
        has_figures = is_plotted and len(self.query_one(CurvesPlot).figures) > 1
        chosen = self._chosen
        is_waiting = chosen is not None and chosen.state is WorkState.WAITING
        is_stored = chosen is not None and chosen.state.is_over and chosen.run_id is not None
        return queue.is_busy, queue.is_paused, is_mute, has_figures, is_waiting, is_stored

    def _show_live(
        self, live: LiveJob, items: tuple[QueueItem, ...], plotted: tuple[LiveJob, ...], *, paused: bool
    ) -> None:
        item = items[live.item_id]
        switcher, widget_id = self.query_one(ContentSwitcher), _WIDGETS[presenter_of(item.kind).live_view]
        switcher.current = widget_id
        view = switcher.get_child_by_id(widget_id)
        if isinstance(view, BracketPlot):
            view.answers, view.question, view.asked_s = live.answers, live.question, self._drawn_asked_s
        elif isinstance(view, CurvesPlot):
            shown = [items[job.item_id] for job in plotted]
            names = distinct_by_kv(row_labels([each.subject for each in shown]), [each.setup for each in shown])
            own = live.plotted("")
            behind = [None if job is live else own for job in plotted]
            runs = [job.plotted(name, behind=other) for job, name, other in zip(plotted, names, behind, strict=True)]
            view.show(figures_of([item.kind], runs))
            # without values there is no scale, and that of an earlier run is not this one's
            view.visible = not view.figure.is_empty and (live in plotted or item.state.is_over)
        following = next((each for each in items if each.state is WorkState.WAITING), None)
        numbers = number_lines(live, item, following, paused=paused, waiting=self._queue.work_waiting)
        self.query_one("#numbers", Lines).lines = tuple(numbers)
        if self.has_class("-text"):
            self.query_one(DecodedText).show(live.text, n_done=live.n_done, is_twin=live.is_twin)

    @on(OptionList.OptionHighlighted, "#queue")
    def _show_reason(self) -> None:
        """Show why the run is not stored or, if it is, the reason of the chosen job, or its line if that is cut."""
        reason, error, chosen = self.query_one("#reason", Static), self._queue.store_error, self._chosen
        text, is_problem = self.query_one(QueueList).cut_line, True
        if error is not None:
            text = f"! not stored: {error.message}; {error.hint}"
        elif chosen is not None and chosen.state is WorkState.FAILED:
            text = f"✗ {chosen.reason}"
        else:
            is_problem = False
        if text != self._reason:
            self._reason = text
            reason.set_class(bool(text), "-shown").set_class(is_problem, "-problem")
            reason.update(Text(sanitize(text)))
        self._show_keys()

    def _read_machine(self) -> None:
        if self.is_current and self._queue.is_busy and not self._is_reading:
            self._is_reading = True
            self._read()

    @work(thread=True, group="machine", exit_on_error=False)
    def _read(self) -> None:
        """Read in a thread, as a driver may be slow to answer."""
        try:
            reading = host_of(self).services.read_machine()
        finally:
            self._is_reading = False
        if self._queue.is_busy:
            gauges = self.query_one("#gauges", Lines)
            self.app.call_from_thread(setattr, gauges, "lines", tuple(gauge_lines(reading)))
