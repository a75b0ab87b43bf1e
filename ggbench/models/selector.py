"""Resolve MODEL and QUANT to targets: the files, twins and downloads to measure.

Making a twin and downloading a file are slow: a `Target` only describes how to obtain its file, and `materialize` does
it when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import msgspec.structs

from ggbench.engines.contract import EngineConfig
from ggbench.errors import BadFile, GgbenchError, NetworkError, Unsupported, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import ftype_by_name, quant_label
from ggbench.hub.access import HubAccess
from ggbench.models.catalog import Catalog, CatalogModel, load_catalog
from ggbench.models.engine_models import EngineModel, engine_models
from ggbench.models.file_sources import ARTICLE_QUANTS, FileSource, PublishedTwin, SynthTwin
from ggbench.models.local_files import LocalVariant, local_variants
from ggbench.models.reference import MAIN, ModelRef
from ggbench.models.repo_variants import (
    NO_QUANT,
    FoundVariant,
    RepoRequest,
    choose_by_quant,
    find_variants,
    selector_in,
)
from ggbench.models.served_models import ServedModel, ServerOptions, served_models
from ggbench.models.subject import Subject
from ggbench.units import format_bytes


class Target(msgspec.Struct, frozen=True):
    """One quant of a model to measure."""

    model: str
    """MODEL as typed, without `:QUANT`; printable."""
    quant: str
    """Lower case, from the file name, else from its header, else `unknown`."""
    provenance: Literal["file", "twin", "hub", "endpoint"]
    """Kind of weights; a file whose header marks it as a twin is a twin, and a server's model may be anything."""
    path: Path | None
    """The file, or its first shard; None where `source` has to make or download it."""
    file_bytes: int | None = None
    """Total size of all shards; None for a twin."""
    source: FileSource | None = None
    """How to obtain the file; None where it is on this disk."""
    selector: str = ""
    """QUANT argument that selects only this target in its repo or folder, where `quant` is ambiguous."""
    served: ServedModel | None = None
    """Of a server; None where there is a file, or will be."""
    own: EngineModel | None = None
    """What an engine loads from something else than a GGUF; `path` is its folder then. None of a GGUF and a server."""

    @property
    def named(self) -> tuple[str, str]:
        """MODEL and QUANT arguments that select this target again."""
        if self.served is not None:
            return self.served.setup.base_url, self.served.setup.model
        return self.model, self.selector or self.quant

    def setup(self, given: EngineConfig) -> EngineConfig:
        """How it is to be loaded: as given, by its method, or how its server is asked.

        Raises Unsupported for a checkpoint with code of its own that is not trusted.
        """
        if self.own is not None:
            return self.own.setup(given)
        return given if self.served is None else self.served.setup

    @property
    def subject(self) -> Subject:
        """What a run of it measures, as far as is known without its header."""
        if self.served is not None:
            return self.served.subject
        path = "" if self.path is None else str(self.path)
        return Subject(model=self.model, quant=self.quant, source=self.provenance, file=path)

    @property
    def download_bytes(self) -> int:
        """Bytes to download before it can be measured."""
        source = self.own or self.source
        return 0 if source is None else source.download_bytes

    def header(self) -> ModelFile:
        """Return the header, also of a file that is incomplete or not here yet. Raises GgbenchError."""
        if self.served is not None:
            raise Unsupported("a server does not show the header of its model")
        if self.own is not None:
            return self.own.header()
        if self.source is not None:
            return self.source.header()
        assert self.path is not None
        return read_model_file(self.path, allow_missing_data=True)


def resolve(
    ref: ModelRef,
    *,
    hub: HubAccess | None = None,
    catalog: Catalog | None = None,
    server: ServerOptions | None = None,
) -> tuple[Target, ...]:
    """Return the targets that a reference selects, in order, without duplicates; makes and downloads no file.

    Without quants: every variant of a folder or a repo, largest first, and the article's eight for a twin of a catalog
    model; a checkpoint as it is stored; offline, every local variant of a repo; every model of a server, which is asked
    as `server` says. `hub` and `catalog` default to the user's own. Raises
    UnknownName for a model or a quant that does not exist, UsageError for an ambiguous one or a catalog model without a
    repo, BadFile for a path without GGUF and a missing shard, and as `hub.listing.list_repo` does.
    """
    if ref.is_server:
        found_models = served_models(ref, server or ServerOptions())
        return tuple(Target(each.name, each.quant, "endpoint", None, served=each) for each in found_models)
    if ref.engine:
        return engine_models(ref.engine).targets(ref, catalog, hub)
    if ref.kind == "path":
        return _local_targets(ref)
    catalog = catalog or load_catalog()
    if ref.kind == "synth":
        found = catalog.model(ref.name)
        for quant in ref.quants:
            ftype_by_name(quant)
        names = ref.quants or ARTICLE_QUANTS
        return tuple(Target(ref.label, quant, "twin", None, source=SynthTwin(found, quant)) for quant in names)
    is_twin = ref.kind == "twin"
    variants = find_published(ref, hub or HubAccess.from_environment(), catalog, local_only=not is_twin)
    if ref.quants or len(variants) == 1:
        for variant in variants:
            variant.require_all_shards()
    return tuple(_hub_target(ref.label, variant, is_twin=is_twin) for variant in variants)


