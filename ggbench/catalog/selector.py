"""What a person means by MODEL and QUANT: from their words to the files, twins and downloads to measure.

A twin takes as long to make as it is large, and a download longer: a `Target` only says what to make or fetch, and
`materialize` does it at its turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ggbench import paths
from ggbench.catalog.file_sources import ARTICLE_QUANTS, FileSource, HubDownload, PublishedTwin, SynthTwin
from ggbench.catalog.local_files import LocalVariant, local_variants
from ggbench.catalog.models import Catalog, CatalogModel, load_catalog
from ggbench.catalog.quant_choice import choose_by_quant
from ggbench.catalog.reference import (
    CatalogRef,
    HubRef,
    PathRef,
    SynthRef,
    TwinRef,
    model_label,
    parse_model,
    wanted_quants,
)
from ggbench.catalog.repo_variants import NO_QUANT, FoundVariant, RepoRequest, find_variants
from ggbench.errors import BadFile, GgbenchError, NetworkError, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import ftype_by_name, quant_label
from ggbench.plain import plain
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess

__all__ = ["ARTICLE_QUANTS", "Target", "find_published", "materialize", "resolve", "resolve_one"]


@dataclass(frozen=True, slots=True)
class Target:
    """One quant of one model to measure."""

    model: str
    """MODEL as the person wrote it, a `:QUANT` at its end left out; printable."""
    quant: str
    """In lower case: of the file's name, else of its header, else `unknown`."""
    provenance: Literal["file", "twin", "hub"]
    """What the weights are; a file whose header says that it is a twin is one."""
    path: Path | None
    """The file, or the first shard; None where `source` has to make or fetch it."""
    file_bytes: int | None = None
    """Over all shards; None for a twin."""
    source: FileSource | None = None
    """Where the file comes from; None for one on this disk."""
    selector: str = ""
    """The QUANT that means it and no other of its repo, where `quant` does not."""

    @property
    def named(self) -> tuple[str, str]:
        """MODEL and QUANT, for a command line that means this target again."""
        return self.model, self.selector or self.quant

    @property
    def download_bytes(self) -> int:
        """What is still to be moved over the network before it can be measured."""
        return 0 if self.source is None else self.source.download_bytes


def resolve(
    model: str,
    quants: Sequence[str] = (),
    *,
    hub: HubAccess | None = None,
    twins_dir: Path | None = None,
    catalog: Catalog | None = None,
) -> tuple[Target, ...]:
    """The targets that MODEL and its QUANTs mean, in the order of the quants, each once; makes and downloads no file.

    With no quant named: every variant of a folder or a repo, largest first, and the article's eight of a catalog
    model's twin; of a repo that cannot be asked because there is no network, every variant on this disk. `hub`,
    `twins_dir` and `catalog` default to the person's own. Raises UnknownName for a model or a quant that is not there,
    UsageError for one that is ambiguous or of which no repo is known, BadFile for a path that holds no GGUF and a shard
    that the repo lacks, and as `hub.listing.list_repo` does.
    """
    ref = parse_model(model)
    wanted, label = wanted_quants(ref, quants), model_label(model, ref)
    folder = twins_dir or paths.twins_dir()
    match ref:
        case PathRef(path):
            return tuple(_file_target(label, variant) for variant in _choose_local(label, path, wanted))
        case SynthRef(model_id):
            found = (catalog or load_catalog()).model(model_id)
            for quant in wanted:
                ftype_by_name(quant)
            return tuple(
                Target(label, quant, "twin", None, source=SynthTwin(found, quant, folder))
                for quant in wanted or ARTICLE_QUANTS
            )
        case _:
            access = _access(hub)
            is_twin = isinstance(ref, TwinRef)
            variants = find_published(ref, wanted, access, catalog or load_catalog(), local_only=not is_twin)
            if wanted or len(variants) == 1:
                for variant in variants:
                    variant.require_all_shards()
            make = _twin_target if is_twin else _hub_target
            return tuple(make(label, variant, access, folder) for variant in variants)


