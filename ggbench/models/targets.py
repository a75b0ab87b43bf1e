"""Resolve a ModelRef to targets, for measuring and for planning: files, twins, downloads, servers and checkpoints.

Writing a twin and downloading a file are slow, so a `Target` only describes how to obtain its file, and `materialize`
does it when needed. A plan needs only headers: those of a catalog model are generated, those of the Hub are fetched by
range and cached, so repeating a plan needs no network.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.errors import BadFile, GgbenchError, NetworkError, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import (
    Role,
    canonical_quant,
    ftype_by_name,
    model_name,
    name_without_quant,
    plain_quant,
    quant_label,
    role,
)
from ggbench.gguf_file.twin import plan_twin, twin_of
from ggbench.hub.access import HubAccess
from ggbench.hub.repo_records import repo_folder
from ggbench.models.catalog import Catalog, CatalogModel, load_catalog
from ggbench.models.local_files import local_variants, reject_checkpoint
from ggbench.models.reference import MAIN, ModelRef, parse_model
from ggbench.models.served_models import ServedModel, served_models
from ggbench.models.sources import (
    NO_QUANT,
    CatalogTwin,
    FoundVariant,
    ModelSource,
    OnProgress,
    PublishedTwin,
    RepoRequest,
    choose_by_quant,
    find_variants,
    is_published,
    planned_files,
    selector_in,
    usual_quants,
)
from ggbench.models.subject import Subject
from ggbench.plugins import load_plugin
from ggbench.record import Record
from ggbench.text import sanitize
from ggbench.units import format_bytes


class FileToRun(Record):
    """The location of a quant's weights, local or for downloading."""

    model: str
    """MODEL and QUANT arguments of `ggbench pull`, and names for Ollama."""
    quant: str
    paths: tuple[Path, ...] = ()
    """The file, or all its shards in order; if not `is_here`, where `ggbench pull` will put them. Empty if unknown."""
    is_here: bool = False
    repo: str = ""
    """Repo of the Hub, `org/name`; empty if no published file is known."""
    lacking_repo: str = ""
    """The model's repo if it is not known to have this quant, else empty."""


class Target(Record):
    """One quant of a model: the source of its file, and its header, if read."""

    model: str
    """MODEL as typed, without `:QUANT`; printable. The id if planned from the catalog."""
    quant: str
    """Its `quant_label`; `unknown` if neither the name nor the header has one."""
    provenance: Literal["file", "twin", "catalog", "hub", "endpoint"]
    """Kind of weights: a file whose header marks it as a twin is a twin; `catalog` is a header derived from the
    catalog's hyperparameters, with types chosen by llama.cpp's quantizer; a server's model may be anything.
    """
    path: Path | None = None
    """The file, or its first shard; None if `source` must write or download it."""
    file_bytes: int | None = None
    """Total size of all shards; None for a twin."""
    source: ModelSource | None = None
    """How to obtain the model; None for a GGUF on this disk. For one in an engine's own format `path` is its folder."""
    selector: str = ""
    """QUANT argument that selects only this target in its repo or folder, if `quant` is ambiguous."""
    published: FoundVariant | None = None
    """The Hub file that this is, or is a twin of."""
    file: ModelFile | None = None
    """The header, if it was read."""
    reason: str = ""
    """Why the header cannot be read, in one line."""

    @property
    def is_served(self) -> bool:
        """Whether a server has it."""
        return isinstance(self.source, ServedModel)

    @property
    def named(self) -> tuple[str, ...]:
        """MODEL and QUANT arguments that select this target again."""
        if isinstance(self.source, ServedModel):
            return self.source.words
        return self.model, self.selector or self.quant

    @property
    def words(self) -> tuple[str, ...]:
        """MODEL and QUANT arguments that select this target from any folder."""
        if self.source is not None:
            return self.source.words or self.named
        return (str(self.path.absolute()),) if self.path and self.provenance != "hub" else self.named

    def setup(self, given: EngineConfig) -> EngineConfig:
        """Return the config for loading it, given the user's. Raises Unsupported for a checkpoint with untrusted code
        of its own.
        """
        return given if self.source is None else self.source.setup(given)

    @property
    def subject(self) -> Subject:
        """The subject of its runs, as far as is known without the header."""
        if isinstance(self.source, ServedModel):
            return self.source.subject
        path = "" if self.path is None else str(self.path)
        return Subject(model=self.model, quant=self.quant, source=self.provenance, file=path)

    @property
    def download_bytes(self) -> int:
        return 0 if self.source is None else self.source.download_bytes

    def header(self) -> ModelFile:
        """Return the header, also of a remote file. Raises GgbenchError, for a file on this disk also if it is
        truncated.
        """
        if self.file is not None:
            return self.file
        if self.source is not None:
            return self.source.header()
        assert self.path is not None
        return read_model_file(self.path)

    @property
    def to_run(self) -> FileToRun | None:
        """The file to run; for a twin, the published file. None if the header was not read."""
        if self.file is None:
            return None
        if isinstance(self.source, CatalogTwin):
            model = self.source.model
            repo = model.repo or ""
            if model.quants and not is_published(model, self.quant):
                return FileToRun(model.id, self.quant, lacking_repo=repo)
            return FileToRun(model.id, self.quant, repo=repo)
        if self.published is None:
            return FileToRun(self.file.name, self.quant, self.file.paths, is_here=True)
        found = self.published
        model_words = f"hf:{self.model.partition(':')[2]}" if self.provenance == "twin" else self.model
        snapshot = repo_folder(found.access, found.repo) / "snapshots" / found.commit
        paths = found.paths or tuple(snapshot / each.path for each in found.variant.files)
        return FileToRun(model_words, found.selector, paths, is_here=found.paths is not None, repo=found.repo)


