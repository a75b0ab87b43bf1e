"""One run in full: its latency curve and all that its presenter knows of it."""

from __future__ import annotations

from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from ggbench.errors import StoreError
from ggbench.plain import plain
from ggbench.report.names import quant_name
from ggbench.report.registry import presenter_of
from ggbench.tui.screens.measured_screen import DetailsPane, MeasuredScreen
from ggbench.tui.stored_runs import MeasuredRun
from ggbench.tui.widgets.latency_plot import LatencyPlot
from ggbench.tui.widgets.mode_bar import TooSmall
from ggbench.tui.widgets.status_message import StatusMessage


class RunDetails(MeasuredScreen):
    """Details of the single run in `runs`."""

    CSS_PATH = "compare.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "copy_command", "Copy command")]

    def compose(self) -> ComposeResult:
        """Lay out the curve over the details."""
        (measured,) = self.runs
        listed, stored = measured.listed, measured.listed.stored
        started = plain(stored.started_at[:16]).replace("T", " ")
        yield Static(f"Run {listed.run_id} · {plain(stored.kind)} · {started} UTC", id="title", markup=False)
        with DetailsPane(id="pane"):
            if measured.has_samples:
                yield LatencyPlot()
            if listed.problem:
                yield Static(f"! {listed.problem}", classes="problem", markup=False)
            yield Static(_details(measured), id="details")
        yield StatusMessage()
        yield TooSmall()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Draw the curve."""
        for plot in self.query(LatencyPlot):
            plot.show([one.series() for one in self.runs])

    def action_copy_command(self) -> None:
        """Copy the command that repeats the run."""
        self.query_one(StatusMessage).copy_commands(self.runs[0].listed.stored.command)


def _details(measured: MeasuredRun) -> RenderableType:
    """Return all that is known of a run; of one that this ggbench cannot read, what it was and how it ended."""
    listed = measured.listed
    if listed.run is not None:
        try:
            return presenter_of(listed.run.head.kind).details(listed.run, folded=True, readings=measured.readings)
        except StoreError:
            pass
    lines = (quant_name(listed.subject), listed.state, plain(listed.subject.file), plain(listed.stored.command))
    return Text("\n".join(filter(None, lines)))
