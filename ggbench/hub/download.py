"""Download a variant, resumably and verified, into Hugging Face's cache.

huggingface_hub restarts a file after a kill, so bytes go through our own part files. Everything else follows the
cache's conventions: a lock per blob, blobs named by their hash, links from the snapshot, the branch's commit. A file
gets its final name only after its hash has been verified.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from pathlib import Path

from msgspec import field

from ggbench.errors import BadFile
from ggbench.files import (
    disk_errors,
    make_folders,
    replace_file,
    require_room,
    sync_folder,
    take_name,
    written_aside,
)
from ggbench.hub.access import HubAccess
from ggbench.hub.api import Stop, start_daemons
from ggbench.hub.part_file import (
    OTHER_FOLDER_HINT,
    PART_SUFFIX,
    PartFile,
    download_part,
    file_bytes,
    locked,
)
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant, cached_paths, repo_folder
from ggbench.record import Record
from ggbench.text import sanitize

MAX_PARALLEL = 2
"""Files downloaded in parallel."""
_REPORT_INTERVAL_S = 0.1
"""Interval between progress callbacks."""
_SHUTDOWN_TIMEOUT_S = 2.0
"""Time for a stopped transfer to end before its thread is abandoned."""
_SYMLINK_UNSUPPORTED = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""Errors of file systems without symbolic links."""