def resolve(
    ref: ModelRef,
    *,
    hub: HubAccess | None = None,
    catalog: Catalog | None = None,
    api_key_env: str = "",
    timeout_s: float | None = None,
    headers_only: bool = False,
) -> tuple[Target, ...]:
    """Return the targets that a reference selects, in order, without duplicates; writes and downloads no file.

    Without quants: every variant of a folder or a repo, largest first (offline, the local ones); the usual
    quants for a twin of a catalog model; a checkpoint as stored; every model of a server. With `headers_only` a
    catalog model needs no file, and a repo is listed whole. `hub` and `catalog` default to the user's own.

    Raises UnknownName for a model or a quant that does not exist, UsageError for an ambiguous one or a catalog model
    without a repo, BadFile for a path without GGUF or a missing shard, and like `hub.listing.list_repo`.
    """
    if ref.is_server:
        return _served_targets(ref, api_key_env, timeout_s)
    if ref.engine:
        models = load_plugin("ggbench.engines", ref.engine, "models", "engine")
        own: tuple[Target, ...] = models.targets(ref, hub)
        return own
    if ref.kind == "path":
        return _local_targets(ref)
    catalog = catalog or load_catalog()
    if ref.kind == "twin" and not headers_only:
        return _twin_targets(ref, catalog)
    if headers_only and ref.kind in ("twin", "catalog"):
        return _planned_targets(ref, catalog)
    return _hub_targets(ref, hub or HubAccess.from_environment(), catalog, headers_only=headers_only)


def _served_targets(ref: ModelRef, api_key_env: str, timeout_s: float | None) -> tuple[Target, ...]:
    served = ((each, each.subject) for each in served_models(ref, api_key_env, timeout_s))
    return tuple(Target(about.model, about.quant, "endpoint", source=each) for each, about in served)


def _hub_targets(ref: ModelRef, hub: HubAccess, catalog: Catalog, *, headers_only: bool) -> tuple[Target, ...]:
    is_twin = ref.kind == "published_twin"
    variants = find_published(ref, hub, catalog, local_only=not (is_twin or headers_only))
    if not headers_only and (ref.quants or len(variants) == 1):
        for variant in variants:
            variant.require_all_shards()
    return tuple(_hub_target(ref.label, variant, is_twin=is_twin) for variant in variants)


