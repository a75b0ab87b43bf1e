"""GGUF files below a folder, and in the snapshots of Hugging Face's cache, found within bounds.

A folder may hold links in a circle, a hundred thousand files, or a whole home: depth and number of folders are limited,
each folder is entered once, and what cannot be read below the first one is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAX_DEPTH = 5
"""Folders below the first: publisher, repo, quant, and room to spare."""
MAX_FOLDERS = 20_000
_REPO_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a walk has found."""

    paths: tuple[Path, ...]
    """In the order of their names, folder by folder."""
    is_truncated: bool
    """Whether there are more folders than were looked into."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a repo in Hugging Face's cache."""

    repo: str
    """`org/name`; a name alone for a few old ones."""
    folder: Path


def find_gguf_files(root: Path) -> FoundFiles:
    """Files named `*.gguf` in and below `root`; hidden files and folders are left out.

    Raises OSError where `root` itself cannot be read.
    """
    found: list[str] = []
    entered = {_identity(root)}
    queue = [(root, 0)]
    for folder, depth in queue:
        try:
            with os.scandir(folder) as entries:
                listed = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            if depth == 0:
                raise
            continue
        below = []
        for entry in listed:
            try:
                if entry.is_dir():
                    below.append(entry)
                elif entry.name.lower().endswith(".gguf") and entry.is_file():
                    found.append(entry.path)
            except OSError:
                continue
        if depth == _MAX_DEPTH:
            continue
        for entry in sorted(below, key=lambda each: each.name):
            try:
                below_it = Path(entry.path)
                identity = _identity(below_it)
            except OSError:
                continue
            if identity in entered:
                continue
            if len(entered) == MAX_FOLDERS:
                return FoundFiles(tuple(map(Path, sorted(found))), is_truncated=True)
            entered.add(identity)
            queue.append((below_it, depth + 1))
    return FoundFiles(tuple(map(Path, sorted(found))), is_truncated=False)


def find_snapshots(hub_cache: Path) -> Iterator[Snapshot]:
    """The snapshots of every model repo in Hugging Face's cache; of each repo `main` first, then the newest.

    Raises OSError where the cache cannot be read. Source: huggingface_hub's file_download.
    """
    with os.scandir(hub_cache) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(_REPO_PREFIX))
    for name in names:
        repo = name.removeprefix(_REPO_PREFIX).replace("--", "/")
        for folder in _snapshot_folders(hub_cache / name):
            yield Snapshot(repo, folder)


def _snapshot_folders(repo_folder: Path) -> list[Path]:
    try:
        with os.scandir(repo_folder / "snapshots") as entries:
            dated = [(entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []
    if len(dated) == 1:
        return [Path(dated[0][1])]
    try:
        main = (repo_folder / "refs/main").read_bytes()[:64].decode("utf-8", errors="replace").strip()
    except OSError:
        main = ""
    dated.sort(reverse=True)
    return sorted((Path(path) for _, path in dated), key=lambda path: path.name != main)


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino
