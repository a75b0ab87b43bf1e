"""Runs side by side: overlaid curves, a table with the better value marked, and other differences."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Footer, Static

from ggbench.report.comparison import compare_quants
from ggbench.tui.screens.measured_screen import DetailsPane, MeasuredScreen
from ggbench.tui.widgets.comparison_table import ComparisonTable
from ggbench.tui.widgets.latency_plot import LatencyPlot
from ggbench.tui.widgets.mode_bar import TooSmall
from ggbench.tui.widgets.status_message import StatusMessage


class CompareScreen(MeasuredScreen):
    """Two or more runs."""

    CSS_PATH = "compare.tcss"
    HELP = """★ marks the better value: its 95 % interval does not overlap the other's, and no run beats it.
Memory is exact and needs no interval. If a run has no interval, the table names the larger or smaller value without ★.
In the plot: samples as a band, ╌ the fitted line, · the limit of the machine's memory bandwidth."""

    def compose(self) -> ComposeResult:
        """Lay out the curves over the table."""
        numbers = ", ".join(str(one.run_id) for one in self.runs)
        yield Static(f"Comparing runs {numbers}", id="title", markup=False)
        with DetailsPane(id="pane"):
            if any(one.has_samples for one in self.runs):
                yield LatencyPlot()
            yield ComparisonTable(id="table")
        yield StatusMessage()
        yield TooSmall()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Draw the curves and the table."""
        for plot in self.query(LatencyPlot):
            plot.show([one.series() for one in self.runs])
        self.query_one(ComparisonTable).show(compare_quants([one.summary for one in self.runs]))
