"""Measured quants and stored runs, one in a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import ANSWERS, COLUMNS, column_texts
from ggbench.report.listed_runs import ListedRun, named_runs
from ggbench.report.names import row_labels
from ggbench.report.terminal.tables import Cells, fitted_table, left, names, notes, right, twin_caption
from ggbench.units import format_count


def rows_table(
    summaries: Sequence[QuantSummary], keys: Sequence[str], title: str | None = None, *, width: int | None = None
) -> Table:
    """The columns named by `keys` of every quant; one that did not complete is dim, and its note says why.

    `width` is the terminal's, in characters; None keeps every column in the table.
    """
    return fitted_table(
        [_cells(key, column_texts(key, summaries)) for key in keys],
        labels=row_labels([summary.subject for summary in summaries]),
        dim=[summary.outcome is not Outcome.COMPLETED for summary in summaries],
        title=title,
        width=width,
        caption=twin_caption(summary.subject for summary in summaries),
    )


def runs_table(runs: Sequence[ListedRun], *, width: int | None = None) -> Table:
    """Stored runs, in the order given, with what came of them so far; `width` as in `rows_table`."""
    runs = named_runs(runs)
    labels = [str(run.run_id) for run in runs]
    return fitted_table(
        [
            right("run", labels),
            left("started", (run.stored.started_at[:16].replace("T", " ") for run in runs), "UTC", 3),
            left("kind", (run.stored.kind for run in runs), priority=5),
            names("model", (run.model for run in runs)),
            names("quant", (run.subject.quant for run in runs)),
            left("source", (run.subject.source for run in runs)),
            right("samples", (format_count(run.stored.n_samples) for run in runs), priority=4),
            *(_cells(key, (run.text(key) for run in runs)) for key in ANSWERS),
            left("state", (run.state for run in runs), priority=2),
            notes(run.note for run in runs),
        ],
        labels=[f"run {label}" for label in labels],
        dim=[not run.is_completed for run in runs],
        width=width,
        caption=twin_caption(run.subject for run in runs),
    )


def _cells(key: str, texts: Iterable[str]) -> Cells:
    column, is_name = COLUMNS[key], key in ("model", "quant")
    sides = column.unit, column.right_aligned, column.priority
    return Cells(column.header, tuple(texts), *sides, is_note=key == "note", is_name=is_name)
