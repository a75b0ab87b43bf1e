"""List the GGUF models of every program on this machine; a broken or inaccessible file is a row with the reason."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench import paths
from ggbench.errors import BadFile
from ggbench.hub.repo_records import find_snapshots
from ggbench.models.local_files import (
    MAX_FOLDERS,
    LocalVariant,
    local_variants,
    variants_in,
)
from ggbench.models.model_stores import ModelStore, OllamaModel, find_model_stores, ollama_models
from ggbench.record import Record
from ggbench.text import sanitize
from ggbench.units import format_count

_TWIN = "twin:"


class LocalModel(Record):
    """One quant of a local model, or a store that cannot be read."""

    store: str
    """Program that owns the file, e.g. `Hugging Face`; `folder` for a folder given by the user."""
    name: str
    """Name in its store: `org/name`, `llama3.2:1b`, or the file name without `.gguf`; printable."""
    model: str
    """MODEL argument: `org/name`, `twin:<id>` (with the quant), or the file's path with `~` for home. Input for
    `catalog.selector`, so not sanitized; empty without a file.
    """
    quant: str | None
    """Its `quant_label`."""
    paths: tuple[Path, ...]
    """The file, or the existing shards; empty without a file."""
    file_bytes: int | None
    """Total size; None without a file."""
    architecture: str | None = None
    """Printable; None if the header lacks it or cannot be read."""
    n_ctx_train: int | None = None
    is_twin: bool = False
    is_draft: bool = False
    """Whether it only drafts for another model, as `speculate --draft`."""
    reason: str = ""
    """Why the model cannot be measured, in one printable line; empty if it can."""
    place: Path | None = None
    """The folder or file added by the user in which it was found; None in a program's own store."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """MODEL, and QUANT if MODEL alone is ambiguous; not quoted for a shell. Empty without a file."""
        if not self.paths:
            return ()
        return (self.model,) if self.is_named_by_path or self.quant is None else (self.model, self.quant)

    @property
    def is_runnable(self) -> bool:
        """Whether it answers by itself: not a twin, whose weights are random, nor a draft."""
        return bool(self.paths) and not (self.reason or self.is_twin or self.is_draft)

    @property
    def is_named_by_path(self) -> bool:
        return bool(self.paths) and self.model == path_argument(self.paths[0])


def find_local_models(
    dirs: Sequence[Path] = (), stores: Sequence[ModelStore] | None = None
) -> tuple[LocalModel, ...]:
    """Return the models of every store and of `dirs`, by store and name, largest quant first.

    A file reachable under several names is listed once, in the first place. Never raises for file system errors.
    `stores` defaults to `find_model_stores()`.
    """
    stores = find_model_stores() if stores is None else stores
    folders = [ModelStore("folder", path, "folder") for path in dirs]
    seen: set[_Identity] = set()
    return tuple(model for store in (*stores, *folders) for model in _models(store, seen))


def models_in_place(place: Path) -> tuple[LocalModel, ...]:
    """Return the models in and below a folder, or the model of a file. Raises BadFile."""
    try:
        if place.is_dir():
            os.scandir(place).close()
            return find_local_models([place], ())
    except OSError as error:
        raise BadFile(f"{sanitize(str(place))} cannot be read: {error.strerror}", "check the path") from None
    return tuple(_model("folder", each, each.stem, None) for each in local_variants(place))


_Candidate = tuple[LocalVariant, str, str | None]
"""A variant found in a store, its name there, and the repo to use as MODEL instead of its path."""
_Identity = tuple[tuple[int, int], ...]
"""Devices and inodes of a model's files."""


def _models(store: ModelStore, seen: set[_Identity]) -> list[LocalModel]:
    """Return the models of a store but those in `seen`, and add them there."""
    found: list[LocalModel] = []
    try:
        for each in _candidates(store):
            if isinstance(each, LocalModel):
                found.append(each)
            elif _is_new(each[0], seen):
                found.append(_model(store.name, *each))
    except OSError as error:
        found.append(_unreadable_store(store, f"it cannot be read: {error.strerror}"))
    return sorted(found, key=_place)


