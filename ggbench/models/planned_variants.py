"""Resolve MODEL and QUANTs for planning, where headers are enough: local or Hub files, or a catalog model's quants.

No tensors are read and no model is downloaded. From a Hub file only the header is fetched, and it is cached, so that
repeating a plan needs no network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.errors import BadFile, GgbenchError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import name_without_quant, quant_label
from ggbench.gguf_file.twin import plan_twin, twin_of
from ggbench.hub.access import HubAccess
from ggbench.hub.headers import HeaderRead, read_headers, read_variant_header
from ggbench.hub.hf_cache import repo_folder
from ggbench.hub.repo_records import RepoListing
from ggbench.models.catalog import Catalog, CatalogModel, load_catalog
from ggbench.models.file_sources import ARTICLE_QUANTS
from ggbench.models.reference import ModelRef
from ggbench.models.repo_variants import FoundVariant
from ggbench.models.selector import Target, find_published, resolve
from ggbench.text import plain


class FileToRun(msgspec.Struct, frozen=True):
    """Where the weights of a quant are, or where they can be downloaded."""

    model: str
    """MODEL and QUANT arguments of `ggbench pull`, where there is something to pull; names for Ollama."""
    quant: str
    paths: tuple[Path, ...] = ()
    """The file, or all its shards in order; where `is_here` is false the paths that `ggbench pull` will give them.
    Empty where those are unknown.
    """
    is_here: bool = False
    repo: str = ""
    """Repo of the Hub, `org/name`; empty where no published file is known."""


Provenance = Literal["file", "twin", "catalog", "hub"]


class PlannedVariant(msgspec.Struct, frozen=True):
    """One quant of a model with its header."""

    model: str
    """MODEL as typed, without `:QUANT`; printable."""
    quant: str
    provenance: Provenance
    """`catalog`: header derived from the catalog's hyperparameters, with types chosen by llama.cpp's quantizer; `hub`:
    the header of a published file, wherever it is stored.
    """
    file: ModelFile | None
    """None where the header cannot be read."""
    reason: str = ""
    """Why the header cannot be read, in one line."""
    selector: str = ""
    """QUANT argument that selects only this variant of its repo, where `quant` is ambiguous."""
    to_run: FileToRun | None = None
    """The file that a person would run: of a twin that is not written the published one; None for a broken file."""


class PlannedModel(msgspec.Struct, frozen=True):
    """The variants, and the repo they come from."""

    variants: tuple[PlannedVariant, ...]
    listing: RepoListing | None = None
    """Of the repo, or of its local files where the Hub was not queried; None where no repo was involved."""
    moved_bytes: int | None = None
    """Bytes of headers received over the network; None without a repo."""


def planned_model(
    ref: ModelRef,
    catalog: Catalog | None = None,
    hub: HubAccess | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> PlannedModel:
    """Return the variants that a reference selects, in the order of the quants; a catalog model needs no file.

    Without quants: the article's eight for a catalog model, every variant of a folder or a repo. A file whose header
    cannot be read is returned with the reason, unless it is the only one. `on_progress` receives the number of headers
    read and the total. Raises as `catalog.selector.resolve`, `hub.headers.read_headers` and `plan_twin` do.
    """
    catalog = catalog or load_catalog()
    match ref.require_gguf().kind:
        case "catalog" | "synth":
            return PlannedModel(_from_catalog(catalog.model(ref.name), ref.quants or ARTICLE_QUANTS))
        case "hub" | "twin":
            return _from_hub(ref, catalog, hub, on_progress)
        case _:
            targets = resolve(ref, catalog=catalog)
            return PlannedModel(tuple(_from_disk(target, alone=len(targets) == 1) for target in targets))


def smaller_variants(
    ref: ModelRef, planned: PlannedModel, most_bytes: int, catalog: Catalog | None = None, hub: HubAccess | None = None
) -> tuple[PlannedVariant, ...]:
    """Return the quants of a planned model that are smaller than those planned, the largest first.

    Of a file those beside it that are named alike; of a repo only the largest whose file takes up to `most_bytes`,
    since its header has to be read.
    """
    catalog = catalog or load_catalog()
    known = [variant.file.file_bytes for variant in planned.variants if variant.file is not None]
    match ref.kind:
        case "catalog" | "synth":
            others = _from_catalog(catalog.model(ref.name), ARTICLE_QUANTS)
        case "path":
            others = planned_model(ref.of_quants(), catalog).variants if ref.path.is_dir() else _beside(ref, catalog)
        case _:
            others = _smaller_of_repo(ref, planned, most_bytes, catalog, hub)
    sized = [(each.file.file_bytes, each) for each in others if each.file is not None]
    return tuple(each for size, each in sorted(sized, key=lambda pair: -pair[0]) if size < min(known, default=0))


def _beside(ref: ModelRef, catalog: Catalog) -> tuple[PlannedVariant, ...]:
    """Return the files in the folder of this one that are named as it is but for the quant."""
    folder = str(ref.path.absolute().parent)
    variants = planned_model(ModelRef("path", folder, label=plain(folder)), catalog).variants
    stem = name_without_quant(ref.path.name)
    return tuple(each for each in variants if each.file and name_without_quant(each.file.paths[0].name) == stem)


def _smaller_of_repo(
    ref: ModelRef, planned: PlannedModel, most_bytes: int, catalog: Catalog, hub: HubAccess | None
) -> tuple[PlannedVariant, ...]:
    """Return the largest file of the repo that takes up to `most_bytes`, with its header."""
    access = hub or HubAccess.from_environment()
    sizes = {each.selector: each.variant.file_bytes for each in find_published(ref.of_quants(), access, catalog)}
    name = max((name for name, size in sizes.items() if size <= most_bytes), key=lambda each: sizes[each], default=None)
    if name is None:
        return ()
    return _from_hub(ref.of_quants(name), catalog, access, None).variants


def _from_catalog(model: CatalogModel, quants: Sequence[str]) -> tuple[PlannedVariant, ...]:
    planned = plan_twin(model.hyper, quants, name=model.id, source=f"catalog:{model.id}")

    def to_run(quant: str) -> FileToRun:
        is_published = quant in model.quants or not model.quants
        return FileToRun(model.id, quant, repo=(model.repo or "") if is_published else "")

    return tuple(PlannedVariant(model.id, quant, "catalog", planned[quant], to_run=to_run(quant)) for quant in quants)


def _with_header(variant: PlannedVariant, read: Callable[[], ModelFile], *, alone: bool) -> PlannedVariant:
    """Return the variant with its header; with the reason where it cannot be read, unless it is the only one."""
    try:
        return replace(variant, file=read())
    except GgbenchError as error:
        if alone:
            raise
        return replace(variant, reason=error.message)


def _from_disk(target: Target, *, alone: bool) -> PlannedVariant:
    assert target.provenance != "endpoint"
    variant = PlannedVariant(target.model, target.quant, target.provenance, None, selector=target.selector)
    variant = _with_header(variant, target.header, alone=alone)
    if variant.file is None:
        return variant
    return replace(variant, to_run=FileToRun(variant.file.name, variant.quant, variant.file.paths, is_here=True))


def _from_hub(
    ref: ModelRef,
    catalog: Catalog,
    hub: HubAccess | None,
    on_progress: Callable[[int, int], None] | None,
) -> PlannedModel:
    access = hub or HubAccess.from_environment()
    found = find_published(ref, access, catalog)
    reads = _read_remote(access, found, on_progress)
    provenance: Provenance = "twin" if ref.kind == "twin" else "hub"

    def read(each: FoundVariant) -> ModelFile:
        header = reads.get(each.variant.name)
        if header is not None and header.file is None:
            raise BadFile(header.reason, "take another quant of this repo")
        file = each.header() if header is None or header.file is None else header.file
        return twin_of(file, each.origin) if provenance == "twin" else file

    variants = []
    for each in found:
        named = PlannedVariant(ref.label, each.quant, provenance, None, selector=each.selector)
        variant = _with_header(named, partial(read, each), alone=len(found) == 1)
        if variant.file is not None and each.variant.quant is None:
            variant = replace(variant, quant=quant_label(variant.file))
        variants.append(variant if variant.file is None else replace(variant, to_run=_published(ref, each)))
    return PlannedModel(tuple(variants), found[0].listing, sum(read.moved_bytes for read in reads.values()))


def _published(ref: ModelRef, found: FoundVariant) -> FileToRun:
    """Return where a published file is, or where `ggbench pull` will put it."""
    model = f"hf:{ref.label.partition(':')[2]}" if ref.kind == "twin" else ref.label
    snapshot = repo_folder(found.access, found.repo) / "snapshots" / found.commit
    paths = found.paths or tuple(snapshot / each.path for each in found.variant.files)
    return FileToRun(model, found.selector, paths, is_here=found.paths is not None, repo=found.repo)


def _read_remote(
    access: HubAccess, found: Sequence[FoundVariant], on_progress: Callable[[int, int], None] | None
) -> dict[str, HeaderRead]:
    """Read the headers of non-local variants, by variant name. Raises NetworkError where none could be read."""
    remote = [each for each in found if each.paths is None and not each.variant.missing]
    if not remote:
        return {}
    listing = remote[0].listing
    reads = read_headers(access, listing, [each.variant for each in remote], on_progress)
    if all(read.file is None for read in reads):
        with contextlib.suppress(BadFile):  # a broken file gets its own row; only a failure of all is an error
            read_variant_header(access, listing, remote[0].variant)
    return {read.variant.name: read for read in reads}
