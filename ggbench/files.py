"""Write files that are complete after a kill or a power cut: written to a temporary name, synced, renamed, and their
folder synced.

A rename may reach the disk before the file's content, and a power cut would then leave a file of the right name and
size, full of zeros. Source: rename(2), fsync(2), and https://lwn.net/Articles/322823.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ggbench.errors import DoesNotFit, UsageError
from ggbench.locks import held
from ggbench.text import sanitize
from ggbench.units import format_bytes

PART_SUFFIX = ".ggbench-part"
"""Suffix of a temporary folder's name."""
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of file systems that cannot sync a folder, and of folders that may be written but not read."""


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder in `parent`, by default among the system's temporary files; remove it at the end.

    It is held before it gets the name by which the next process removes what a killed one left. Raises OSError.
    """
    folder = Path(tempfile.mkdtemp(prefix=".", dir=parent))
    remove_left(folder.parent)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without such locks it stays after a kill
            stack.enter_context(held(folder))
        folder = folder.rename(f"{folder}{PART_SUFFIX}")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@functools.cache
def remove_left(folder: Path) -> None:
    """Delete the temporary folders there that no living process holds, once in the life of a process.

    One that cannot be removed stays.
    """
    for left in folder.glob(f".*{PART_SUFFIX}"):
        with contextlib.suppress(OSError), held(left):
            shutil.rmtree(left)


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yield a free name on the disk of `path`; remove a file of that name at the end. Raises OSError."""
    with temporary_folder(path.parent) as folder:
        yield folder / "part"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file or a link's target, and its folder, atomically: a reader never sees a part of it. Raises OSError."""
    path = Path(os.path.realpath(path))
    make_folders(path.parent)
    with written_aside(path) as aside:
        aside.write_bytes(content)
        take_name(aside, path)


def take_name(file: Path, name: Path) -> None:
    """Rename a file, replacing any file of that name. If it raises OSError, nothing was replaced."""
    sync_file(file)
    file.replace(name)
    sync_folder(name.parent)


def take_free_name(file: Path, name: Path) -> None:
    """Rename a file to a free name. Raises FileExistsError and other OSErrors."""
    sync_file(file)
    try:
        name.hardlink_to(file)  # the only call that fails if the name is taken
    except FileExistsError:
        raise
    except OSError:  # no hard links, as on FAT: a file created between the check and the rename would be lost
        if os.path.lexists(name):
            raise FileExistsError from None
        file.rename(name)
    else:
        file.unlink()
    sync_folder(name.parent)


def make_folders(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power cut. Raises OSError."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk. Raises OSError, e.g. if the disk is full."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, if its file system supports that. Raises OSError."""
    try:
        sync_file(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


_DIGEST_BYTES = hashlib.sha256().digest_size
_LARGEST_CACHED_BYTES = 256 << 20


def put_cached(path: Path, content: bytes) -> None:
    """Write a cache entry and the SHA-256 of its content; ignore errors."""
    with contextlib.suppress(OSError):
        replace_file(path, content + hashlib.sha256(content).digest())


def get_cached(path: Path) -> bytes | None:
    """Return the content of a cache entry; None if it is missing or damaged."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= _LARGEST_CACHED_BYTES:
            stored = path.read_bytes()
            content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
            return content if hashlib.sha256(content).digest() == digest else None
    return None


def check_free(path: Path, *, force: bool) -> None:
    """Raise UsageError for a folder, a file in none, and a regular file that exists unless `force` overwrites it.

    What is `_in_place` may exist. Raises like `disk_errors` for a name that no file can have.
    """
    with disk_errors(path.parent), contextlib.suppress(FileNotFoundError):
        path.stat()
    if not path.parent.is_dir():
        raise UsageError(
            f"cannot save in {sanitize(str(path.parent))}: no such folder", "create it, or name another"
        )
    if path.is_dir():
        raise UsageError(f"{sanitize(str(path))} is a folder", "name a file")
    if path.exists() and not force and _in_place(path) is None:
        raise _exists(path)


def write_as(path: Path, content: bytes | Iterable[bytes], *, force: bool) -> None:
    """Write a file named by the user: a regular one completely or not at all, a link's target, or what is `_in_place`.

    Raises like `check_free` and `disk_errors`.
    """
    check_free(path, force=force)
    pieces = [content] if isinstance(content, bytes) else content
    place = _in_place(path)
    if place is not None:
        with disk_errors(path), open(place, "wb", closefd=place is path) as file:
            file.writelines(pieces)
        return
    target = Path(os.path.realpath(path))
    with _written_aside(target, pieces) as aside:
        try:
            take_name(aside, target) if force else take_free_name(aside, target)
        except FileExistsError:
            raise _exists(path) from None


def _in_place(path: Path) -> Path | int | None:
    """Return a device, or the descriptor of stdout or stderr, which a shell may append to a file; None for the rest."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
    return path if path.exists() and not path.is_file() else None


def write_new(folder: Path, stem: str, suffix: str, content: bytes) -> Path:
    """Write a file under the first free name of `stem`, `stem.2`, ... and return it. Raises like `disk_errors`."""
    with _written_aside(folder / stem, [content]) as aside:
        for number in itertools.count(1):
            target = folder / f"{stem}{'' if number == 1 else f'.{number}'}{suffix}"
            with contextlib.suppress(FileExistsError):
                take_free_name(aside, target)
                return target
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _written_aside(path: Path, content: Iterable[bytes]) -> Iterator[Path]:
    """Yield a file with this content, which is removed unless it is renamed. Raises like `disk_errors`."""
    with disk_errors(path.parent), written_aside(path) as aside:
        with aside.open("wb") as file:
            file.writelines(content)
        yield aside


def _exists(path: Path) -> UsageError:
    return UsageError(f"{sanitize(str(path))} exists already", "--force overwrites it")


def read_bounded(chunks: Iterable[bytes], most_bytes: int) -> bytes | None:
    """Return all chunks together; None as soon as they are more than `most_bytes`, without reading on."""
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > most_bytes:
            return None
    return bytes(content)


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Full disk, exceeded quota, file too large."""


@contextlib.contextmanager
def disk_errors(place: Path, hint: str = "use another folder") -> Iterator[None]:
    """Translate file system errors while writing into a folder into DoesNotFit or UsageError."""
    try:
        yield
    except OSError as error:
        where = sanitize(str(place))
        if error.errno in FULL_DISK:
            what = f"the disk filled up while writing to {where}"
            raise DoesNotFit(what, f"free some space, or {hint}") from error
        raise UsageError(f"cannot write to {where}: {error.strerror or error}", hint) from error


def require_room(folder: Path, n_bytes: int, what: str, hint: str = "use another folder") -> None:
    """Raise DoesNotFit if the disk of a folder, which need not exist, has less than `n_bytes` free for `what`."""
    with disk_errors(folder, hint):
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        free = shutil.disk_usage(existing).free
    if free < n_bytes:
        raise DoesNotFit(
            f"{sanitize(str(folder))} has {format_bytes(free)} free, and {what} {format_bytes(n_bytes)}",
            f"free some space, use a smaller quant, or {hint}",
        )
