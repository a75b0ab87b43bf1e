"""Measured quants and stored runs, one in a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from rich.table import Table

from ggbench.engines.endings import Outcome
from ggbench.runs.store.runs import RUNNING
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import all_columns, column_texts, imported_text
from ggbench.show.glossary import MARKED, MARKED_RUN, UNSTEADY
from ggbench.show.listed_runs import ListedRun, named_runs
from ggbench.show.names import row_labels
from ggbench.show.terminal.tables import Cells, fitted_table, left, names, notes, right, twin_caption
from ggbench.text import plain
from ggbench.units import format_count

_ANSWERS = {"w_tokens_per_ms": 2, "b_ms": 3, "tok_s": 1}
"""Figures that a list of runs of any kind has, with their priority in it."""


def rows_table(summaries: Sequence[QuantSummary], keys: Sequence[str], *, width: int | None = None) -> Table:
    """The columns named by `keys` of every quant; one that did not complete is dim, and its note says why.

    `width` is the terminal's, in characters; None keeps every column in the table.
    """
    is_marked = "tok_s" in keys and any(summary.unsteady for summary in summaries)
    return fitted_table(
        [_cells(key, column_texts(key, summaries)) for key in keys],
        labels=row_labels([summary.subject for summary in summaries]),
        dim=[summary.outcome is not Outcome.COMPLETED for summary in summaries],
        width=width,
        caption=_caption(is_marked and MARKED, twin_caption(summary.subject for summary in summaries)),
    )


def runs_table(runs: Sequence[ListedRun], *, width: int | None = None) -> Table:
    """Stored runs, in the order given, with what came of them so far; `width` as in `rows_table`.

    An unsteady run is only marked: what disturbed it is in its details.
    """
    runs = named_runs(runs)
    labels = [str(run.run_id) for run in runs]
    is_marked = any(run.text("tok_s").startswith(UNSTEADY) for run in runs)
    return fitted_table(
        [
            right("run", labels),
            left("started", (run.stored.started_at[:16].replace("T", " ") for run in runs), "UTC", 5),
            left("kind", (run.stored.kind for run in runs)),
            names("model", (run.model for run in runs)),
            names("quant", (run.subject.quant for run in runs)),
            left("source", (run.subject.source for run in runs), priority=4),
            right("samples", (format_count(run.stored.n_samples) for run in runs), priority=6),
            *(replace(_cells(key, (run.text(key) for run in runs)), priority=rank) for key, rank in _ANSWERS.items()),
            left("outcome", (run.answer for run in runs)),
            notes(_note(run) for run in runs),
        ],
        labels=[f"run {label}" for label in labels],
        dim=[not run.is_completed for run in runs],
        width=width,
        caption=_caption(is_marked and MARKED_RUN, twin_caption(run.subject for run in runs)),
    )


def _note(run: ListedRun) -> str:
    """What is wrong with a run, after what marks one that was not measured here."""
    mark, problem = imported_text(run.stored.environment), _problem(run)
    return problem if mark in problem else "; ".join(filter(None, (mark, problem)))


def _problem(run: ListedRun) -> str:
    """Why a run has no figures; empty where a column has them, and where its state says it all."""
    if run.summary is None or run.problem:
        return run.problem
    if run.is_completed:
        has_answer = run.summary.max_n_ctx is not None or any(run.text(key) != UNKNOWN for key in _ANSWERS)
        return "" if has_answer else run.note
    return "" if run.stored.state == RUNNING else plain(run.summary.run.reason)


def _caption(*lines: str | bool) -> str:
    return "\n".join(line for line in lines if isinstance(line, str) and line)


def _cells(key: str, texts: Iterable[str]) -> Cells:
    column, is_name = all_columns()[key], key in ("model", "quant")
    sides = column.unit, column.right_aligned, column.priority
    return Cells(column.header, tuple(texts), *sides, is_note=key == "note", is_name=is_name)
