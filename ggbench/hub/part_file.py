"""A partially downloaded file: filled by range requests, written through to disk, and hashed when it is complete.

A kill loses no written byte: the length of the part is its only state. Every request goes to the file's resolve URL,
which redirects to the storage: signed URLs expire.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.errors import NetworkError, UsageError
from ggbench.files import disk_errors, make_folders
from ggbench.hub.access import HubAccess
from ggbench.hub.api import (
    NotReadable,
    Patience,
    Stop,
    WrongBody,
    check_range,
    file_url,
    range_headers,
    send_request,
)
from ggbench.hub.repo_records import RepoFile
from ggbench.locks import wait_for
from ggbench.text import sanitize
from ggbench.units import format_bytes

if TYPE_CHECKING:
    import httpx2

PART_SUFFIX = ".ggbench.incomplete"
"""Ends in the suffix that huggingface_hub's commands recognize as an interrupted download."""
RESUME_HINT = "received data is kept; run the same command to continue"
OTHER_FOLDER_HINT = f"choose another folder with HF_HUB_CACHE; {RESUME_HINT}"
_READ_BYTES = 1 << 20
_POLL_S = 0.2
"""Interval at which a wait for a lock calls `check`."""
_LOCK_LIMIT_S = 600.0
"""Longer than it takes to hash a file of 50 GB on a slow disk."""


class PartFile:
    """The part of one file at `path`, created if missing; close it after use.

    Only one thread may write. A part longer than the file is restarted. Raises DoesNotFit and UsageError for disk
    errors.
    """

    def __init__(self, path: Path, file: RepoFile) -> None:
        self.path = path
        self.file = file
        with disk_errors(path.parent, OTHER_FOLDER_HINT):
            make_folders(path.parent)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            self.n_bytes = os.fstat(self._descriptor).st_size
            """Bytes received so far."""
        self.moved_bytes = 0
        """Bytes appended since it was opened."""
        if self.n_bytes > file.n_bytes:
            self.restart()

    def append(self, data: bytes) -> None:
        """Write data through to the file; bytes beyond the file's end are dropped."""
        view = memoryview(data)[: self.missing_bytes]
        self.moved_bytes += len(view)
        with disk_errors(self.path.parent, OTHER_FOLDER_HINT):
            while view:
                # Write at an offset, not at the end, so a second writer is harmless if locks are ignored.
                n_written = os.pwrite(self._descriptor, view, self.n_bytes)
                self.n_bytes += n_written
                view = view[n_written:]

    @property
    def missing_bytes(self) -> int:
        """Bytes not yet received; 0 does not mean that the content is valid."""
        return self.file.n_bytes - self.n_bytes

    def agrees(self, check: Callable[[], None]) -> bool:
        """Return whether a complete part has the expected hash. Calls `check` meanwhile, which may raise."""
        return _content_hash(self._descriptor, self.file, check) == self.file.etag

    def restart(self) -> None:
        with disk_errors(self.path.parent, OTHER_FOLDER_HINT):
            os.ftruncate(self._descriptor, 0)
        self.n_bytes = 0

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.close()
        if error is not None and not self.n_bytes:
            self.path.unlink(missing_ok=True)


def file_bytes(path: Path) -> int | None:
    """Return the size of a regular file; None if it is missing, not a regular file or inaccessible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


@contextmanager
def locked(
    path: Path, check: Callable[[], None], progress: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Hold a lock file at `path`, compatible with huggingface_hub's. Calls `check` while waiting, which may raise.

    Raises NetworkError if another program holds it for 10 minutes in which `progress` returned the same.
    """
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock

    with disk_errors(path.parent, OTHER_FOLDER_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:

        def enter() -> bool:
            check()
            with disk_errors(path.parent, OTHER_FOLDER_HINT), suppress(Timeout):
                stack.enter_context(WeakFileLock(path, timeout=_POLL_S))
                return True
            return False

        what = f"another program that downloads the same file (lock: {sanitize(str(path))})"
        if not wait_for(enter, what, limit_s=_LOCK_LIMIT_S, pause_s=0, progress=progress):
            minutes = f"{_LOCK_LIMIT_S / 60:.0f} minutes"
            raise NetworkError(f"{what} received nothing for {minutes}", "end it, then try again")
        yield


def _content_hash(descriptor: int, file: RepoFile, check: Callable[[], None]) -> str:
    """Return the hash of an open file, in hex and of the kind that the Hub states. Raises UsageError."""
    digest = hashlib.sha256()
    if file.sha256 is None:
        # Source: git hash-object; a blob's name is the SHA-1 of a header with its length, and the content.
        digest = hashlib.sha1(b"blob %d\0" % file.n_bytes, usedforsecurity=False)
    position = 0
    try:
        while data := os.pread(descriptor, _READ_BYTES, position):
            check()
            digest.update(data)
            position += len(data)
    except OSError as error:
        raise UsageError(f"a file cannot be read back: {error.strerror}", "check the disk") from error
    return digest.hexdigest()


BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
MAX_PAUSE_S = 120.0
READ_TIMEOUT_S = 30.0
"""Pauses between tries of a download and its timeouts; the pauses start over whenever data arrives."""
RANGE_BYTES = 8 << 30
"""Largest range of one request: the Hub's CDN does not serve a 50 GB file in one response."""


def download_part(access: HubAccess, repo: str, commit: str, part: PartFile, stop: Stop) -> None:
    """Download the missing bytes of a part. Raises Stopped, and like `send_request` if retries bring no data."""
    url = file_url(access, repo, part.file.path, commit)
    patience = Patience(BACKOFF_S, MAX_PAUSE_S, READ_TIMEOUT_S, reconnects=True)
    while part.missing_bytes:
        before = part.n_bytes
        try:
            send_request(
                url,
                lambda response: _fill(response, part, stop),
                repo=repo,
                doing=f"downloading {sanitize(part.file.path)}",
                headers=lambda: range_headers(part.n_bytes, min(part.file.n_bytes, part.n_bytes + RANGE_BYTES)),
                stop=stop,
                patience=patience,
            )
        except (NetworkError, NotReadable) as error:
            # Keep the part: the response may come from a captive portal between here and the Hub.
            if part.n_bytes == before:
                so_far = f"{format_bytes(part.n_bytes)} of {format_bytes(part.file.n_bytes)}"
                what = f"the download of {sanitize(part.file.name)} stopped at {so_far}: {error.message}"
                raise NetworkError(what, f"{error.hint}; {RESUME_HINT}") from None


def _fill(response: httpx2.Response, part: PartFile, stop: Stop) -> None:
    begin = part.n_bytes
    check_range(response, begin, part.file)
    for chunk in response.iter_raw():
        stop.check()
        part.append(chunk)
        if not part.missing_bytes:
            break
    if part.n_bytes == begin:
        raise WrongBody("the server sent no data", "try again later")
