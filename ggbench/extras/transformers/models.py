"""Resolve MODEL and QUANT of a checkpoint: a folder, a Hub repo, or a catalog model with random weights.

Only config.json of a repo is read; its safetensors are downloaded to run the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.contract import EngineConfig
from ggbench.errors import BadFile, NetworkError, UsageError
from ggbench.extras.transformers import engine
from ggbench.extras.transformers.checkpoint import Checkpoint, checkpoint_of, read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.config_json import (
    CONFIG,
    DAMAGED_HINT,
    LARGEST_JSON_BYTES,
    parse_config,
    read_json,
    twin_config,
    write_config,
)
from ggbench.extras.transformers.storage import METHODS, Method
from ggbench.gguf_file.model_file import ModelFile
from ggbench.hub.access import HubAccess
from ggbench.hub.download import FileProgress, download, needed_bytes, summed
from ggbench.hub.listing import list_checkpoint
from ggbench.hub.repo_records import RepoListing, recorded_commit, repo_folder, snapshots
from ggbench.models.catalog import Catalog, load_catalog
from ggbench.models.reference import HUB_NAME, MAIN, ModelRef, looks_like_path, parse_address, split_quant
from ggbench.models.sources import OnProgress
from ggbench.models.targets import Target
from ggbench.paths import expand_path, path_exists
from ggbench.text import sanitize
from ggbench.units import format_bytes

Origin = Literal["file", "hub", "twin"]


class FoundCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint, and how to obtain its folder."""

    checkpoint: Checkpoint
    origin: Origin
    """`twin`: a catalog model, or a folder with only a config, given random weights."""
    obtain: Callable[[OnProgress | None], Path]
    download_bytes: int = 0
    listing: RepoListing | None = None
    """The repo; None if the Hub was not asked."""
    moved_bytes: int = 0


class CheckpointToRun(msgspec.Struct, frozen=True):
    found: FoundCheckpoint
    method: Method

    @property
    def download_bytes(self) -> int:
        return self.found.download_bytes

    @property
    def words(self) -> tuple[str, ...]:
        """MODEL and QUANT that select it from any folder; empty if it is not on this disk."""
        folder = self.found.checkpoint.folder
        is_here = self.found.origin != "hub" and folder is not None
        return (f"transformers:{folder.absolute()}", self.method.name) if folder and is_here else ()

    def check_runs(self) -> None:
        engine.check_packages(self.method.name)

    def header(self) -> ModelFile:
        return self.found.checkpoint.model_file(self.method)

    def setup(self, given: EngineConfig) -> TransformersConfig:
        """Return the given setup, or the defaults if it is another engine's, with its method. Raises Unsupported."""
        setup = given if isinstance(given, TransformersConfig) else TransformersConfig()
        config = self.found.checkpoint.config
        config.check_code(trusted=setup.trust_remote_code)
        return replace(setup, method=self.method.name, dtype=self.method.dtype or config.dtype or "bf16")

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        """Write or download the folder, its only path, and return the model. Raises BadFile."""
        checkpoint = self.found.checkpoint
        checkpoint.require(self.method)
        folder = self.found.obtain(on_progress)
        read = read_checkpoint(folder)
        if not read.file_bytes and (self.found.origin != "twin" or any(folder.glob("*.bin"))):
            raise BadFile(
                f"{checkpoint.name} has no weights in safetensors here",
                "omit --offline, or use a checkpoint with safetensors, as Transformers' save_pretrained writes",
            )
        return read.model_file(self.method)


def parse(scheme: str, rest: str) -> ModelRef:
    """Parse what follows `transformers:` (a folder if it exists or looks like a path, otherwise a repo) or
    `transformers-twin:` (an id of the catalog). Raises UsageError.
    """
    if scheme == "transformers-twin":
        return _parse_twin(rest)
    if not rest.strip():
        hint = "write transformers:org/name, or transformers:FOLDER with a config.json"
        raise UsageError("transformers: names no checkpoint", hint)
    name, quant = rest, None
    if not path_exists(rest):
        name, quant = split_quant(parse_address(rest) or rest)
    if path_exists(name) or looks_like_path(name):
        return _ref("folder", str(expand_path(name)), f"transformers:{name}", quant)
    hub_name = HUB_NAME.fullmatch(name)
    if hub_name is None:
        what = f"transformers:{sanitize(rest)} is neither a folder nor org/name"
        raise UsageError(what, f"of a catalog model: transformers-twin:{sanitize(name)}")
    revision = hub_name["revision"] or MAIN
    label = f"transformers:{name}" if hub_name["revision"] else f"transformers:{hub_name['repo']}"
    return replace(_ref("hub", hub_name["repo"], label, quant), revision=revision)


