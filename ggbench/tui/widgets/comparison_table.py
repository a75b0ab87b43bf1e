"""Runs side by side: a column for each run, a line for each property, and which run is better."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from ggbench.report.comparison import Comparison
from ggbench.report.plot.palette import letter
from ggbench.report.terminal.tables import GAP, add_column, new_table

_BETTER = "★"
_VERDICT_WIDTH = 24
"""Minimum width of the verdict column, which wraps."""


class ComparisonTable(Static):
    """The better value is bold with a star and stated in words; other differences follow by topic."""

    def __init__(self, comparison: Comparison) -> None:
        names = [Text(f"{letter(index)} ", style="bold") + Text(name) for index, name in enumerate(comparison.names)]
        super().__init__(Group(*names, Text(), _table(comparison), Text(), *_notes(comparison)), id="table")
        self._least_width = _least_width(comparison)

    def on_mount(self) -> None:
        """Widen with the number of runs, also beyond the window: numbers are never truncated."""
        self.styles.min_width = self._least_width + self.gutter.width


def _table(comparison: Comparison) -> Table:
    """Return the table of numbers, the better ones marked."""
    table = new_table()
    add_column(table, "")
    for index in range(len(comparison.names)):
        add_column(table, letter(index), "right")
    add_column(table, "", "wrap")
    table.columns[-1].min_width = _VERDICT_WIDTH
    for line in comparison.lines:
        cells = [
            Text(f"{_BETTER if better else ' '} {text}", style="bold" if better else "")
            for text, better in zip(line.texts, line.better, strict=True)
        ]
        header = Text(line.header)
        header.append(f" {line.unit}" if line.unit else "", style="dim")
        table.add_row(header, *cells, Text(line.verdict))
    return table


def _least_width(comparison: Comparison) -> int:
    """Return the width of the table with its verdicts wrapped, in characters."""
    headers = [f"{line.header} {line.unit}".strip() for line in comparison.lines]
    by_run = zip(*(line.texts for line in comparison.lines), strict=True)
    columns = [headers, *([f"{_BETTER} {text}" for text in texts] for texts in by_run)]
    return sum(max(map(cell_len, column)) + GAP for column in columns) + _VERDICT_WIDTH


def _notes(comparison: Comparison) -> list[Text]:
    """Return the warnings, and a line for each difference under its topic."""
    notes = [Text(f"! {warning}") for warning in comparison.warnings]
    for differences in comparison.differences:
        notes.append(Text(f"{'Different' if differences.lines else 'Same'} {differences.topic}", "bold"))
        notes += [Text(f"  {line}") for line in differences.lines]
    return notes
