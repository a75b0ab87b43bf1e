"""Download a variant, resumably and verified, into Hugging Face's cache or a folder.

huggingface_hub restarts a file after a kill, so bytes go through our own part files. Everything else follows the
cache's conventions: a lock per blob, blobs named by their hash, links from the snapshot, the branch's commit. A file
gets its final name only after its hash has been verified.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
from msgspec import field

from ggbench.errors import BadFile, DoesNotFit, UsageError
from ggbench.files import make_folders, replace_file, sync_folder, take_free_name, take_name
from ggbench.hub.access import HubAccess
from ggbench.hub.api import Stop, start_daemons
from ggbench.hub.part_file import (
    OTHER_FOLDER_HINT,
    PART_SUFFIX,
    PartFile,
    disk_errors,
    download_part,
    file_agrees,
    file_bytes,
    locked,
)
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant, cached_paths, repo_folder
from ggbench.text import sanitize
from ggbench.units import format_bytes

MAX_PARALLEL = 2
"""Files downloaded in parallel."""
_REPORT_INTERVAL_S = 0.1
"""Interval between progress callbacks."""
_SHUTDOWN_TIMEOUT_S = 2.0
"""Time for a stopped transfer to end before its thread is abandoned."""
_COPY_BYTES = 4 << 20
_CONTENT_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""A git SHA-1 or a SHA-256."""
_SYMLINK_UNSUPPORTED = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""Errors of file systems without symbolic links."""


def download(
    access: HubAccess,
    listing: RepoListing,
    variant: RepoVariant,
    *,
    to: Path | None = None,
    on_progress: Callable[[tuple[FileProgress, ...]], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> tuple[Path, ...]:
    """Download a variant and return its files in order, from Hugging Face's cache or, with `to`, from that folder.

    Complete files are used without a request, and `to` is filled from the cache where possible. `on_progress` receives
    the progress of every file, in the calling thread, and once more when all are complete; its exceptions propagate.
    Raises CancelledError once `cancel` returns True; BadFile for a missing shard or a file that arrives damaged twice;
    DoesNotFit for a full disk; UsageError if a folder cannot be written or another file has the name; NetworkError, and
    like `hub.access.hub_errors`. Received bytes are kept for the next call, except those of a damaged file.
    """
    variant.require_all_shards(listing.repo)
    here = cached_paths(access, listing, variant)
    if to is None and here is not None:
        if on_progress is not None:
            on_progress(tuple(FileProgress(file, file.n_bytes) for file in variant.files))
        return here
    jobs = tuple(_jobs(access, listing, variant, to, here))
    return _Download(access, listing, jobs, on_progress, cancel).run()


def needed_bytes(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> int:
    """Return the bytes that a download would transfer: nothing for complete files, the rest of partial ones."""
    if cached_paths(access, listing, variant) is not None:
        return 0
    return sum(job.missing_bytes for job in _jobs(access, listing, variant, None, None))


class _Job(msgspec.Struct, frozen=True):
    file: RepoFile
    target: Path
    """Final path of the content."""
    part: Path
    lock: Path
    link: Path | None
    """Path in the snapshot; None outside the cache."""
    local: Path | None
    """A local file with the same content."""

    @property
    def is_complete(self) -> bool:
        """Whether a file of the right name and size exists; in the cache it is verified, elsewhere not."""
        if file_bytes(self.target) == self.file.n_bytes:
            return True
        # the snapshot contains the file itself only if links are unsupported; otherwise it contains links to blobs
        link = self.link
        return link is not None and not link.is_symlink() and file_bytes(link) == self.file.n_bytes

    @property
    def missing_bytes(self) -> int:
        return 0 if self.is_complete else max(0, self.file.n_bytes - (file_bytes(self.part) or 0))


def _jobs(
    access: HubAccess,
    listing: RepoListing,
    variant: RepoVariant,
    to: Path | None,
    here: tuple[Path, ...] | None,
) -> list[_Job]:
    folder = repo_folder(access, listing.repo)
    snapshot = folder / "snapshots" / listing.commit
    locks = access.hub_cache / ".locks" / folder.name
    jobs = []
    for index, file in enumerate(variant.files):
        inside = PurePosixPath(file.path)
        if inside.is_absolute() or ".." in inside.parts or "\\" in file.path or "\0" in file.path:
            raise BadFile(f"{sanitize(file.path)} points outside its folder", "do not trust this repo")
        if not (_CONTENT_HASH.fullmatch(file.etag) and _CONTENT_HASH.fullmatch(listing.commit)):
            raise BadFile(
                f"the Hub returned an invalid hash or commit for {sanitize(file.path)}",
                "check that HF_ENDPOINT is a Hub mirror, or try later",
            )
        blob = folder / "blobs" / file.etag
        if to is None:
            part = blob.with_name(file.etag + PART_SUFFIX)
            jobs.append(_Job(file, blob, part, locks / f"{file.etag}.lock", snapshot / inside, None))
            continue
        target = to / inside
        part = target.with_name(f".{file.etag}{PART_SUFFIX}")
        known = blob if file_bytes(blob) == file.n_bytes else None
        local = known if here is None else here[index]
        jobs.append(_Job(file, target, part, part.with_suffix(".lock"), None, local))
    return jobs


class _Download(msgspec.Struct, frozen=True):
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
        self._check_names()
        self._check_free_space()
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
        if self.jobs[0].link is not None:
            _write_ref(self.access, self.listing)
        return tuple(job.link or job.target for job in self.jobs)

    def _check_names(self) -> None:
        for job in self.jobs:
            if job.link is None and os.path.lexists(job.target) and not job.is_complete:
                raise _name_conflict(job)

    def _report(self) -> None:
        if self.on_progress is None:
            return
        progress = []
        for job in self.jobs:
            part, done = self.parts.get(job), job.file.n_bytes - job.missing_bytes
            moved, copied = (part.moved_bytes, part.copied_bytes) if part else (0, 0)
            progress.append(FileProgress(job.file, done, moved, copied))
        self.on_progress(tuple(progress))

    def _check_free_space(self) -> None:
        missing_bytes = sum(job.missing_bytes for job in self.jobs)
        folder = self.jobs[0].part.parent
        with disk_errors(folder):
            existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
            usage = shutil.disk_usage(existing)
        if missing_bytes <= usage.free:
            return
        where = sanitize(str(self.access.hub_cache if self.jobs[0].link is not None else folder))
        if not usage.free and not usage.total:
            raise UsageError(f"{where} cannot be written: it is not on a disk", OTHER_FOLDER_HINT)
        raise DoesNotFit(
            f"not enough space in {where}, {format_bytes(missing_bytes - usage.free)} short: "
            f"{format_bytes(missing_bytes)} to download, {format_bytes(usage.free)} free",
            f"free some space, use a smaller quant, or {OTHER_FOLDER_HINT}",
        )

    def _process(self, job: _Job) -> None:
        if job.link is None and self._is_in_place(job):
            return
        with locked(job.lock, self.stop.check):
            if job.link is not None:
                if not job.is_complete:
                    self._fill(job)
                _link(job.target, job.link)
            elif not self._is_in_place(job):
                self._fill(job)
        if job.link is None:
            # A process that waits for the lock still has the file open, and then finds the download complete.
            job.lock.unlink(missing_ok=True)

    def _is_in_place(self, job: _Job) -> bool:
        """Return whether the folder already has the file. Raises UsageError if another file has its name."""
        if not os.path.lexists(job.target):
            return False
        if file_agrees(job.target, job.file, self.stop.check):
            return True
        raise _name_conflict(job)

    def _fill(self, job: _Job) -> None:
        """Fill the part, verify it, and give it its final name."""
        with PartFile(job.part, job.file) as part:
            self.parts[job] = part
            for source in (*([job.local] if job.local else []), None, None):
                fault = self._complete(part, source)
                if not fault:
                    break
                part.restart()
            else:
                raise BadFile(
                    f"{sanitize(job.file.path)} arrived damaged twice: {fault}",
                    "its content was discarded; try again later, or report it to the repo's owner",
                )
        with disk_errors(job.target.parent):
            if job.link is not None:
                take_name(job.part, job.target)
                return
            try:
                take_free_name(job.part, job.target)
            except FileExistsError:
                raise _name_conflict(job) from None

    def _complete(self, part: PartFile, source: Path | None) -> str:
        """Fill the part from a local file or the Hub; return the fault of the result, empty if it is valid."""
        if source is not None:
            try:
                with source.open("rb", buffering=0) as content:
                    content.seek(part.n_bytes)
                    while part.missing_bytes and (data := content.read(_COPY_BYTES)):
                        self.stop.check()
                        part.append(data, is_copy=True)
            except OSError as error:
                return f"{sanitize(str(source))} cannot be read: {error.strerror}"
        elif part.missing_bytes:
            self.access.require_network(
                f"downloading {sanitize(part.file.path)} of {sanitize(self.listing.repo)}"
            )
            download_part(self.access, self.listing.repo, self.listing.commit, part, self.stop)
        return "" if part.agrees(self.stop.check) else "its hash differs from the one on the Hub"


def _link(blob: Path, link: Path) -> None:
    """Add the blob to the snapshot, as a link, or as the file itself if links are unsupported."""
    from huggingface_hub import constants

    with disk_errors(link.parent):
        if not blob.exists() or (link.exists() and link.samefile(blob)):
            return
        make_folders(link.parent)
        aside = link.with_name(f"{blob.name[:16]}.{os.getpid()}.link")
        try:
            if constants.HF_HUB_DISABLE_SYMLINKS:
                raise OSError(errno.ENOTSUP, "links are disabled")
            aside.unlink(missing_ok=True)
            aside.symlink_to(os.path.relpath(blob, link.parent))
        except OSError as error:
            if error.errno not in _SYMLINK_UNSUPPORTED:
                raise
            blob.replace(link)
        else:
            aside.replace(link)
        sync_folder(link.parent)


def _write_ref(access: HubAccess, listing: RepoListing) -> None:
    """Record the commit of the branch or tag, so cache tools do not treat its files as detached."""
    name = PurePosixPath(listing.revision)
    if listing.revision == listing.commit or name.is_absolute() or ".." in name.parts:
        return
    ref = repo_folder(access, listing.repo) / "refs" / name
    with disk_errors(ref.parent):
        if ref.is_file() and ref.read_text() == listing.commit:
            return
        replace_file(ref, listing.commit.encode())


def _name_conflict(job: _Job) -> UsageError:
    return UsageError(
        f"{sanitize(str(job.target))} exists and differs from the repo's {sanitize(job.file.path)}; not overwritten",
        "choose another folder with --to, or move that file away",
    )


Outcome = Literal["downloaded", "copied", "already_here"]


class FileProgress(msgspec.Struct, frozen=True):
    file: RepoFile
    done_bytes: int
    """Bytes present, from any origin."""
    moved_bytes: int = 0
    """Bytes received over the network in this run; exceeds the file size if damaged content was fetched again."""
    copied_bytes: int = 0
    """Bytes copied in this run from another file on this disk."""

    @property
    def outcome(self) -> Outcome:
        if self.moved_bytes:
            return "downloaded"
        return "copied" if self.copied_bytes else "already_here"


def summed(files: Iterable[FileProgress]) -> tuple[int, int, int]:
    """Return the bytes present, the total, and those received over the network in this run."""
    done, total, moved = zip(
        *((each.done_bytes, each.file.n_bytes, each.moved_bytes) for each in files), strict=True
    )
    return sum(done), sum(total), sum(moved)
