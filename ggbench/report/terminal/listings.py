"""Tables of a line each: measured quants, stored runs, models of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from ggbench.gguf_file.blueprint import count_params
from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import ANSWERS, COLUMNS, UNKNOWN
from ggbench.report.names import model_name
from ggbench.report.terminal.fitted import Cells, fitted_table, left, names, notes, right
from ggbench.report.terminal.layout import twin_caption
from ggbench.units import format_count, format_params

if TYPE_CHECKING:
    from ggbench.catalog.models import CatalogModel
    from ggbench.report.listed_runs import ListedRun


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
        caption=twin_caption(summary.subject for summary in summaries),
    )


def runs_table(runs: Sequence[ListedRun], *, width: int | None = None) -> Table:
    """Stored runs, in the order given, with what came of them so far; `width` as in `rows_table`."""
    labels = [str(run.run_id) for run in runs]
    return fitted_table(
        [
            right("run", labels),
            left("started", (run.stored.started_at[:16].replace("T", " ") for run in runs), "UTC", 3),
            left("kind", (run.stored.kind for run in runs), priority=5),
            names("model", (model_name(run.subject) for run in runs)),
            names("quant", (run.subject.quant for run in runs)),
            left("source", (run.subject.source for run in runs)),
            right("samples", (format_count(run.stored.n_samples) for run in runs), priority=4),
            *(Cells.of(COLUMNS[key], [run.text(key) for run in runs]) for key in ANSWERS),
            left("state", (run.state for run in runs), priority=2),
            notes(run.note for run in runs),
        ],
        labels=[f"run {label}" for label in labels],
        dim=[not run.is_completed for run in runs],
        width=width,
        caption=twin_caption(run.subject for run in runs),
    )


def catalog_table(
    models: Iterable[CatalogModel], twins: Mapping[str, Sequence[str]], *, width: int | None = None
) -> Table:
    """The models that ggbench knows by id; `twins` names the quants whose twins are on this disk, by id."""
    models = tuple(models)
    own = [model.origin == "user" for model in models]
    return fitted_table(
        [
            names("id", (model.id + "*" * is_own for model, is_own in zip(models, own, strict=True))),
            names("title", (model.title for model in models), 4),
            right("parameters", (format_params(count_params(model.hyper)) for model in models)),
            right("layers", (format_count(model.hyper.n_layer) for model in models), priority=2),
            right("trained to", (format_count(model.hyper.n_ctx_train) for model in models), "tokens"),
            names("Hub repo", (model.repo or UNKNOWN for model in models), 1),
            left("twins here", (" ".join(twins.get(model.id, ())) for model in models), priority=3),
        ],
        width=width,
        caption="*: from your own models.toml" if any(own) else "",
    )
