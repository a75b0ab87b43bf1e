"""One run in full: its latency curve, or the certificate of a search, and all stored properties."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from ggbench.plain import plain
from ggbench.report.terminal.certificates import certificate_details
from ggbench.report.terminal.row_details import row_details
from ggbench.tui.screens.measured_screen import DetailsPane, MeasuredScreen
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
        run = measured.run
        started = plain(run.summary.started_at[:16]).replace("T", " ")
        yield Static(f"Run {run.run_id} · {plain(run.summary.kind)} · {started} UTC", id="title", markup=False)
        with DetailsPane(id="pane"):
            if len(measured.samples.step_ns):
                yield LatencyPlot()
            if run.problem:
                yield Static(f"! {run.problem}", classes="problem", markup=False)
            found = measured.certificate
            details = row_details(run.row, folded=True) if found is None else certificate_details(found, folded=True)
            yield Static(details, id="details")
        yield StatusMessage()
        yield TooSmall()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Draw the curve."""
        for plot in self.query(LatencyPlot):
            plot.show([one.series() for one in self.runs])

    def action_copy_command(self) -> None:
        """Copy the command that repeats the run."""
        self.query_one(StatusMessage).copy_commands(self.runs[0].run.summary.command)