def find_published(
    ref: ModelRef,
    access: HubAccess,
    catalog: Catalog,
    *,
    refresh: bool = False,
    local_only: bool = False,
) -> tuple[FoundVariant, ...]:
    """Return the published files of a repo or a catalog model, as `find_variants` does; UsageError without a repo."""
    known: CatalogModel | None
    if ref.kind == "catalog":
        known = catalog.model(ref.name)
        if known.repo is None:
            raise UsageError(
                f"{known.id} is not on this disk",
                f"measure its twin with synth:{known.id}, or give the path of a .gguf",
            )
        request = RepoRequest(known.repo, MAIN, ref.quants, known.file_pattern, known.quants)
    else:
        known = catalog.of_repo(ref.name)
        request = RepoRequest(ref.name, ref.revision, ref.quants)
    try:
        return find_variants(access, request, refresh=refresh, local_only=local_only)
    except NetworkError as error:
        if known is None:
            raise
        hint = f"{error.hint}; its twin needs no network: synth:{known.id}"
        raise NetworkError(error.message, hint.removeprefix("; ")) from error


def resolve_one(ref: ModelRef, *, hub: HubAccess | None = None, server: ServerOptions | None = None) -> Target:
    """Return the single target that a reference selects; UsageError lists several with their sizes."""
    targets = resolve(ref, hub=hub, server=server)
    if len(targets) == 1:
        return targets[0]
    if targets[0].served is not None:
        offered = ", ".join(each.served.setup.model for each in targets if each.served is not None)
        raise UsageError(f"the server offers {len(targets)} models; name one after its URL", f"it offers: {offered}")
    sizes = targets[0].source.sizes() if targets[0].source is not None else {}
    candidates = ", ".join(
        f"{each.selector or each.quant} ({format_bytes(each.file_bytes or sizes.get(each.quant))})" for each in targets
    )
    raise UsageError(f"{targets[0].model} has {len(targets)} quants; select one", f"candidates: {candidates}")


def materialize(target: Target, on_progress: Callable[[int, int], None] | None = None) -> ModelFile:
    """Return the header after making or downloading the file; `on_progress` receives bytes present and in total."""
    if target.own is not None:
        return target.own.materialize(on_progress)
    path = target.path if target.source is None else target.source.materialize(on_progress)
    assert path is not None
    return read_model_file(path)


def _hub_target(label: str, found: FoundVariant, *, is_twin: bool) -> Target:
    if is_twin:
        return Target(label, found.quant, "twin", None, source=PublishedTwin(found), selector=found.selector)
    path, size = found.paths[0] if found.paths else None, found.variant.file_bytes
    return Target(label, found.quant, "hub", path, size, None if path else found, found.selector)


def _local_targets(ref: ModelRef) -> tuple[Target, ...]:
    label, variants = ref.label, []
    for variant in local_variants(ref.path):
        file = _header(variant) if variant.quant is None else None
        variants.append(variant if file is None else msgspec.structs.replace(variant, quant=quant_label(file)))
    if not variants:
        raise BadFile(f"no GGUF model in {label}", "give a .gguf file, or a folder with some")
    targets = []
    for variant in choose_by_quant(ref.quants, variants, label) if ref.quants else variants:
        file, selector = _header(variant), selector_in(variants, variant)
        provenance: Literal["file", "twin"] = "twin" if file is not None and file.is_twin else "file"
        quant, size = variant.quant or NO_QUANT, variant.file_bytes
        targets.append(Target(label, quant, provenance, variant.paths[0], size, selector=selector))
    return tuple(targets)


def _header(variant: LocalVariant) -> ModelFile | None:
    """Return the variant's header; None for a broken file, which stays a target so that its row shows the reason."""
    try:
        return read_model_file(variant.paths[0], allow_missing_data=True)
    except GgbenchError:
        return None
