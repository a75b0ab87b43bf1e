"""Find the GGUF models in and below a folder, and read from their headers the data for a listing.

Broken files are listed too; names follow the same rules as in a Hub listing. Of most files only the metadata before the
vocabulary are read, a few kilobytes: a listing of hundreds of models takes part of a second.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import Role, parse_shard_name, quant_label, role
from ggbench.hub.repo_records import RepoFile, RepoVariant, group_variants
from ggbench.record import Record
from ggbench.text import sanitize, shorten

_MAX_DEPTH = 5
"""Levels below the root: publisher, repo, quant, and two to spare."""
MAX_FOLDERS = 20_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_NAME = re.compile(r"[0-9a-f]{40}")


class HeaderFacts(Record):
    """Data from the start of a header, for a listing; text is printable."""

    quant: str | None = None
    """Its `quant_label`."""
    role: Role = "model"
    architecture: str | None = None
    n_ctx_train: int | None = None
    is_twin: bool = False
    twin_source: str | None = None
    """Source of a twin, e.g. `catalog:qwen1.5-7b`."""
    reason: str = ""
    """Why the header cannot be read, in one line."""


class LocalVariant(RepoVariant):
    """A variant whose existing files are on this disk."""

    folder: Path = Path()
    """The paths in `files` are relative to it."""
    facts: HeaderFacts = HeaderFacts()

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / file.path for file in self.files)

    @property
    def shortage(self) -> str:
        """A phrase with the number of missing shards; empty if all exist."""
        missing = self.n_missing
        return f"{missing} of its {len(self.files) + missing} shards are missing" if missing else ""


def local_variants(place: Path) -> tuple[LocalVariant, ...]:
    """Return the models and drafts in a folder and its direct subfolders, or the variant of a file. Raises BadFile."""
    try:
        if place.is_dir():
            return variants_in(place, max_depth=1)[0]
        if not place.exists():
            raise BadFile(f"no such file or folder: {sanitize(str(place))}", "check the path")
        if not place.is_file():
            raise BadFile(f"{sanitize(str(place))} is neither a file nor a folder", "give a .gguf file")
        reject_checkpoint(place)
        shard = parse_shard_name(place.name)
        files = [path for path in (shard.shard_paths(place) if shard else [place]) if path.is_file()]
        return _grouped(place.parent, (_repo_file(path.name, path, path.stat()) for path in files))
    except OSError as error:
        raise BadFile(f"{sanitize(str(place))} cannot be read: {error.strerror}", "check the path") from None


def reject_checkpoint(place: Path) -> None:
    """Raise BadFile for a safetensors file and a folder with some, which have another name, and for a missing file."""
    with contextlib.suppress(OSError):  # a name that no file can have is reported where it is opened
        try:
            place.lstat()
        except FileNotFoundError:
            raise BadFile(f"no such file or folder: {sanitize(str(place))}", "check the path") from None
    folder = place if os.path.isdir(place) else place.parent  # noqa: PTH112 - false for a name that is too long
    if place.suffix.lower() == ".safetensors" or (folder == place and any(folder.glob("*.safetensors"))):
        raise BadFile(
            f"{sanitize(str(place))} has safetensors, not GGUF",
            f"plan and measure the checkpoint, with its config.json, as transformers:{sanitize(str(folder))}",
        )


def variants_in(root: Path, max_depth: int = _MAX_DEPTH) -> tuple[tuple[LocalVariant, ...], bool]:
    """Return the models and drafts in and below `root`, largest first, without hidden files and folders.

    A folder may contain link cycles, a hundred thousand files or a whole home: depth and number of folders are limited,
    each folder is entered once, and unreadable subfolders are skipped. The second value is whether the folder limit was
    reached. Raises OSError if `root` itself cannot be read.
    """
    found: list[RepoFile] = []
    entered = {_identity(root.stat())}
    is_truncated = False
    queue = [(os.fspath(root), 0)]
    start = len(os.path.join(root, ""))  # noqa: PTH118 - pathlib drops the slash at the end
    for folder, depth in queue:
        for entry in _entries(folder, may_fail=depth > 0):
            with suppress(OSError):
                if entry.is_file():
                    if entry.name.lower().endswith(".gguf"):
                        found.append(_repo_file(entry.path[start:], Path(entry.path), entry.stat()))
                elif (
                    entry.is_dir()
                    and depth < max_depth
                    and (identity := _identity(entry.stat())) not in entered
                ):
                    if len(entered) < MAX_FOLDERS:
                        entered.add(identity)
                        queue.append((entry.path, depth + 1))
                    else:
                        is_truncated = True
    return tuple(each for each in _grouped(root, found) if each.role in ("model", "draft")), is_truncated


def _entries(folder: str, *, may_fail: bool) -> list[os.DirEntry[str]]:
    """Return what is in a folder, by name, without hidden entries; nothing if it cannot be read and `may_fail`."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (each for each in entries if not each.name.startswith(".")), key=lambda each: each.name
            )
    except OSError:
        if not may_fail:
            raise
        return []


def _repo_file(name: str, path: Path, status: os.stat_result) -> RepoFile:
    """Return the record of a file; in Hugging Face's cache, the linked blob's name is its hash."""
    blob = path.readlink().name if path.is_symlink() else ""
    sha256 = blob if _SHA256.fullmatch(blob) else None
    return RepoFile(name, status.st_size, sha256, blob if _GIT_NAME.fullmatch(blob) else "")


def _grouped(folder: Path, files: Iterable[RepoFile]) -> tuple[LocalVariant, ...]:
    found = []
    for each in group_variants(files):
        path = each.files[0].path
        facts = facts_of(folder / path, path)
        found.append(LocalVariant(each.name, facts.quant, each.files, each.missing, facts.role, folder, facts))
    return tuple(found)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


_NAME_WIDTH = 120
_LARGEST = 1 << 31
_FEW_TENSORS = 100
"""A file of MTP layers alone has 20 to 50 tensors, a model with them some hundred, so that its table is not read."""


def facts_of(path: Path, name: str) -> HeaderFacts:
    """Return the facts of a file, of an unreadable one what its name says; `name` is its path in its folder."""
    try:
        return read_facts(path, name)
    except BadFile as error:
        return HeaderFacts(quant_label(path.absolute()), role(name), reason=sanitize(error.message))


def read_facts(path: Path, name: str = "") -> HeaderFacts:
    """Return the facts from the start of a file, or from all of its header where that does not tell. Raises BadFile."""
    from ggbench.gguf_file.parser import open_gguf, read_header, read_leading_metadata

    with open_gguf(path) as (source, size):
        metadata, n_tensors = read_leading_metadata(source, size, path.name)
        architecture, tensors = _text(metadata, "general.architecture"), None
        may_draft = n_tensors < _FEW_TENSORS and metadata.get(f"{architecture}.nextn_predict_layers")
        if may_draft or not n_tensors or quant_label(path.absolute(), metadata) is None:
            header = read_header(source, size, path.name, allow_missing_data=True)
            metadata, tensors = header.metadata, header.tensors
    n_ctx_train = metadata.get(f"{architecture}.context_length")
    return HeaderFacts(
        quant_label(path.absolute(), metadata),
        role(name or path.name, metadata, tensors),
        architecture,
        n_ctx_train if isinstance(n_ctx_train, int) and 0 < n_ctx_train < _LARGEST else None,
        bool(metadata.get("ggbench.twin")),
        _text(metadata, "ggbench.twin.source"),
    )


def _text(metadata: Mapping[str, object], key: str) -> str | None:
    value = metadata.get(key)
    return shorten(value, _NAME_WIDTH) or None if isinstance(value, str) else None
