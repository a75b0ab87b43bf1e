"""Find the GGUF models in and below a folder by file name alone.

No header is read, so broken files are listed too. Names and quants follow the same rules as in a Hub listing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import is_sidecar
from ggbench.gguf_file.shards import parse_shard_name
from ggbench.hub.repo_records import RepoFile, RepoVariant, group_variants
from ggbench.text import plain

_MAX_DEPTH = 5
"""Levels below the root: publisher, repo, quant, and two to spare."""
MAX_FOLDERS = 20_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_NAME = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class LocalVariant(RepoVariant):
    """A variant whose existing files are on this disk."""

    folder: Path = Path()
    """The name and the paths of the files are relative to it."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Existing shards, in order."""
        return tuple(self.folder / file.path for file in self.files)

    @property
    def shortage(self) -> str:
        """Number of missing shards in words; empty where there are none."""
        missing = self.n_missing
        return f"{missing} of its {len(self.files) + missing} shards are missing" if missing else ""


def local_variants(place: Path) -> tuple[LocalVariant, ...]:
    """Return the variants in a folder and its direct subfolders, or the one that a file belongs to. Raises BadFile."""
    try:
        if place.is_dir():
            return variants_in(place, max_depth=1)[0]
        if not place.exists():
            raise BadFile(f"no such file or folder: {plain(str(place))}", "check the path")
        if not place.is_file():
            raise BadFile(f"{plain(str(place))} is neither a file nor a folder", "give a .gguf file")
        shard = parse_shard_name(place.name)
        files = [path for path in (shard.beside(place) if shard else [place]) if path.is_file()]
        return _grouped(place.parent, (_repo_file(path.name, path, path.stat()) for path in files))
    except OSError as error:
        raise BadFile(f"{plain(str(place))} cannot be read: {error.strerror}", "check the path") from None


def variants_in(
    root: Path, max_depth: int = _MAX_DEPTH, *, with_sidecars: bool = False
) -> tuple[tuple[LocalVariant, ...], bool]:
    """Return the variants in and below `root`, largest first, without hidden files and folders.

    A folder may contain link cycles, a hundred thousand files or a whole home: depth and number of folders are limited,
    each folder is entered once, and unreadable subfolders are skipped. The second value is whether the folder limit was
    reached. Raises OSError where `root` itself cannot be read.
    """
    found: list[RepoFile] = []
    entered = {_identity(root.stat())}
    is_truncated = False
    queue = [(os.fspath(root), 0)]
    start = len(os.path.join(root, ""))  # noqa: PTH118 - pathlib drops the slash at the end
    for folder, depth in queue:
        try:
            with os.scandir(folder) as entries:
                listed = sorted((each for each in entries if not each.name.startswith(".")), key=lambda each: each.name)
        except OSError:
            if depth == 0:
                raise
            continue
        for entry in listed:
            with suppress(OSError):
                if entry.is_file():
                    if entry.name.lower().endswith(".gguf") and (with_sidecars or not is_sidecar(entry.name)):
                        found.append(_repo_file(entry.path[start:], Path(entry.path), entry.stat()))
                elif entry.is_dir() and depth < max_depth and (identity := _identity(entry.stat())) not in entered:
                    if len(entered) < MAX_FOLDERS:
                        entered.add(identity)
                        queue.append((entry.path, depth + 1))
                    else:
                        is_truncated = True
    return _grouped(root, found), is_truncated


def _repo_file(name: str, path: Path, status: os.stat_result) -> RepoFile:
    """Return the record of a file; in Hugging Face's cache, the blob that it links to is named by its hash."""
    blob = path.readlink().name if path.is_symlink() else ""
    sha256 = blob if _SHA256.fullmatch(blob) else None
    return RepoFile(name, status.st_size, sha256, blob if _GIT_NAME.fullmatch(blob) else "")


def _grouped(folder: Path, files: Iterable[RepoFile]) -> tuple[LocalVariant, ...]:
    return tuple(
        LocalVariant(each.name, each.quant, each.files, each.missing, folder) for each in group_variants(files)
    )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
