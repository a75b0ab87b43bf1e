"""Calls that Linux, macOS and Windows do not have alike; besides `machine`, this alone asks which system it is.

ggbench is developed and tested on Linux. The other branches are typed and, where Linux can run them, tested there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

IS_SUPPORTED = sys.platform != "win32"
"""Whether ggbench can run at all: its worker's pipes cannot be waited for on Windows."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open` that refuses a symbolic link; Windows has none."""
FOLDER = getattr(os, "O_DIRECTORY", 0)
"""Flag of `os.open` that refuses what is not a folder; Windows opens no folders."""

_position = threading.Lock()


def lock_file(descriptor: int, *, shared: bool = False, waits: bool = True) -> None:
    """Lock an open file or folder until it is closed. Raises OSError: at once if `waits` is false and another has it.

    Windows has no shared lock; there two readers wait for each other.
    """
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))


def lock_record(descriptor: int) -> None:
    """Lock a file open for writing for this process, as SQLite locks its own, without waiting. Raises OSError."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read into the buffer from an offset, whatever the file's position; returns how many bytes. Raises OSError."""
    if sys.platform == "win32":
        n_read = seek_and_read(descriptor, buffer, offset)
    else:
        n_read = os.preadv(descriptor, [buffer], offset)
    return n_read


def write_at(descriptor: int, data: memoryview, offset: int) -> int:
    """Write at an offset, whatever the file's position; returns how many bytes. Raises OSError."""
    if sys.platform == "win32":
        n_written = seek_and_write(descriptor, data, offset)
    else:
        n_written = os.pwrite(descriptor, data, offset)
    return n_written


def seek_and_read(descriptor: int, buffer: memoryview, offset: int) -> int:
    """As `read_at`, on a system that reads at the file's position alone."""
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def seek_and_write(descriptor: int, data: memoryview, offset: int) -> int:
    """As `write_at`, on a system that writes at the file's position alone."""
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)


def reserve_room(descriptor: int, n_bytes: int, folder: Path) -> None:
    """Give an open file in a folder that length, with room for it. Raises OSError: ENOSPC where there is too little."""
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, n_bytes)
    else:
        extend_where_room(descriptor, n_bytes, folder)


def extend_where_room(descriptor: int, n_bytes: int, folder: Path) -> None:
    """As `reserve_room`, on a system that cannot reserve: the disk may still be filled by others. Raises OSError."""
    if shutil.disk_usage(folder).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(descriptor, n_bytes)


@contextlib.contextmanager
def scratch_file(name: str, n_bytes: int) -> Iterator[str]:
    """Yield the path of a file that this user's processes can open, and that is gone at the end. Raises OSError.

    It is in memory where the system has such files.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create(name)
        try:
            os.ftruncate(descriptor, n_bytes)
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with scratch_file_on_disk(name, n_bytes) as path:
            yield path


@contextlib.contextmanager
def scratch_file_on_disk(name: str, n_bytes: int) -> Iterator[str]:
    """As `scratch_file`, on a system without files in memory alone."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        path = Path(folder, "rows")
        with path.open("wb") as file:
            file.truncate(n_bytes)
        yield str(path)
