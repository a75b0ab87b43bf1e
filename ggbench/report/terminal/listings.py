"""Lists: stored runs, models of the catalog, variants on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from ggbench.catalog.local_files import LocalVariant
from ggbench.catalog.models import CatalogModel
from ggbench.records import Outcome
from ggbench.report.columns import COLUMNS, UNKNOWN, note
from ggbench.report.plain import plain
from ggbench.report.terminal.layout import TWIN_CAPTION, add_column, new_table
from ggbench.store.runs import RunSummary
from ggbench.units import format_bytes, format_count

_MEASURED = ("w_tokens_per_ms", "b_ms", "tok_s")


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """Stored runs, as the store orders them, with W, B and speed where they came so far."""
    table = new_table()
    add_column(table, "run", right=True)
    for header, unit in (("started", "UTC"), ("kind", ""), ("model", ""), ("quant", ""), ("weights", "")):
        add_column(table, header, unit)
    add_column(table, "samples", right=True)
    for key in _MEASURED:
        add_column(table, COLUMNS[key].header, COLUMNS[key].unit, right=True)
    add_column(table, "state", wrap=True)
    for run in runs:
        measured = [COLUMNS[key].text(run.row) if run.row else UNKNOWN for key in _MEASURED]
        names = (run.kind, run.model, run.quant, run.provenance)
        texts = [
            str(run.run_id),
            run.started_at[:16].replace("T", " "),
            *map(plain, names),
            format_count(run.n_samples),
        ]
        style = "" if run.state == Outcome.COMPLETED else "dim"
        table.add_row(*map(Text, [*texts, *measured, _state(run)]), style=style)
    if any(run.provenance == "twin" for run in runs):
        table.caption = Text(TWIN_CAPTION)
    return table


def _state(run: RunSummary) -> str:
    why = (note(run.row) if run.row else "") or plain(run.row_error)
    return why or run.state.replace("_", " ")


def catalog_table(models: Iterable[CatalogModel]) -> Table:
    """The models that ggbench knows by id."""
    table = new_table()
    for header in ("id", "title"):
        add_column(table, header)
    add_column(table, "layers", right=True)
    add_column(table, "trained to", "tokens", right=True)
    add_column(table, "Hub repo", wrap=True)
    own = False
    for model in models:
        own = own or model.origin == "user"
        mark = "*" if model.origin == "user" else ""
        shape = (format_count(model.hyper.n_layer), format_count(model.hyper.n_ctx_train))
        table.add_row(
            *map(Text, (f"{plain(model.id)}{mark}", plain(model.title), *shape, plain(model.repo or UNKNOWN)))
        )
    if own:
        table.caption = Text("*: from your own models.toml")
    return table


def variants_table(variants: Iterable[LocalVariant]) -> Table:
    """The variants in a folder."""
    table = new_table()
    for header in ("model", "quant"):
        add_column(table, header)
    add_column(table, "size", right=True)
    add_column(table, "file", wrap=True)
    for variant in variants:
        shards = f" and {len(variant.paths) - 1} more" if len(variant.paths) > 1 else ""
        missing = f", {variant.n_missing} shards missing" if variant.n_missing else ""
        file = f"{plain(str(variant.paths[0]))}{shards}{missing}" if variant.paths else UNKNOWN
        texts = (plain(variant.name), variant.quant or UNKNOWN, format_bytes(variant.file_bytes), file)
        table.add_row(*map(Text, texts), style="dim" if variant.n_missing else "")
    return table
