"""Resolve MODEL and QUANT of a checkpoint: a folder, or a Hub repo.

Only config.json of a repo is read; its safetensors are downloaded to run the checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.errors import BadFile, UsageError
from ggbench.extras.transformers import engine
from ggbench.extras.transformers.checkpoint import Checkpoint, read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.config_json import (
    CONFIG,
    DAMAGED_HINT,
    LARGEST_JSON_BYTES,
    parse_config,
    read_json,
)
from ggbench.extras.transformers.storage import Method
from ggbench.gguf_file.model_file import ModelFile
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download, needed_bytes
from ggbench.hub.listing import list_checkpoint
from ggbench.hub.repo_records import RepoListing, recorded_commit, repo_folder, snapshots
from ggbench.models.reference import HUB_NAME, MAIN, ModelRef, looks_like_path, parse_address, split_quant
from ggbench.models.sources import ModelSource, OnProgress, download_first
from ggbench.models.targets import Target
from ggbench.paths import expand_path, path_exists
from ggbench.record import Record
from ggbench.text import sanitize
from ggbench.units import format_bytes


class FoundCheckpoint(Record):
    """A checkpoint: in a folder, or of a repo to download."""

    checkpoint: Checkpoint
    origin: Literal["file", "hub"]
    access: HubAccess | None = None
    listing: RepoListing | None = None
    """The repo; None if the Hub was not asked, as everything is in a folder."""

    @property
    def download_bytes(self) -> int:
        if self.access is None or self.listing is None:
            return 0
        return needed_bytes(self.access, self.listing, self.listing.variants[0])

    def obtain(self, on_progress: OnProgress | None) -> Path:
        """Return the folder, downloaded if it is not here. Raises like `download`."""
        if self.access is not None and self.listing is not None:
            return download_first(self.access, self.listing, self.listing.variants[0], on_progress).parent
        assert self.checkpoint.folder is not None
        return self.checkpoint.folder


class CheckpointToRun(ModelSource):
    found: FoundCheckpoint
    method: Method

    @property
    def download_bytes(self) -> int:
        return self.found.download_bytes

    @property
    def words(self) -> tuple[str, ...]:
        """MODEL and QUANT that select it from any folder; empty if it is not in a folder of the user's."""
        folder = self.found.checkpoint.folder
        if self.found.origin == "hub" or folder is None:
            return ()
        return f"transformers:{folder.absolute()}", self.method.name

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
        """Download the folder, its only path, and return the model. Raises BadFile."""
        checkpoint = self.found.checkpoint
        checkpoint.require(self.method)
        read = read_checkpoint(self.found.obtain(on_progress))
        if not read.file_bytes:
            raise BadFile(
                f"{checkpoint.name} has no weights in safetensors here",
                "omit --offline, or use a checkpoint with safetensors, as Transformers' save_pretrained writes",
            )
        return read.model_file(self.method)


def parse(_: str, rest: str) -> ModelRef:
    """Parse what follows `transformers:`: a folder if it exists or looks like a path, otherwise a repo.

    Raises UsageError.
    """
    name, quant = rest, None
    if not path_exists(rest):
        name, quant = split_quant(parse_address(rest) or rest)
    hub_name = None
    if not path_exists(name) and not looks_like_path(name):
        hub_name = HUB_NAME.fullmatch(name)
        if hub_name is None:
            what = f"transformers:{sanitize(rest)} is neither a folder nor org/name"
            raise UsageError(what, "write transformers:org/name, or transformers:FOLDER with a config.json")
    return ModelRef(
        "own",
        hub_name["repo"] if hub_name else str(expand_path(name)),
        () if quant is None else (quant,),
        (hub_name and hub_name["revision"]) or MAIN,
        engine="transformers",
        form="hub" if hub_name else "folder",
        label=sanitize(f"transformers:{name}"),
    )


def targets(ref: ModelRef, hub: HubAccess | None = None) -> tuple[Target, ...]:
    """Return a target for each named method, by default for the method in which the checkpoint is stored."""
    found = find_checkpoint(ref, hub)
    folder, size = found.checkpoint.folder, found.checkpoint.file_bytes or None
    methods = wanted_methods(found, ref)
    for method in methods:
        found.checkpoint.require(method)
    return tuple(
        Target(ref.label, each.name, found.origin, folder, size, source=CheckpointToRun(found, each))
        for each in methods or (found.checkpoint.method,)
    )


def find_checkpoint(ref: ModelRef, hub: HubAccess | None) -> FoundCheckpoint:
    """Return the checkpoint that MODEL selects, with its config.json.

    Raises BadFile for a folder without a checkpoint, and like `hub.listing.list_checkpoint`.
    """
    if ref.form == "hub":
        return _of_hub(ref, hub or HubAccess.from_environment())
    return FoundCheckpoint(read_checkpoint(ref.path), "file")


def wanted_methods(found: FoundCheckpoint, ref: ModelRef) -> tuple[Method, ...]:
    return tuple(found.checkpoint.method_named(name) for name in ref.quants)


def _of_hub(ref: ModelRef, access: HubAccess) -> FoundCheckpoint:
    local = _in_cache(ref, access)
    if local is not None and local.file_bytes:
        return FoundCheckpoint(local, "hub")
    listing = list_checkpoint(access, ref.name, ref.revision)
    variant = listing.variants[0]
    about = replace(variant, files=tuple(file for file in variant.files if file.path == CONFIG))
    if about.file_bytes > LARGEST_JSON_BYTES:
        size = format_bytes(LARGEST_JSON_BYTES)
        raise BadFile(f"config.json of {sanitize(listing.repo)} is larger than {size}", DAMAGED_HINT)
    data = read_json(download(access, listing, about)[0], sanitize(listing.repo))
    weights = sum(file.n_bytes for file in variant.files if file.path.endswith(".safetensors"))
    checkpoint = Checkpoint(parse_config(data, sanitize(listing.repo)), data, file_bytes=weights)
    return FoundCheckpoint(checkpoint, "hub", access, listing)


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