def _twin_targets(ref: ModelRef, catalog: Catalog) -> tuple[Target, ...]:
    found = catalog.model(ref.name, *ref.quants)
    quants = _quants_of(ref, found)
    for quant in quants:
        ftype_by_name(quant)
    return tuple(Target(ref.label, quant, "twin", source=CatalogTwin(found, quant)) for quant in quants)


def _quants_of(ref: ModelRef, found: CatalogModel) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(canonical_quant, ref.quants))) or usual_quants(found)


def _planned_targets(ref: ModelRef, catalog: Catalog) -> tuple[Target, ...]:
    """Return the files of a catalog model or its twins with generated headers."""
    found, is_twin = catalog.model(ref.name, *ref.quants), ref.kind == "twin"
    quants = _quants_of(ref, found)
    source = f"catalog:{found.id}"
    if is_twin:
        name, planned = ref.label, plan_twin(found.hyper, quants, name=found.id, source=source)
    else:
        name, planned = found.id, planned_files(found, quants, source)
    return tuple(
        Target(name, quant, "catalog", source=CatalogTwin(found, quant), file=planned[quant])
        for quant in quants
    )


def resolve_headers(
    ref: ModelRef,
    *,
    hub: HubAccess | None = None,
    catalog: Catalog | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Target, ...]:
    """Return the targets of a plan with their headers; a catalog model needs no file.

    A file whose header cannot be read has a reason instead, unless it is the only one. `on_progress` receives the
    number of headers read and the total. Raises UsageError for a server and a checkpoint, and like `resolve`,
    `hub.headers.read_headers` and `plan_twin`.
    """
    targets = resolve(ref.require_gguf(), hub=hub, catalog=catalog, headers_only=True)
    reads = _read_remote([each.published for each in targets if each.published is not None], on_progress)
    read = tuple(_with_header(each, reads, alone=len(targets) == 1) for each in targets)
    if read and all(_role(each) == "projector" for each in read):
        raise BadFile(f"{read[0].model} is a projector, not a model", "give it as --mmproj of its model")
    return read if ref.quants else tuple(each for each in read if _role(each) == "model") or read


def _role(target: Target) -> Role:
    """Return what a file is for by its header; one that was not read counts as a model."""
    file = target.file
    return "model" if file is None else role(target.quant, file.metadata, file.tensors)


def smaller_targets(
    ref: ModelRef, planned: Sequence[Target], most_bytes: int, *, hub: HubAccess | None
) -> tuple[Target, ...]:
    """Return the quants of a planned model that are smaller than those planned, with headers, the largest first.

    For a file: its siblings whose names differ only in the quant. For a repo: only the largest of at most `most_bytes`,
    since its header must be read.
    """
    known = [target.file.file_bytes for target in planned if target.file is not None]
    others = _other_quants(ref, most_bytes, load_catalog(), hub)
    sized = [(each.file.file_bytes, each) for each in others if each.file is not None]
    return tuple(
        each for size, each in sorted(sized, key=lambda pair: -pair[0]) if size < min(known, default=0)
    )


def _other_quants(
    ref: ModelRef, most_bytes: int, catalog: Catalog, hub: HubAccess | None
) -> tuple[Target, ...]:
    if ref.kind in ("hub", "published_twin"):
        hub = hub or HubAccess.from_environment()
        found = find_published(ref.of_quants(), hub, catalog)
        small = [each for each in found if each.variant.file_bytes <= most_bytes]
        if not small:
            return ()
        largest = max(small, key=lambda each: each.variant.file_bytes)
        return resolve_headers(ref.of_quants(largest.selector), hub=hub, catalog=catalog)
    if ref.kind == "path" and not ref.path.is_dir():
        folder, stem = str(ref.path.absolute().parent), name_without_quant(ref.path.name)
        beside = resolve_headers(ModelRef("path", folder, label=sanitize(folder)), catalog=catalog)
        return tuple(each for each in beside if each.path and name_without_quant(each.path.name) == stem)
    return resolve_headers(ref.of_quants(), catalog=catalog)


def draft_ref(text: str) -> ModelRef:
    """Parse the MODEL of a draft; one of the catalog without a QUANT is its q8_0, or the mixture named after that.

    llama.cpp's own drafts are q8_0. Source: `--fim-qwen-7b-spec` in common/arg.cpp. Raises like `parse_model`.
    """
    ref = parse_model(text)
    if ref.quants or ref.kind not in ("catalog", "twin"):
        return ref
    usual = usual_quants(load_catalog().model(ref.name))
    return ref.of_quants(*(quant for quant in usual if plain_quant(quant) == "q8_0"))


def drafts_beside(ref: ModelRef, hub: HubAccess) -> tuple[str, ...]:
    """Return the MODEL arguments of the drafts in a model's folder, or in its repo as it was last listed."""
    if ref.kind == "path":
        variants = local_variants(ref.path if ref.path.is_dir() else ref.path.parent)
        return tuple(shlex.quote(str(each.paths[0])) for each in variants if each.role == "draft")
    from ggbench.hub.listing import cached_listing

    known = load_catalog().find(ref.name)
    repo = ref.name if known is None else known.repo or ""
    listing = cached_listing(hub, repo)
    drafts = () if listing is None else [each.name for each in listing.variants if each.role == "draft"]
    return tuple(shlex.quote(f"{repo}:{name}") for name in drafts)


def find_published(
    ref: ModelRef,
    access: HubAccess,
    catalog: Catalog,
    *,
    refresh: bool = False,
    local_only: bool = False,
) -> tuple[FoundVariant, ...]:
    """Return the published files of a repo or a catalog model, like `find_variants`. Raises UsageError without a
    repo.
    """
    known = catalog.model(ref.name, *ref.quants) if ref.kind == "catalog" else catalog.of_repo(ref.name)
    request = RepoRequest(ref.name, ref.revision, ref.quants)
    if ref.kind == "catalog" and known is not None:
        if known.repo is None:
            raise UsageError(
                f"{known.id} has no Hub repo to download and is not on this disk",
                f"measure its twin with twin:{known.id}, or give the path of a .gguf",
            )
        request = RepoRequest(known.repo, MAIN, ref.quants, known.file_pattern)
    try:
        return find_variants(access, request, refresh=refresh, local_only=local_only)
    except NetworkError as error:
        if known is None:
            raise
        raise NetworkError(error.message, error.hint, f"twin:{known.id}") from error


def resolve_one(ref: ModelRef, *, hub: HubAccess | None = None) -> Target:
    """Return the single target that a reference selects; UsageError lists several with their sizes."""
    return single(resolve(ref, hub=hub))


def find_file_or_twin(ref: ModelRef, hub: HubAccess, catalog: Catalog | None = None) -> Target:
    """Return the file if it is on this disk, else a twin of the model; downloads only headers.

    Raises UsageError for a server or another format, and like `resolve_one`.
    """
    is_published = ref.require_gguf().kind == "hub"
    twin = replace(ref, kind="published_twin", label=f"twin:{ref.label}") if is_published else ref.as_twin()
    try:
        found = single(resolve(ref, hub=hub, catalog=catalog))
    except (NetworkError, UsageError):
        if twin == ref or not ref.quants:
            raise
    else:
        if not found.download_bytes:
            return found
    return single(resolve(twin, hub=hub, catalog=catalog))


def single(targets: Sequence[Target]) -> Target:
    """Return the only target; UsageError lists several with their sizes."""
    if len(targets) == 1:
        return targets[0]
    if targets[0].is_served:
        offered = ", ".join(each.named[1] for each in targets)
        raise UsageError(
            f"the server has {len(targets)} models; name one after its URL", f"it offers: {offered}"
        )
    models = {name_without_quant(each.path.name) for each in targets if each.path and each.published is None}
    what = f"{len(models)} models" if len(models) > 1 else f"{len(targets)} quants"
    candidates = ", ".join(_candidates(targets, by_file=len(models) > 1))
    raise UsageError(f"{targets[0].model} has {what}; select one", f"candidates: {candidates}")


