"""Models before they are measured: of the catalog, on this disk, in a repo of the Hub, and found by a search."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.gguf_file.blueprint import count_params
from ggbench.show import UNKNOWN
from ggbench.show.tables import GAP, TWIN_CAPTION, facts_table, fitted_table, left, names, notes, right
from ggbench.text import plain
from ggbench.units import format_bytes, format_count, format_params, format_percent

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoListing, RepoSummary, RepoVariant
    from ggbench.models.catalog import CatalogModel
    from ggbench.models.disk import LocalModel

_WIDE = 100
"""Characters; a narrower terminal leaves architecture and trained length to `ggbench inspect`."""
_RIGHT = {"size", "trained to"}


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


def local_models_listing(models: Sequence[LocalModel], *, width: int | None = None) -> Text:
    """Store, quant, size, architecture, trained length, and MODEL as a shell takes it; print it with `soft_wrap`.

    Hundreds of lines take a table of rich's longer than finding the files did, and a path that was folded into a
    column cannot be copied: so this is one text.
    """
    columns = {
        "store": [model.store for model in models],
        "quant": [model.quant or UNKNOWN for model in models],
        "size": [format_bytes(model.file_bytes) for model in models],
    }
    if width is None or width >= _WIDE:
        columns["architecture"] = [model.architecture or UNKNOWN for model in models]
        columns["trained to"] = [format_count(model.n_ctx_train) for model in models]
    padded = [_padded([header, *texts], right=header in _RIGHT) for header, texts in columns.items()]
    header, *lines = map((" " * GAP).join, zip(*padded, ["model", *map(_model_text, models)], strict=True))
    text = Text.assemble((f"{header}\n", "bold"), "─" * cell_len(header))
    for model, line in zip(models, lines, strict=True):
        text.append(f"\n{line}", "dim" if model.reason else None)
    if any(model.is_twin for model in models):
        text.append(f"\n{TWIN_CAPTION}")
    return text


def local_models_total(models: Sequence[LocalModel]) -> str:
    """`3 models, 12.1 GiB`."""
    n_files = sum(bool(model.paths) for model in models)
    return f"{n_files} {'model' if n_files == 1 else 'models'}, {format_bytes(sum(m.file_bytes or 0 for m in models))}"


def _model_text(model: LocalModel) -> str:
    """What to type; before it a name that is in no path, such as Ollama's, and after it what is wrong."""
    typed = plain(_quoted(model.model)) if model.paths else ""
    tells_all = typed and (not model.is_named_by_path or model.name in typed)
    shown = typed if tells_all else f"{plain(model.name)}  {typed}".rstrip()
    return f"{shown}  ({plain(model.reason)})" if model.reason else shown


def _quoted(model: str) -> str:
    """For a POSIX shell, which knows `~` only outside quotes."""
    return f"~/{shlex.quote(model[2:])}" if model.startswith("~/") else shlex.quote(model)


def _padded(texts: Sequence[str], *, right: bool) -> list[str]:
    """All as wide as the widest on the screen."""
    lengths = list(map(cell_len, texts))
    widest = max(lengths)
    blanks = [" " * (widest - length) for length in lengths]
    return [blank + text if right else text + blank for text, blank in zip(texts, blanks, strict=True)]


def repo_report(
    listing: RepoListing, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int], *, width: int
) -> RenderableType:
    """The repo's facts and a line for each variant; `here` has what is whole on this disk, by the variant's name, and
    `here_bytes` what is there of any.
    """
    variants = listing.variants
    sidecars = [f"{file.name} ({format_bytes(file.n_bytes)})" for file in listing.sidecars]
    commit = listing.commit if listing.revision == listing.commit else f"{listing.commit} ({listing.revision})"
    facts = [
        ("commit", commit),
        ("listed", listing.listed_at),
        ("in all", f"{format_bytes(listing.total_bytes)} in {len(variants)} variant{'s' if len(variants) > 1 else ''}"),
        ("sidecars", ", ".join(sidecars)),
        ("other files", format_count(listing.n_other_files)),
    ]
    table = fitted_table(
        [
            names("quant", (each.quant or UNKNOWN for each in variants)),
            right("size", (format_bytes(each.file_bytes) for each in variants)),
            right("files", (format_count(len(each.files)) for each in variants), priority=2),
            left("here", (_here(each, here, here_bytes) for each in variants), priority=1),
            names("name", (each.name for each in variants), 3),
            notes(_missing(each.missing) for each in variants),
        ],
        labels=[plain(each.quant or each.name) for each in variants],
        dim=[bool(each.missing) for each in variants],
        width=width,
    )
    return Group(Padding(facts_table(listing.repo, facts), (0, 0, 1, 0)), table)


def search_table(found: Iterable[RepoSummary], *, width: int) -> Table:
    """The repos that a search found, in the Hub's order."""
    found = tuple(found)
    return fitted_table(
        [
            names("repo", (each.repo for each in found)),
            right("downloads", (format_count(each.downloads) for each in found), "30 days", 1),
            right("likes", (format_count(each.likes) for each in found), priority=3),
            left("changed", ((each.last_modified or UNKNOWN)[:10] for each in found), priority=2),
            left("gated", ("yes" if each.gated else "" for each in found), priority=1),
        ],
        dim=[each.gated for each in found],
        width=width,
    )


def _here(variant: RepoVariant, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int]) -> str:
    """`yes`, `13 %`, or nothing."""
    if variant.name in here:
        return "yes"
    n_bytes = here_bytes.get(variant.name, 0)
    return format_percent(min(0.99, n_bytes / variant.file_bytes)) if n_bytes else ""


def _missing(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"missing: {paths[0]}{more}" if paths else ""
