"""Records what a process writes, syncs and renames, and finds what a power cut could take or mix."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest


class SyncedDisk:
    """The renames, links and syncs of files of this process under one folder, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder = folder
        self._synced: dict[int, tuple[int, int]] = {}
        """Size and time of change of each inode when it was last synced."""
        self._unsynced_folders: dict[Path, str] = {}
        self.faults: list[str] = []
        self.named: list[str] = []
        """Every name that was given to a file."""
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            sync(descriptor)
            status = os.fstat(descriptor)
            self._synced[status.st_ino] = (status.st_size, status.st_mtime_ns)
            self._unsynced_folders.pop(Path(f"/proc/self/fd/{descriptor}").resolve(), None)

        monkeypatch.setattr(os, "fsync", fsync)
        for name in ("replace", "rename", "link"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def lost_by_a_power_cut(self) -> list[str]:
        """What was renamed before its content was synced, and what has a name in a folder that was not synced since."""
        return self.faults + [f"{name} in {folder.name}" for folder, name in self._unsynced_folders.items()]

    def _watched(self, call: Callable[..., None]) -> Callable[..., None]:
        def rename(source: str | Path, target: str | Path, **options: object) -> None:
            call(source, target, **options)
            path = Path(target).absolute()
            if not path.is_relative_to(self._folder) or path.is_dir():
                return
            status = path.lstat()
            self.named.append(path.name)
            if not path.is_symlink() and self._synced.get(status.st_ino) != (status.st_size, status.st_mtime_ns):
                self.faults.append(f"{path.name} was renamed before it was synced")
            self._unsynced_folders[path.parent.resolve()] = path.name

        return rename
