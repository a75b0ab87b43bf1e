"""Folders of twins that are removed after use, by the next process that writes twins where their own was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "twins-"
_LOCK = "in-use.lock"
"""Held as long as the folder's process lives; a folder without one was not made here."""


@contextlib.contextmanager
def twin_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder for twins, which nothing removes until the end, where it is removed. Raises OSError."""
    with contextlib.ExitStack() as stack:
        while True:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent)))
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            stack.callback(os.close, descriptor)
            with contextlib.suppress(OSError):  # some network file systems cannot lock: then nothing removes it either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if (folder / _LOCK).exists():  # else it was removed before it was locked
                break
        yield folder


def remove_left_twins(parent: Path) -> None:
    """Remove the folders of twins that no process holds; one that cannot be removed stays."""
    for folder in parent.glob(f"{_PREFIX}*"):
        if folder.is_symlink():
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in folder.iterdir():
                if path.name != _LOCK:
                    path.unlink()
            (folder / _LOCK).unlink()  # last: a removal that is ended in between is taken up by the next
            folder.rmdir()
