"""Bounded search for GGUF files below a folder, and for snapshots in Hugging Face's cache.

A folder may contain link cycles, a hundred thousand files or a whole home: depth and number of folders are limited,
each folder is entered once, and unreadable subfolders are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ggbench.hub.hf_cache import recorded_commit, snapshots

_MAX_DEPTH = 5
"""Levels below the root: publisher, repo, quant, and two to spare."""
MAX_FOLDERS = 20_000
_REPO_PREFIX = "models--"


def find_gguf_files(root: Path) -> tuple[tuple[Path, ...], bool]:
    """Find files named `*.gguf` in and below `root`, sorted, ignoring hidden files and folders.

    The second value is whether the folder limit was reached. Raises OSError where `root` itself cannot be read.
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
                return tuple(map(Path, sorted(found))), True
            entered.add(identity)
            queue.append((below_it, depth + 1))
    return tuple(map(Path, sorted(found))), False


def find_snapshots(hub_cache: Path) -> Iterator[tuple[str, Path]]:
    """Yield repo and folder of every snapshot in Hugging Face's cache; in each repo `main` first, then the newest.

    A repo is `org/name`; some old ones have only a name. Raises OSError where the cache cannot be read.
    """
    with os.scandir(hub_cache) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(_REPO_PREFIX))
    for name in names:
        repo = name.removeprefix(_REPO_PREFIX).replace("--", "/")
        folder = hub_cache / name
        for snapshot in snapshots(folder, recorded_commit(folder, "main")):
            yield repo, snapshot


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino
