"""Resolve MODEL and QUANT of a checkpoint: a folder, a Hub repo, or a catalog model with random weights.

Of a repo config.json is read; its safetensors are only downloaded when the checkpoint is to be run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.contract import EngineConfig
from ggbench.engines.transformers import engine
from ggbench.engines.transformers.checkpoint import Checkpoint, checkpoint_of, read_checkpoint
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.engines.transformers.config_json import (
    CONFIG,
    DAMAGED_HINT,
    LARGEST_JSON_BYTES,
    parse_config,
    read_json,
    twin_config,
    write_config,
)
from ggbench.engines.transformers.storage import METHODS, Method
from ggbench.errors import BadFile, NetworkError, UsageError
from ggbench.files import get_cached, put_cached
from ggbench.gguf_file.model_file import ModelFile
from ggbench.hub.access import HubAccess
from ggbench.hub.download import FileProgress, download, needed_bytes, summed
from ggbench.hub.headers import RangeSource
from ggbench.hub.listing import list_checkpoint
from ggbench.hub.repo_records import RepoFile, RepoListing, cached_paths, recorded_commit, repo_folder, snapshots
from ggbench.models.catalog import Catalog, CatalogModel, load_catalog
from ggbench.models.reference import HUB_NAME, MAIN, ModelRef, looks_like_path, parse_address, split_quant
from ggbench.models.sources import FoundVariant, OnProgress
from ggbench.models.targets import Target
from ggbench.paths import expand_path, path_exists
from ggbench.text import sanitize
from ggbench.units import format_bytes

Origin = Literal["file", "hub", "twin"]


class FoundCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint, and how to obtain its folder."""

    checkpoint: Checkpoint
    origin: Origin
    """`twin`: of a catalog model, or of a folder with a config alone, with random weights."""
    obtain: Callable[[OnProgress | None], Path]
    """Writes or downloads what is missing, and returns the folder."""
    file_bytes: int | None = None
    """Of its safetensors on the Hub; None where that was not asked."""
    download_bytes: int = 0
    """To transfer before it can be run."""
    listing: RepoListing | None = None
    """Of the repo; None where the Hub was not asked."""
    moved_bytes: int = 0
    """Received over the network to read its config."""

    def header(self, method: Method) -> ModelFile:
        """Return the model as loaded by this method. Raises as `Checkpoint.model_file` does."""
        file = self.checkpoint.model_file(method)
        if self.file_bytes is None or self.checkpoint.shards or method.name != self.checkpoint.method.name:
            return file
        return replace(file, file_bytes=self.file_bytes)


