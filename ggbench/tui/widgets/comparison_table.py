"""Runs side by side, with the answer on top."""

from __future__ import annotations

from textual.widgets import Static

from ggbench.report.comparison import Comparison
from ggbench.report.terminal.comparison import ComparisonReport


class ComparisonTable(Static):
    """As wide as its place: what does not fit there goes below."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(ComparisonReport(comparison, answer_first=True), id="table")
