"""The folders that ggbench writes to: how much is in them, and how much room their disks have."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class DataFolder(msgspec.Struct, frozen=True):
    """A folder that ggbench writes to, and its disk."""

    name: str
    """Such as `results`."""
    variable: str
    """Environment variable that moves it elsewhere, such as `XDG_DATA_HOME`."""
    path: str
    used_bytes: int | None
    """Of the files in it; None where that is unknown, 0 where it does not exist yet."""
    free_bytes: int | None
    """On its disk, for this user."""
    disk: int | None
    """The same number for folders on the same disk."""
    file_system: str | None
    """Such as `ext4` or `nfs4`."""
    is_writable: bool
    is_disposable: bool
    """Whether ggbench can make its content again."""


def describe_place(
    name: str, variable: str, folder: Path, *, is_disposable: bool = False, counts: bool = True
) -> DataFolder:
    """Describe a folder, which need not exist: then its disk is that of the nearest folder above that does.

    `variable` is the environment variable that moves it; `counts` adds up the files in it.
    """
    import psutil

    nearest = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    existing = next((each for each in (nearest, *nearest.absolute().parents) if each.is_dir()), None)
    free_bytes = None
    if existing is not None:
        try:
            free_bytes = psutil.disk_usage(str(existing)).free
        except OSError:
            existing = None
    return DataFolder(
        name=name,
        variable=variable,
        path=str(folder),
        used_bytes=_used_bytes(folder) if counts else None,
        free_bytes=free_bytes,
        disk=None if existing is None else existing.stat().st_dev,
        file_system=None if existing is None else _file_system(existing),
        is_writable=existing is not None and nearest.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        is_disposable=is_disposable,
    )


def _used_bytes(folder: Path) -> int | None:
    """Add up the files below a folder, each inode once and no link followed; 0 where there is none."""
    seen: set[tuple[int, int]] = set()
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        key = status.st_dev, status.st_ino
                        total += 0 if key in seen else status.st_blocks * 512  # a sparse file takes less
                        seen.add(key)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return total


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on."""
    import psutil

    target = folder.resolve()
    found = [each for each in psutil.disk_partitions(all=True) if target.is_relative_to(each.mountpoint)]
    return max(found, key=lambda each: len(each.mountpoint)).fstype or None if found else None
