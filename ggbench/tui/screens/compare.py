"""Runs side by side: curves over each other, a table with the better marked, and what else differs."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Footer, Static

from ggbench.report.comparison import compare_rows
from ggbench.tui.screens.measured_screen import MeasuredScreen, Reading
from ggbench.tui.widgets.comparison_table import ComparisonTable
from ggbench.tui.widgets.latency_plot import LatencyPlot
from ggbench.tui.widgets.mode_bar import TooSmall
from ggbench.tui.widgets.told import Told


class CompareScreen(MeasuredScreen):
    """Two of `runs` or more."""

    CSS_PATH = "compare.tcss"
    HELP = """★ is better: its 95 % interval lies wholly beyond another's, and no other's beyond its own.
Memory has no interval: it is exact. Where one run tells none, the larger or the lower is named and nothing claimed.
In the plot: samples as a band, ╌ the fitted line, · the limit of the machine's memory."""

    def compose(self) -> ComposeResult:
        """The curves, and under them what is read."""
        numbers = ", ".join(str(one.run.run_id) for one in self.runs)
        yield Static(f"Comparing runs {numbers}", id="title", markup=False)
        with Reading(id="reading"):
            if any(len(one.samples.step_ns) for one in self.runs):
                yield LatencyPlot()
            yield ComparisonTable(id="table")
        yield Told()
        yield TooSmall()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Draw what was read."""
        for plot in self.query(LatencyPlot):
            plot.show([one.series() for one in self.runs])
        self.query_one(ComparisonTable).show(compare_rows([one.run.row for one in self.runs]))
