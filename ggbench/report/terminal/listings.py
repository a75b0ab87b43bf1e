"""Tables of a line each: measured quants, stored runs, models of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from ggbench.gguf_file.blueprint import count_params
from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import ANSWERS, COLUMNS, ESSENTIAL, UNKNOWN
from ggbench.report.names import model_name
from ggbench.report.terminal.fitted import Cells, fitted_table
from ggbench.report.terminal.layout import TWIN_CAPTION
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
        caption=TWIN_CAPTION if any(summary.subject.source == "twin" for summary in summaries) else "",
    )


def runs_table(runs: Sequence[ListedRun], *, width: int | None = None) -> Table:
    """Stored runs, in the order given, with what came of them so far; `width` as in `rows_table`."""

    def names(header: str, texts: Iterable[str], priority: int = ESSENTIAL, *, is_name: bool = False) -> Cells:
        return Cells(header, tuple(map(plain, texts)), priority=priority, is_name=is_name)

    labels = tuple(str(run.run_id) for run in runs)
    started = tuple(plain(run.stored.started_at[:16]).replace("T", " ") for run in runs)
    samples = tuple(format_count(run.stored.n_samples) for run in runs)
    return fitted_table(
        [
            Cells("run", labels, right_aligned=True),
            Cells("started", started, "UTC", priority=3),
            names("kind", (run.stored.kind for run in runs), 5),
            names("model", (model_name(run.subject) for run in runs), is_name=True),
            names("quant", (run.subject.quant for run in runs), is_name=True),
            names("source", (run.subject.source for run in runs)),
            Cells("samples", samples, right_aligned=True, priority=4),
            *(Cells.of(COLUMNS[key], [run.text(key) for run in runs]) for key in ANSWERS),
            names("state", (run.state for run in runs), 2),
            Cells("note", tuple(run.note for run in runs), is_note=True),
        ],
        labels=[f"run {label}" for label in labels],
        dim=[not run.is_completed for run in runs],
        width=width,
        caption=TWIN_CAPTION if any(run.subject.source == "twin" for run in runs) else "",
    )


def catalog_table(
    models: Iterable[CatalogModel], twins: Mapping[str, Sequence[str]], *, width: int | None = None
) -> Table:
    """The models that ggbench knows by id; `twins` names the quants whose twins are on this disk, by id."""
    models = tuple(models)
    own = [model.origin == "user" for model in models]
    labels = tuple(plain(model.id) + "*" * is_own for model, is_own in zip(models, own, strict=True))

    def numbers(header: str, texts: Iterable[str], unit: str = "", priority: int = ESSENTIAL) -> Cells:
        return Cells(header, tuple(texts), unit, right_aligned=True, priority=priority)

    return fitted_table(
        [
            Cells("id", labels, is_name=True),
            Cells("title", tuple(plain(model.title) for model in models), priority=4, is_name=True),
            numbers("parameters", (format_params(count_params(model.hyper)) for model in models)),
            numbers("layers", (format_count(model.hyper.n_layer) for model in models), priority=2),
            numbers("trained to", (format_count(model.hyper.n_ctx_train) for model in models), "tokens"),
            Cells("Hub repo", tuple(plain(model.repo or UNKNOWN) for model in models), priority=1, is_name=True),
            Cells("twins here", tuple(" ".join(twins.get(model.id, ())) for model in models), priority=3),
        ],
        labels=labels,
        dim=[False] * len(models),
        width=width,
        caption="*: from your own models.toml" if any(own) else "",
    )
