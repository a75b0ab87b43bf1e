"""Runs side by side: a column for each, a line for each property, and a verdict on which is better."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from ggbench.report.comparison import Comparison
from ggbench.report.plot.palette import letter
from ggbench.report.terminal.layout import GAP, add_column, new_table

_BETTER = "★"
_VERDICT_WIDTH = 24
"""Minimum width of the verdicts; they wrap beyond it."""


class ComparisonTable(Static):
    """What is better is bold with a star and named in the verdict; then what differs, by topic."""

    def show(self, comparison: Comparison) -> None:
        """Show it in place of what is there; no number is cut off, so that many runs make it wider than the window."""
        names = [Text(f"{letter(index)} ", style="bold") + Text(name) for index, name in enumerate(comparison.names)]
        self.styles.min_width = _least_width(comparison) + self.gutter.width
        self.update(Group(*names, Text(), _table(comparison), Text(), *_notes(comparison)))


def _table(comparison: Comparison) -> Table:
    """The numbers, and which are better."""
    table = new_table()
    add_column(table, "")
    for index in range(len(comparison.names)):
        add_column(table, letter(index), right=True)
    add_column(table, "", wrap=True)
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
    """Characters that the table takes with its verdicts wrapped."""
    headers = [f"{line.header} {line.unit}".strip() for line in comparison.lines]
    by_run = zip(*(line.texts for line in comparison.lines), strict=True)
    columns = [headers, *([f"{_BETTER} {text}" for text in texts] for texts in by_run)]
    return sum(max(map(cell_len, column)) + GAP for column in columns) + _VERDICT_WIDTH


def _notes(comparison: Comparison) -> list[Text]:
    """Warnings, and a line for each difference under its topic."""
    notes = [Text(f"! {warning}") for warning in comparison.warnings]
    for differences in comparison.differences:
        notes.append(Text(f"{'Different' if differences.lines else 'Same'} {differences.topic}", "bold"))
        notes += [Text(f"  {line}") for line in differences.lines]
    return notes