def download(
    access: HubAccess,
    listing: RepoListing,
    variant: RepoVariant,
    *,
    on_progress: Callable[[tuple[FileProgress, ...]], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> tuple[Path, ...]:
    """Download a variant into Hugging Face's cache, and return its files in order.

    Complete files are used without a request. `on_progress` receives the progress of every file, in the calling thread,
    and once more when all are complete; its exceptions propagate. Raises CancelledError once `cancel` returns True;
    BadFile for a missing shard or a file that arrives damaged twice; DoesNotFit for a full disk; UsageError if the
    cache cannot be written; NetworkError, and like `hub.access.hub_errors`. Received bytes are kept for the next call,
    except those of a damaged file.
    """
    variant.require_all_shards(listing.repo)
    here = cached_paths(access, listing, variant)
    if here is not None:
        if on_progress is not None:
            on_progress(tuple(FileProgress(file, file.n_bytes) for file in variant.files))
        return here
    return _Download(access, listing, tuple(_jobs(access, listing, variant)), on_progress, cancel).run()


def needed_bytes(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> int:
    """Return the bytes that a download would transfer: nothing for complete files, the rest of partial ones."""
    if cached_paths(access, listing, variant) is not None:
        return 0
    return sum(job.missing_bytes for job in _jobs(access, listing, variant))


class _Job(Record):
    file: RepoFile
    blob: Path
    """Final path of the content."""
    part: Path
    lock: Path
    link: Path
    """Path in the snapshot."""

    @property
    def is_complete(self) -> bool:
        """Whether a file of the right name and size exists; it was verified before it got the name."""
        # the snapshot contains the file itself only if links are unsupported; otherwise it contains links to blobs
        is_file = not self.link.is_symlink() and file_bytes(self.link) == self.file.n_bytes
        return is_file or file_bytes(self.blob) == self.file.n_bytes

    def arrived_bytes(self) -> int:
        """Return the bytes of its parts, also of huggingface_hub's own."""
        return sum(file_bytes(part) or 0 for part in self.blob.parent.glob(f"{self.blob.name}*"))

    @property
    def missing_bytes(self) -> int:
        return 0 if self.is_complete else max(0, self.file.n_bytes - (file_bytes(self.part) or 0))


def _jobs(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> Iterator[_Job]:
    folder = repo_folder(access, listing.repo)
    for file in variant.files:
        blob = folder / "blobs" / file.etag
        yield _Job(
            file,
            blob,
            part=blob.with_name(file.etag + PART_SUFFIX),
            lock=access.hub_cache / ".locks" / folder.name / f"{file.etag}.lock",
            link=folder / "snapshots" / listing.commit / file.path,
        )


class _Download(Record):
    """The download of one variant: worker threads fetch files, the calling thread reports progress."""

    access: HubAccess
    listing: RepoListing
    jobs: tuple[_Job, ...]
    on_progress: Callable[[tuple[FileProgress, ...]], None] | None
    cancel: Callable[[], bool] | None
    parts: dict[_Job, PartFile] = field(default_factory=dict)
    """Part files opened so far, which may still grow."""
    stop: Stop = field(default_factory=Stop)

    def run(self) -> tuple[Path, ...]:
        missing_bytes = sum(job.missing_bytes for job in self.jobs)
        require_room(self.access.hub_cache, missing_bytes, "the download needs", OTHER_FOLDER_HINT)
        running = set(files := start_daemons(self.jobs, self._process, MAX_PARALLEL, "download"))
        try:
            while running:
                ended, running = wait(running, _REPORT_INTERVAL_S, FIRST_COMPLETED)
                for file in ended:
                    file.result()
                if self.cancel is not None and self.cancel():
                    raise CancelledError
                self._report()
        finally:
            for file in files:
                file.cancel()
            self.stop.set()
            wait(files, _SHUTDOWN_TIMEOUT_S)
        self._report()
        _write_ref(self.access, self.listing)
        return tuple(job.link for job in self.jobs)

    def _report(self) -> None:
        if self.on_progress is None:
            return
        progress = []
        for job in self.jobs:
            part = self.parts.get(job)
            done = job.file.n_bytes - job.missing_bytes
            progress.append(FileProgress(job.file, done, part.moved_bytes if part else 0))
        self.on_progress(tuple(progress))

    def _process(self, job: _Job) -> None:
        with locked(job.lock, self.stop.check, job.arrived_bytes):
            if not job.is_complete:
                self._fill(job)
            _link(job.blob, job.link)

    def _fill(self, job: _Job) -> None:
        """Fill the part, verify it, and give it its final name."""
        name = sanitize(job.file.path)
        with PartFile(job.part, job.file) as part:
            self.parts[job] = part
            for _ in range(2):
                if part.missing_bytes:
                    self.access.require_network(f"downloading {name} of {sanitize(self.listing.repo)}")
                    download_part(self.access, self.listing.repo, self.listing.commit, part, self.stop)
                if part.agrees(self.stop.check):
                    break
                part.restart()
            else:
                raise BadFile(
                    f"{name} arrived damaged twice: its hash differs from the one on the Hub",
                    "its content was discarded; try again later, or report it to the repo's owner",
                )
        with disk_errors(job.blob.parent, OTHER_FOLDER_HINT):
            take_name(job.part, job.blob)


def _link(blob: Path, link: Path) -> None:
    """Add the blob to the snapshot, as a link, or as the file itself if links are unsupported."""
    from huggingface_hub import constants

    with disk_errors(link.parent, OTHER_FOLDER_HINT):
        if not blob.exists() or (link.exists() and link.samefile(blob)):
            return
        make_folders(link.parent)
        try:
            if constants.HF_HUB_DISABLE_SYMLINKS:
                raise OSError(errno.ENOTSUP, "links are disabled")
            with written_aside(link) as aside:
                aside.symlink_to(os.path.relpath(blob, link.parent))
                aside.replace(link)
        except OSError as error:
            if error.errno not in _SYMLINK_UNSUPPORTED:
                raise
            blob.replace(link)
        sync_folder(link.parent)


def _write_ref(access: HubAccess, listing: RepoListing) -> None:
    """Record the commit of the branch or tag, so cache tools do not treat its files as detached."""
    if listing.revision == listing.commit:
        return
    ref = repo_folder(access, listing.repo) / "refs" / listing.revision
    with disk_errors(ref.parent, OTHER_FOLDER_HINT):
        if ref.is_file() and ref.read_text() == listing.commit:
            return
        replace_file(ref, listing.commit.encode())


class FileProgress(Record):
    file: RepoFile
    done_bytes: int
    """Bytes present, from any origin."""
    moved_bytes: int = 0
    """Bytes received over the network in this run; exceeds the file size if damaged content was fetched again."""


def summed(files: Iterable[FileProgress]) -> tuple[int, int, int]:
    """Return the bytes present, the total, and those received over the network in this run."""
    done, total, moved = zip(
        *((each.done_bytes, each.file.n_bytes, each.moved_bytes) for each in files), strict=True
    )
    return sum(done), sum(total), sum(moved)
