"""Measured quants as one table, for any selection of columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS
from ggbench.report.terminal.fitted import Cells, fitted_table
from ggbench.report.terminal.layout import TWIN_CAPTION


def rows_table(
    summaries: Sequence[QuantSummary], keys: Sequence[str], title: str | None = None, *, width: int | None = None
) -> Table:
    """The columns named by `keys` of every quant; one that did not complete is dim, and its note says why.

    `width` is the terminal's, in characters; None keeps every column in the table.
    """
    names = ("model", "quant") if len({summary.subject.model for summary in summaries}) > 1 else ("quant",)
    return fitted_table(
        [Cells.of(COLUMNS[key], [COLUMNS[key].text(summary) for summary in summaries]) for key in keys],
        labels=[" ".join(COLUMNS[name].text(summary) for name in names) for summary in summaries],
        dim=[summary.outcome is not Outcome.COMPLETED for summary in summaries],
        title=title,
        width=width,
        caption=TWIN_CAPTION if any(summary.subject.source == "twin" for summary in summaries) else "",
    )