class CheckpointToRun(msgspec.Struct, frozen=True):
    """A checkpoint with the method that it is to be loaded by."""

    found: FoundCheckpoint
    method: Method

    @property
    def download_bytes(self) -> int:
        """Return the bytes to download first."""
        return self.found.download_bytes

    @property
    def words(self) -> tuple[str, ...]:
        """Return MODEL and QUANT of a checkpoint on this disk that mean it from any folder."""
        folder = self.found.checkpoint.folder
        return (
            ()
            if self.found.origin == "hub" or folder is None
            else (f"transformers:{folder.absolute()}", self.method.name)
        )

    def check_runs(self) -> None:
        """Raise EngineFailed where a package that the method needs is not here."""
        engine.check_packages(self.method.name)

    def header(self) -> ModelFile:
        """Return the model as it would be loaded. Raises as `Checkpoint.model_file` does."""
        return self.found.header(self.method)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the weights under each method that this checkpoint can be loaded by."""
        methods = self.found.checkpoint.methods()
        return {method.name: self.found.header(method).weight_bytes or 0 for method in methods}

    def setup(self, given: EngineConfig) -> TransformersConfig:
        """Return how it is to be loaded: by its method, else as given, or with the defaults for another engine's setup.

        Raises Unsupported for code of its own that is not trusted.
        """
        setup = given if isinstance(given, TransformersConfig) else TransformersConfig()
        config = self.found.checkpoint.config
        config.check_code(trusted=setup.trust_remote_code)
        return replace(setup, method=self.method.name, dtype=self.method.dtype or config.dtype or "bf16")

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        """Return the model with its folder as the only path, written or downloaded first. Raises BadFile."""
        checkpoint = self.found.checkpoint
        checkpoint.require(self.method)
        folder = self.found.obtain(on_progress)
        read = read_checkpoint(folder)
        if not read.shards and (self.found.origin != "twin" or any(folder.glob("*.bin"))):
            raise BadFile(
                f"{checkpoint.name} has no weights in safetensors",
                "take a checkpoint that has, or write one with Transformers' save_pretrained",
            )
        if read.missing_bytes:
            raise BadFile(f"{checkpoint.name} is incomplete", "download the checkpoint again")
        return read.model_file(self.method)


def parse(scheme: str, rest: str) -> ModelRef:
    """Parse what follows `transformers:` (a folder where it exists or reads as a path, else a repo) or
    `transformers-twin:` (an id of the catalog).

    Raises UsageError.
    """
    if scheme == "transformers-twin":
        name, quant = split_quant(rest)
        if not name or "/" in name:
            raise UsageError(f"{f'{scheme}:{rest}'!r} is not {scheme}:<id>", "list the ids with: ggbench models")
        return _ref("id", name.lower(), f"{scheme}:{name}", quant)
    if not rest.strip():
        raise UsageError(
            "transformers: names no checkpoint",
            "write transformers:org/name, or transformers:FOLDER with a config.json",
        )
    if path_exists(rest):
        return _ref("folder", str(expand_path(rest)), f"transformers:{rest}")
    address = parse_address(rest)
    head, colon, quant = rest.rpartition(":")
    if colon and not address and "/" not in quant and (path_exists(head) or looks_like_path(head)):
        return _ref("folder", str(expand_path(head)), f"transformers:{head}", split_quant(f"transformers:{quant}")[1])
    name, named_quant = split_quant(address or rest)
    hub_name = HUB_NAME.fullmatch(name)
    if hub_name and not looks_like_path(name):
        repo, revision = hub_name["repo"], hub_name["revision"] or MAIN
        label = f"transformers:{repo}" if revision == MAIN else f"transformers:{repo}@{revision}"
        return replace(_ref("hub", repo, label, named_quant), revision=revision)
    if "/" not in rest and not looks_like_path(rest):
        raise UsageError(
            f"transformers:{sanitize(rest)} is neither a folder nor org/name",
            f"of a catalog model: transformers-twin:{sanitize(name)}",
        )
    return _ref("folder", str(expand_path(rest)), f"transformers:{rest}")


def _ref(form: str, name: str, label: str, quant: str | None = None) -> ModelRef:
    quants = () if quant is None else (quant,)
    return ModelRef("own", name, quants, engine="transformers", form=form, label=sanitize(label))


def in_folder(folder: Path) -> ModelRef | None:
    """Return the checkpoint of a folder with a config.json and no GGUF; None of any other."""
    is_checkpoint = os.path.lexists(folder / CONFIG) and not any(folder.glob("*.gguf"))
    return _ref("folder", str(folder), str(folder)) if is_checkpoint else None


def targets(ref: ModelRef, catalog: Catalog | None = None, hub: HubAccess | None = None) -> tuple[Target, ...]:
    """Return a target for each method, without any the one that the checkpoint is stored by."""
    found = find_checkpoint(ref, catalog, hub)
    methods = wanted_methods(found, ref)
    for method in methods:
        found.checkpoint.require(method)
    return tuple(
        Target(
            ref.label,
            method.name,
            found.origin,
            found.checkpoint.folder,
            found.file_bytes,
            own=CheckpointToRun(found, method),
        )
        for method in methods or (found.checkpoint.method,)
    )


def files(ref: ModelRef, access: HubAccess) -> FoundVariant:
    """Return the files of a checkpoint. Raises UsageError where a QUANT is named, and as `list_checkpoint` does."""
    if ref.form == "folder":
        raise UsageError(f"{ref.label} is a path, and pull downloads from the Hub", "name a repo as hf:org/name")
    if ref.form == "id":
        raise UsageError(
            f"{ref.label} is a twin, and pull downloads what is published",
            f"leave {ref.label.partition(':')[0]}: out; a twin is made where it is measured",
        )
    if ref.quants:
        raise UsageError("a checkpoint is downloaded as it is stored, for every QUANT", f"omit {ref.quants[0]}")
    listing = list_checkpoint(access, ref.name, ref.revision)
    variant = listing.variants[0]
    return FoundVariant(access, listing, variant, cached_paths(access, listing, variant))


def find_checkpoint(ref: ModelRef, catalog: Catalog | None = None, hub: HubAccess | None = None) -> FoundCheckpoint:
    """Return the checkpoint that MODEL means; of a repo config.json is read, from this disk where it is there.

    Raises UnknownName for a catalog id, Unsupported for one of which no checkpoint is made, BadFile for a folder
    without one, and as `hub.listing.list_checkpoint` does.
    """
    if ref.form == "id":
        return _of_catalog((catalog or load_catalog()).model(ref.name))
    if ref.form == "hub":
        return _of_hub(ref, hub or HubAccess.from_environment())
    checkpoint = read_checkpoint(ref.path)
    return FoundCheckpoint(checkpoint, "file" if checkpoint.shards else "twin", lambda _: ref.path)


def wanted_methods(found: FoundCheckpoint, ref: ModelRef) -> tuple[Method, ...]:
    """Return the methods that QUANTs name, the one in MODEL first. Raises UnknownName."""
    return tuple(found.checkpoint.method_named(name) for name in ref.quants)


def planned_methods(found: FoundCheckpoint) -> tuple[Method, ...]:
    """Return what a plan shows without QUANTs: every method of a catalog model, else what the checkpoint can be."""
    return tuple(METHODS.values()) if found.checkpoint.is_twin else found.checkpoint.methods()


def _of_catalog(model: CatalogModel) -> FoundCheckpoint:
    config = twin_config(model.hyper, model.id, tied=model.tied_in_config)
    folder = paths.twins_dir() / "checkpoints" / model.id
    return FoundCheckpoint(checkpoint_of(config), "twin", lambda _: write_config(config, folder))


def _of_hub(ref: ModelRef, access: HubAccess) -> FoundCheckpoint:
    local = _in_cache(ref, access)
    if local is not None and local.shards:
        folder = local.folder
        assert folder is not None
        return FoundCheckpoint(local, "hub", lambda _: folder)
    try:
        listing = list_checkpoint(access, ref.name, ref.revision)
    except NetworkError:
        if local is None:
            raise
        return FoundCheckpoint(local, "hub", partial(_refuse_offline, access, ref))
    variant = listing.variants[0]
    data, moved = _config_bytes(access, listing, next(file for file in variant.files if file.path == CONFIG))
    config = parse_config(data, sanitize(listing.repo))
    weights = sum(file.n_bytes for file in variant.files if file.path.endswith(".safetensors"))

    def obtain(on_progress: OnProgress | None) -> Path:
        def on_files(files: tuple[FileProgress, ...]) -> None:
            if on_progress is not None:
                on_progress(*summed(files)[:2])

        return download(access, listing, variant, on_progress=on_files)[0].parent

    return FoundCheckpoint(
        checkpoint=Checkpoint(config, data),
        origin="hub",
        obtain=obtain,
        file_bytes=weights or None,
        download_bytes=needed_bytes(access, listing, variant),
        listing=listing,
        moved_bytes=moved,
    )


def _in_cache(ref: ModelRef, access: HubAccess) -> Checkpoint | None:
    """Return the checkpoint from Hugging Face's cache; None where it is not there, or not whole."""
    folder = repo_folder(access, ref.name)
    commit = recorded_commit(folder, ref.revision)
    for snapshot in snapshots(folder, commit):
        if snapshot.name in (commit, ref.revision) and (snapshot / CONFIG).is_file():
            try:
                found = read_checkpoint(snapshot)
            except BadFile:
                return None
            return replace(found, config=replace(found.config, name=sanitize(ref.name)))
    return None


def _refuse_offline(access: HubAccess, ref: ModelRef, on_progress: OnProgress | None) -> Path:
    access.require_network(f"downloading {sanitize(ref.name)}")
    raise BadFile(f"the safetensors of {sanitize(ref.name)} are not on this disk", "download the checkpoint again")


def _config_bytes(access: HubAccess, listing: RepoListing, file: RepoFile) -> tuple[bytes, int]:
    """Return config.json of a repo, cached under its hash, and the bytes received for it."""
    if file.n_bytes > LARGEST_JSON_BYTES:
        raise BadFile(
            f"config.json of {sanitize(listing.repo)} is larger than {format_bytes(LARGEST_JSON_BYTES)}", DAMAGED_HINT
        )
    variant = replace(listing.variants[0], files=(file,))
    here = cached_paths(access, listing, variant)
    if here is not None:
        return read_json(here[0], sanitize(listing.repo)), 0
    path = access.headers_dir / f"{file.etag}.config"
    data = get_cached(path)
    if data is not None:
        return data, 0
    source = RangeSource(access, listing.repo, listing.commit, file)
    parts = []
    while part := source.read(file.n_bytes):
        parts.append(part)
    data = b"".join(parts)
    put_cached(path, data)
    return data, source.moved_bytes