def find_published(
    ref: HubRef | TwinRef | CatalogRef,
    wanted: tuple[str, ...],
    access: HubAccess,
    catalog: Catalog,
    *,
    refresh: bool = False,
    local_only: bool = False,
) -> tuple[FoundVariant, ...]:
    """The published files that a repo, its twins or a catalog model mean; the options are those of `find_variants`.

    Raises as `find_variants` does, and UsageError for a catalog model of which no repo is known.
    """
    known: CatalogModel | None
    if isinstance(ref, CatalogRef):
        known = catalog.model(ref.id)
        if known.repo is None:
            raise UsageError(
                f"{known.id} is not on this disk",
                f"measure its twin with synth:{known.id}, or give the path of a .gguf",
            )
        request = RepoRequest.of_model(known, wanted)
    else:
        known = next((entry for entry in catalog if (entry.repo or "").lower() == ref.repo.lower()), None)
        request = RepoRequest(ref.repo, ref.revision, wanted)
    try:
        return find_variants(access, request, refresh=refresh, local_only=local_only)
    except NetworkError as error:
        if known is None:
            raise
        hint = f"{error.hint}; a twin of it needs no network: synth:{known.id}"
        raise NetworkError(error.message, hint.removeprefix("; ")) from error


def resolve_one(
    model: str,
    quant: str | None = None,
    *,
    hub: HubAccess | None = None,
    twins_dir: Path | None = None,
    catalog: Catalog | None = None,
) -> Target:
    """The one target that MODEL and QUANT mean.

    Raises as `resolve` does, and UsageError with the candidates and their sizes where they are several.
    """
    targets = resolve(model, () if quant is None else (quant,), hub=hub, twins_dir=twins_dir, catalog=catalog)
    if len(targets) > 1:
        raise UsageError(
            f"{targets[0].model} means {len(targets)} quants here; name one", f"there is {_target_listing(targets)}"
        )
    return targets[0]


def materialize(target: Target, on_progress: Callable[[int, int], None] | None = None) -> ModelFile:
    """The target's file as its header tells it, made or downloaded first where it is not on this disk.

    `on_progress` is told the bytes that are there and their total. Raises BadFile, NetworkError, and DoesNotFit where
    the disk lacks room.
    """
    path = target.path if target.source is None else target.source.materialize(on_progress)
    assert path is not None
    return read_model_file(path)


def _access(hub: HubAccess | None) -> HubAccess:
    from ggbench.hub.access import HubAccess

    return hub or HubAccess.from_environment()


def _hub_target(label: str, found: FoundVariant, access: HubAccess, _folder: Path) -> Target:
    path = found.paths[0] if found.paths else None
    source = None if path else HubDownload(access, found)
    return Target(label, found.quant, "hub", path, found.variant.file_bytes, source, found.selector)


def _twin_target(label: str, found: FoundVariant, access: HubAccess, folder: Path) -> Target:
    source = PublishedTwin(access, found, folder)
    return Target(label, found.quant, "twin", None, source=source, selector=found.selector)


def _choose_local(label: str, path: Path, wanted: Sequence[str]) -> Sequence[LocalVariant]:
    variants = [_with_quant(variant) for variant in local_variants(path)]
    if not variants:
        raise BadFile(f"no GGUF model in {label}", "name a .gguf file, or a folder that holds some")
    if not wanted:
        return variants
    return choose_by_quant(wanted, variants, label, _variant_listing)


def _with_quant(variant: LocalVariant) -> LocalVariant:
    if variant.quant is not None:
        return variant
    file = _read(variant)
    return dataclasses.replace(variant, quant=NO_QUANT if file is None else quant_label(file))


def _file_target(label: str, variant: LocalVariant) -> Target:
    file = _read(variant)
    provenance: Literal["file", "twin"] = "twin" if file is not None and file.is_twin else "file"
    return Target(label, variant.quant or NO_QUANT, provenance, variant.paths[0], variant.file_bytes)


def _read(variant: LocalVariant) -> ModelFile | None:
    """The variant's header; None for a broken file, which stays a target so that a sweep has a row with the reason."""
    try:
        return read_model_file(variant.paths[0], allow_missing_data=True)
    except GgbenchError:
        return None


def _variant_listing(variants: Sequence[LocalVariant]) -> str:
    return _listing([(variant.quant or NO_QUANT, variant.paths[0], variant.file_bytes) for variant in variants])


def _target_listing(targets: Sequence[Target]) -> str:
    source = targets[0].source
    sizes = source.sizes() if source is not None else {}
    return _listing(
        [
            (target.quant, target.path or Path(target.selector), target.file_bytes or sizes.get(target.quant))
            for target in targets
        ]
    )


def _listing(candidates: Sequence[tuple[str, Path | None, int | None]]) -> str:
    """Each quant with its size; the files' names instead where the quants do not tell them apart."""
    distinct = len({quant for quant, _, _ in candidates}) == len(candidates)
    return ", ".join(
        f"{quant if distinct or path is None else plain(path.name)} ({format_bytes(n_bytes)})"
        for quant, path, n_bytes in candidates
    )