def _candidates(targets: Sequence[Target], *, by_file: bool) -> Iterator[str]:
    """Yield the QUANT argument of each target, or `by_file` its file's name if the quant says no more, and its size."""
    for each in targets:
        name = each.selector or each.quant
        if by_file and each.path is not None and name == each.quant:
            name = sanitize(model_name(each.path.name))
        yield f"{name} ({format_bytes(each.file_bytes)})" if each.file_bytes else name


def materialize(target: Target, on_progress: OnProgress | None = None) -> ModelFile:
    """Write or download the file, and return its header; `on_progress` receives the bytes present and the total."""
    if target.source is not None:
        return target.source.materialize(on_progress)
    assert target.path is not None
    return read_model_file(target.path)


def _hub_target(label: str, found: FoundVariant, *, is_twin: bool) -> Target:
    if is_twin:
        source = PublishedTwin(found)
        return Target(label, found.quant, "twin", source=source, selector=found.selector, published=found)
    path, size = found.paths[0] if found.paths else None, found.variant.file_bytes
    return Target(
        label, found.quant, "hub", path, size, None if path else found, found.selector, published=found
    )


def _local_targets(ref: ModelRef) -> tuple[Target, ...]:
    variants = local_variants(ref.path)
    if not variants:
        reject_checkpoint(ref.path)
        raise BadFile(f"no GGUF model in {ref.label}", "give a .gguf file, or a folder with some")
    if ref.quants:
        chosen = choose_by_quant(ref.quants, variants, ref.label)
    else:
        chosen = tuple(each for each in variants if each.role == "model") or variants
    found = []
    for variant in chosen:
        path, quant = variant.paths[0], variant.quant or NO_QUANT
        target = Target(ref.label, quant, "twin" if variant.facts.is_twin else "file", path, variant.file_bytes)
        with contextlib.suppress(GgbenchError):  # the target remains, so that its row shows the reason
            target = _headed(target, read_model_file(path))
        found.append(replace(target, selector=selector_in(variants, variant)))
    return tuple(found)


def _with_header(target: Target, reads: Mapping[str, ModelFile | GgbenchError], *, alone: bool) -> Target:
    """Return the target with its header, or with the reason if it cannot be read; raises if it is `alone`."""
    if target.file is not None:
        return target
    found = target.published
    read = None if found is None else reads.get(found.variant.name)
    try:
        if isinstance(read, GgbenchError):
            raise read
        file = target.header() if read is None else read
        if read is not None and found is not None and target.provenance == "twin":
            file = twin_of(file, found.origin)
    except GgbenchError as error:
        if alone:
            raise
        return replace(target, reason=error.message)
    return _headed(target, file)


def _headed(target: Target, file: ModelFile) -> Target:
    """Return a target with its header, and the quant by that; a catalog model's is the one that was asked for."""
    path = target.path and target.path.absolute()
    where = path if target.published is None else target.published.variant.files[0].path
    label = where and quant_label(where, file.metadata)
    return replace(target, quant=label or target.quant, file=file)


def _read_remote(
    found: Sequence[FoundVariant], on_progress: OnProgress | None
) -> dict[str, ModelFile | GgbenchError]:
    """Read the headers of non-local variants, by variant name. Raises NetworkError if none could be read."""
    remote = [each for each in found if each.paths is None and not each.variant.missing]
    if not remote:
        return {}
    from ggbench.hub.headers import read_headers

    variants = [each.variant for each in remote]
    reads = read_headers(remote[0].access, remote[0].listing, variants, on_progress)
    failed = [read for read in reads if isinstance(read, NetworkError)]
    if len(failed) == len(reads):
        raise failed[0]
    return {variant.name: read for variant, read in zip(variants, reads, strict=True)}