def _place(model: LocalModel) -> tuple[object, ...]:
    """Return a key that sorts by folder and name, drafts below the models of their folder."""
    folder = str(model.paths[0].parent) if model.paths else ""
    return folder, model.is_draft, model.name.lower(), -(model.file_bytes or 0), model.paths


def _candidates(store: ModelStore) -> Iterator[_Candidate | LocalModel]:
    """Yield what is in a store; what has no file as it is listed. Raises OSError."""
    match store.layout:
        case "ollama":
            for entry in ollama_models(store.root):
                yield _of_ollama(store.name, entry)
        case "hub":
            yield from _hub_cache_candidates(store)
        case "folder":
            variants, is_truncated = variants_in(store.root)
            yield from ((each, each.stem, None) for each in variants)
            if is_truncated:
                reason = f"it has more than {format_count(MAX_FOLDERS)} folders; choose one of them"
                yield _unreadable_store(store, reason)


def _is_new(variant: LocalVariant, seen: set[_Identity]) -> bool:
    """Return whether the files were not seen before, nor deleted meanwhile; then they are now."""
    try:
        identity = tuple((status.st_dev, status.st_ino) for status in map(Path.stat, variant.paths))
    except OSError:
        return False
    is_new = identity not in seen
    seen.add(identity)
    return is_new


def _of_ollama(store_name: str, entry: OllamaModel) -> _Candidate | LocalModel:
    reason = entry.reason
    if entry.blob is not None:
        try:
            (variant,) = local_variants(entry.blob)
            return replace(variant, quant=entry.quant), entry.name, None
        except BadFile as error:
            reason = error.message
    return LocalModel(store_name, sanitize(entry.name), "", entry.quant, (), None, reason=reason)


def _model(store_name: str, variant: LocalVariant, name: str, repo: str | None) -> LocalModel:
    first, facts = variant.paths[0], variant.facts
    return LocalModel(
        store=store_name,
        name=sanitize(name),
        model=repo or _twin_argument(variant) or path_argument(first),
        quant=variant.quant,
        paths=variant.paths,
        file_bytes=variant.file_bytes,
        architecture=facts.architecture,
        n_ctx_train=facts.n_ctx_train,
        is_twin=facts.is_twin,
        is_draft=variant.role == "draft",
        reason=variant.shortage or facts.reason,
    )


def _hub_cache_candidates(store: ModelStore) -> Iterator[_Candidate]:
    """Yield the variants of every cached repo; one whose quant is unique and first in its repo is named by the repo."""
    seen_quants: set[tuple[str, str | None]] = set()
    for repo, folder in find_snapshots(store.root):
        try:
            variants = variants_in(folder)[0]
        except OSError:
            continue
        times = Counter(variant.quant for variant in variants if variant.role == "model")
        for variant in variants:
            is_unique = times[variant.quant] == 1 and (repo, variant.quant) not in seen_quants
            is_whole = variant.role == "model" and not variant.missing
            by_repo = store.finds_repos and variant.quant and is_unique and is_whole
            yield variant, repo, repo if by_repo and repo.count("/") == 1 else None
        seen_quants.update((repo, quant) for quant in times)


def _unreadable_store(store: ModelStore, reason: str) -> LocalModel:
    return LocalModel(
        store.name, sanitize(path_argument(store.root)), "", None, (), None, reason=sanitize(reason)
    )


def _twin_argument(variant: LocalVariant) -> str | None:
    """Return `twin:<id>` for a twin that it would find again; None for any other file."""
    path, facts = variant.paths[0], variant.facts
    origin, _, model_id = (facts.twin_source or "").partition(":")
    is_cached = path.parent == paths.twins_dir() and path.stem == f"{model_id}-{variant.quant}"
    return f"{_TWIN}{model_id}" if facts.is_twin and origin == "catalog" and is_cached else None


def path_argument(path: Path) -> str:
    """Return the path with `~` for home; a leading `./` protects names that begin with a hyphen or a tilde."""
    if not path.is_absolute():
        return f"./{path}"
    text, home = str(path), os.path.expanduser("~")  # noqa: PTH111 - pathlib's raises without one
    return f"~{text[len(home) :]}" if home != "/" and text.startswith(f"{home}/") else text
