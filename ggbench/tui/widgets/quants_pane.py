"""The right side of the Library: the table of quants, its filter, and why the table is empty."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import DataTable, Input, Static

from ggbench.tui.widgets.filter_input import FilterInput
from ggbench.tui.widgets.quants_table import QuantsTable


class QuantsPane(Vertical):
    """The filter is hidden until it is opened."""

    def compose(self) -> ComposeResult:
        """Lay out the filter over the table, and the reason that takes the table's place."""
        yield FilterInput("filter these quants by name", id="quant-filter")
        yield QuantsTable(id="quants")
        yield Static(id="none-shown", markup=False)

    @property
    def table(self) -> QuantsTable:
        """The quants."""
        return self.query_one(QuantsTable)

    @property
    def input(self) -> Input:
        """The filter."""
        return self.query_one(Input)

    def open_filter(self) -> None:
        """Show and focus the filter."""
        self.add_class("-filter")
        self.input.focus()

    def close_filter(self) -> None:
        """Clear and hide the filter, and focus the table."""
        self.input.clear()
        self.remove_class("-filter")
        self.table.focus()

    def show_empty(self, reasons: Sequence[str]) -> None:
        """Show these reasons in place of the quants; the quants where there are none."""
        self.set_class(bool(reasons), "-empty")
        if reasons:
            self.query_one("#none-shown", Static).update("\n".join(reasons))

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self.table.filter(event.value)

    @on(Input.Submitted)
    def _leave_filter(self) -> None:
        self.table.focus()

    @on(DataTable.HeaderSelected)
    def _sort_by_header(self, event: DataTable.HeaderSelected) -> None:
        self.table.sort_by(event.column_index)
