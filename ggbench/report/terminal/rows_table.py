"""Measured rows as one table, for any selection of columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ggbench.records.outcome import Outcome
from ggbench.report.columns import COLUMNS
from ggbench.report.terminal.fitted import Cells, fitted_table
from ggbench.report.terminal.layout import TWIN_CAPTION


def rows_table(
    rows: Sequence[Row], keys: Sequence[str], title: str | None = None, *, width: int | None = None
) -> Table:
    """The columns named by `keys` of every row; a row that did not complete is dim, and its note says why.

    `width` is the terminal's, in characters; None keeps every column in the table.
    """
    names = ("model", "quant") if len({row.model for row in rows}) > 1 else ("quant",)
    return fitted_table(
        [Cells.of(COLUMNS[key], [COLUMNS[key].text(row) for row in rows]) for key in keys],
        labels=[" ".join(COLUMNS[name].text(row) for name in names) for row in rows],
        dim=[row.outcome is not Outcome.COMPLETED for row in rows],
        title=title,
        width=width,
        caption=TWIN_CAPTION if any(row.provenance == "twin" for row in rows) else "",
    )