def _parse_twin(rest: str) -> ModelRef:
    name, quant = split_quant(rest)
    if not name or "/" in name:
        what = f"{f'transformers-twin:{rest}'!r} is not transformers-twin:<id>"
        raise UsageError(what, "list the ids with: ggbench models")
    return _ref("id", name.lower(), f"transformers-twin:{name}", quant)


def _ref(form: str, name: str, label: str, quant: str | None = None) -> ModelRef:
    quants = () if quant is None else (quant,)
    return ModelRef("own", name, quants, engine="transformers", form=form, label=sanitize(label))


def targets(ref: ModelRef, catalog: Catalog | None = None, hub: HubAccess | None = None) -> tuple[Target, ...]:
    """Return a target for each named method, by default for the method in which the checkpoint is stored."""
    found = find_checkpoint(ref, catalog, hub)
    folder, size = found.checkpoint.folder, found.checkpoint.file_bytes or None
    methods = wanted_methods(found, ref)
    for method in methods:
        found.checkpoint.require(method)
    return tuple(
        Target(ref.label, each.name, found.origin, folder, size, own=CheckpointToRun(found, each))
        for each in methods or (found.checkpoint.method,)
    )


def find_checkpoint(
    ref: ModelRef, catalog: Catalog | None = None, hub: HubAccess | None = None
) -> FoundCheckpoint:
    """Return the checkpoint that MODEL selects, with its config.json.

    Raises UnknownName for an unknown catalog id, Unsupported for a model without checkpoint support, BadFile for a
    folder without a checkpoint, and like `hub.listing.list_checkpoint`.
    """
    if ref.form == "id":
        model = (catalog or load_catalog()).model(ref.name)
        config = twin_config(model.hyper, model.id, tied=model.tied_in_config)
        folder = paths.twins_dir() / "checkpoints" / model.id
        return FoundCheckpoint(checkpoint_of(config), "twin", lambda _: write_config(config, folder))
    if ref.form == "hub":
        return _of_hub(ref, hub or HubAccess.from_environment())
    checkpoint = read_checkpoint(ref.path)
    return FoundCheckpoint(checkpoint, "file" if checkpoint.file_bytes else "twin", lambda _: ref.path)


def wanted_methods(found: FoundCheckpoint, ref: ModelRef) -> tuple[Method, ...]:
    return tuple(found.checkpoint.method_named(name) for name in ref.quants)


def planned_methods(found: FoundCheckpoint) -> tuple[Method, ...]:
    """Return the methods of a plan without QUANTs: all for a catalog model, otherwise those of the checkpoint."""
    return tuple(METHODS.values()) if found.checkpoint.is_twin else found.checkpoint.methods()


def _of_hub(ref: ModelRef, access: HubAccess) -> FoundCheckpoint:
    local = _in_cache(ref, access)
    cached: FoundCheckpoint | None = None
    if local is not None and (folder := local.folder) is not None:
        cached = FoundCheckpoint(local, "hub", lambda _: folder)
        if local.file_bytes:
            return cached
    try:
        listing = list_checkpoint(access, ref.name, ref.revision)
    except NetworkError:
        if cached is None:
            raise
        return cached
    variant = listing.variants[0]
    about = replace(variant, files=tuple(file for file in variant.files if file.path == CONFIG))
    if about.file_bytes > LARGEST_JSON_BYTES:
        size = format_bytes(LARGEST_JSON_BYTES)
        raise BadFile(f"config.json of {sanitize(listing.repo)} is larger than {size}", DAMAGED_HINT)
    moved = needed_bytes(access, listing, about)
    data = read_json(download(access, listing, about)[0], sanitize(listing.repo))
    weights = sum(file.n_bytes for file in variant.files if file.path.endswith(".safetensors"))

    def obtain(on_progress: OnProgress | None) -> Path:
        def on_files(files: tuple[FileProgress, ...]) -> None:
            if on_progress is not None:
                on_progress(*summed(files)[:2])

        return download(access, listing, variant, on_progress=on_files)[0].parent

    return FoundCheckpoint(
        checkpoint=Checkpoint(parse_config(data, sanitize(listing.repo)), data, file_bytes=weights),
        origin="hub",
        obtain=obtain,
        download_bytes=needed_bytes(access, listing, variant),
        listing=listing,
        moved_bytes=moved,
    )


def _in_cache(ref: ModelRef, access: HubAccess) -> Checkpoint | None:
    """Return the checkpoint from Hugging Face's cache; None if missing or incomplete."""
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
