"""Download a variant so that nothing is lost, into Hugging Face's cache or a folder of the person's choice.

huggingface_hub begins anew after a kill, so bytes come through a part file of our own. The rest of the cache is kept as
it would: its lock for each blob, blobs named by their content, links from the snapshot, the branch's commit. A file
gets its name only once its hash agrees.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ggbench.errors import BadFile, DoesNotFit, UsageError
from ggbench.hub.access import HubAccess
from ggbench.hub.download_progress import FileProgress
from ggbench.hub.hf_cache import cached_paths, repo_folder
from ggbench.hub.part_download import download_part
from ggbench.hub.part_file import PART_SUFFIX, PartFile, disk_errors, file_agrees, file_bytes, locked
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.hub.session import Stop
from ggbench.hub.variant_grouping import require_all_shards
from ggbench.plain import plain
from ggbench.units import format_bytes

MAX_PARALLEL = 2
"""Files that come at the same time."""
_REPORT_INTERVAL_S = 0.1
"""Between two calls of on_progress."""
_SHUTDOWN_TIMEOUT_S = 2.0
"""How long a stopped transfer may take to end before it is left to itself."""
_COPY_BYTES = 4 << 20
_CONTENT_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""Git's, or a sha256."""
_SYMLINK_UNSUPPORTED = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What file systems say that know no symbolic links."""


def download(
    access: HubAccess,
    listing: RepoListing,
    variant: RepoVariant,
    *,
    to: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_file_progress: Callable[[tuple[FileProgress, ...]], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> tuple[Path, ...]:
    """The variant's files, in order: in Hugging Face's cache, or with `to` in that folder, at their paths in the repo.

    What is whole already is used with no request, and `to` is filled from the cache where that has a file.
    `on_progress` is told the bytes there and the bytes in all, from the calling thread; fewer than before where a file
    had to be begun anew. `on_file_progress` is told how each file comes to be there, and once more when all are. Either may
    raise, and what it raised comes out of here. Raises CancelledError once `cancel` says so; BadFile for a missing
    shard or a file that arrives damaged twice; DoesNotFit where the disk has no room; UsageError where a folder cannot
    be written or another file has the name; NetworkError and as `hub.access.hub_errors` says. In each case what has
    arrived is kept for the next call.
    """
    require_all_shards(listing.repo, variant)
    here = cached_paths(access, listing, listing.repo, variant)
    if to is None and here is not None:
        if on_file_progress is not None:
            on_file_progress(tuple(FileProgress(file, file.n_bytes) for file in variant.files))
        return here
    jobs = tuple(_jobs(access, listing, variant, to, here))
    return _Download(access, listing, jobs, on_progress, on_file_progress, cancel).run()


def needed_bytes(access: HubAccess, listing: RepoListing, variant: RepoVariant, to: Path | None = None) -> int:
    """Bytes that a download would still move over the network: no whole file, and of a part only the rest."""
    here = cached_paths(access, listing, listing.repo, variant)
    if to is None and here is not None:
        return 0
    jobs = _jobs(access, listing, variant, to, here)
    return sum(job.missing_bytes for job in jobs if job.local is None)


@dataclass(frozen=True, slots=True)
class _Job:
    """One file and where it goes."""

    file: RepoFile
    target: Path
    """Where the content is at the end."""
    part: Path
    lock: Path
    link: Path | None
    """In the snapshot; None outside of the cache."""
    local: Path | None
    """Where this machine has the content already."""

    @property
    def is_complete(self) -> bool:
        """Whether a file of the right size has the name. In the cache it has been verified; elsewhere it may be any."""
        if file_bytes(self.target) == self.file.n_bytes:
            return True
        # A link leads to a blob; the snapshot itself has the file only where no links can be made.
        link = self.link
        return link is not None and not link.is_symlink() and file_bytes(link) == self.file.n_bytes

    @property
    def missing_bytes(self) -> int:
        """What has not arrived yet."""
        return 0 if self.is_complete else max(0, self.file.n_bytes - (file_bytes(self.part) or 0))

    @property
    def path(self) -> Path:
        """What to call the file to others."""
        return self.link or self.target


def _jobs(
    access: HubAccess, listing: RepoListing, variant: RepoVariant, to: Path | None, here: tuple[Path, ...] | None
) -> list[_Job]:
    folder = repo_folder(access, listing.repo)
    snapshot = folder / "snapshots" / listing.commit
    locks = access.hub_cache / ".locks" / folder.name
    jobs = []
    for index, file in enumerate(variant.files):
        inside = PurePosixPath(file.path)
        if inside.is_absolute() or ".." in inside.parts or "\\" in file.path or "\0" in file.path:
            raise BadFile(f"{plain(file.path)} would lead out of its folder", "do not trust this repo")
        if not (_CONTENT_HASH.fullmatch(file.etag) and _CONTENT_HASH.fullmatch(listing.commit)):
            raise BadFile(
                f"the hash of {plain(file.path)} or of its commit is none", "see whether HF_ENDPOINT is a Hub"
            )
        if to is None:
            blob = folder / "blobs" / file.etag
            part = blob.with_name(file.etag + PART_SUFFIX)
            jobs.append(_Job(file, blob, part, locks / f"{file.etag}.lock", snapshot / inside, None))
            continue
        target = to / inside
        part = target.with_name(f".{file.etag}{PART_SUFFIX}")
        blob = folder / "blobs" / file.etag
        local = here[index] if here is not None else blob if file_bytes(blob) == file.n_bytes else None
        jobs.append(_Job(file, target, part, part.with_suffix(".lock"), None, local))
    return jobs


class _Download:
    """The files of one variant on their way; the calling thread tells how far they are, others bring them."""

    def __init__(
        self,
        access: HubAccess,
        listing: RepoListing,
        jobs: tuple[_Job, ...],
        on_progress: Callable[[int, int], None] | None,
        on_file_progress: Callable[[tuple[FileProgress, ...]], None] | None,
        cancel: Callable[[], bool] | None,
    ) -> None:
        self._access = access
        self._listing = listing
        self._jobs = jobs
        self._on_progress = on_progress
        self._on_arrival = on_file_progress
        self._cancel = cancel
        self._waiting = deque(jobs)
        self._parts: dict[_Job, PartFile] = {}
        """Of those that were opened; read while they grow."""
        self._kept_bytes = {job: 0 if job.is_complete else file_bytes(job.part) or 0 for job in jobs}
        self._error: BaseException | None = None
        self._stop = Stop()

    def run(self) -> tuple[Path, ...]:
        self._check_name_conflicts()
        self._check_free_space()
        threads = [
            # Not joined at exit: one that waits for the network must not hold up Ctrl-C.
            threading.Thread(target=self._work, name="download", daemon=True)
            for _ in range(min(MAX_PARALLEL, len(self._jobs)))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(_REPORT_INTERVAL_S)
                    self._report()
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(_SHUTDOWN_TIMEOUT_S)
        if self._error is not None:
            raise self._error
        self._report_files()
        if any(job.link is not None for job in self._jobs):
            _write_ref(self._access, self._listing)
        return tuple(job.path for job in self._jobs)

    def _report(self) -> None:
        if self._cancel is not None and self._cancel():
            raise CancelledError
        if self._on_progress is not None:
            total_bytes = sum(job.file.n_bytes for job in self._jobs)
            self._on_progress(total_bytes - sum(job.missing_bytes for job in self._jobs), total_bytes)
        self._report_files()

    def _report_files(self) -> None:
        if self._on_arrival is not None:
            self._on_arrival(tuple(map(self._file_progress, self._jobs)))

    def _file_progress(self, job: _Job) -> FileProgress:
        part = self._parts.get(job)
        return FileProgress(
            job.file,
            done_bytes=job.file.n_bytes - job.missing_bytes,
            moved_bytes=part.moved_bytes if part else 0,
            copied_bytes=part.copied_bytes if part else 0,
            kept_bytes=self._kept_bytes[job],
            has_copy=job.local is not None,
        )

    def _check_name_conflicts(self) -> None:
        for job in self._jobs:
            if job.link is None and os.path.lexists(job.target) and not job.is_complete:
                raise _name_conflict(job)

    def _check_free_space(self) -> None:
        missing_bytes = sum(job.missing_bytes for job in self._jobs)
        folder = self._jobs[0].part.parent
        with disk_errors(folder):
            usage = shutil.disk_usage(_nearest_existing(folder))
        free_bytes = usage.free
        where = self._access.hub_cache if self._jobs[0].link is not None else folder
        if missing_bytes and not free_bytes and not usage.total:
            raise UsageError(
                f"{plain(str(where))} cannot be written: nothing there is on a disk",
                "choose another folder: HF_HUB_CACHE for Hugging Face's cache, or pull --to DIR",
            )
        if missing_bytes > free_bytes:
            raise DoesNotFit(
                f"not enough room in {plain(str(where))}, {format_bytes(missing_bytes - free_bytes)} missing: "
                f"{format_bytes(missing_bytes)} have to come, {format_bytes(free_bytes)} are free",
                "make room, take a smaller quant, or choose another disk: HF_HUB_CACHE, or pull --to DIR",
            )

    def _work(self) -> None:
        try:
            for job in iter(self._next_job, None):
                self._process(job)
        except BaseException as error:
            # The first is the cause; those that follow are files that it stopped.
            if self._error is None:
                self._error = error
            self._stop.set()

    def _next_job(self) -> _Job | None:
        with suppress(IndexError):
            return self._waiting.popleft()
        return None

    def _process(self, job: _Job) -> None:
        if job.link is None and self._is_in_place(job):
            return
        with locked(job.lock, self._stop.check):
            if job.link is not None:
                if not job.is_complete:
                    self._fill(job)
                _link(job.target, job.link)
            elif not self._is_in_place(job):
                self._fill(job)
        if job.link is None:
            # Whoever waits for it still holds the file open, and then finds the download done.
            job.lock.unlink(missing_ok=True)

    def _is_in_place(self, job: _Job) -> bool:
        """Whether the folder has the file. Raises UsageError where it has another of that name."""
        if not os.path.lexists(job.target):
            return False
        if file_agrees(job.target, job.file, self._stop.check):
            return True
        raise _name_conflict(job)

    def _fill(self, job: _Job) -> None:
        """Bring the content into the part, verify it, and give it its name."""
        with PartFile(job.part, job.file) as part:
            self._parts[job] = part
            for source in (*([job.local] if job.local else []), None, None):
                fault = self._complete(part, source)
                if not fault:
                    break
                part.restart()
            else:
                raise BadFile(
                    f"{plain(job.file.path)} arrived damaged twice: {fault}",
                    "nothing of it was kept; try again later, or tell the owner of the repo",
                )
        with disk_errors(job.target.parent):
            if job.link is not None:
                job.part.replace(job.target)
            else:
                _rename_without_overwriting(job)

    def _complete(self, part: PartFile, source: Path | None) -> str:
        """Complete the part from a file here or from the Hub; what is wrong with it then, empty where nothing is."""
        if source is not None:
            try:
                _fill_from_file(source, part, self._stop)
            except OSError as error:
                return f"{plain(str(source))} cannot be read: {error.strerror}"
        elif part.missing_bytes:
            self._access.require_network(f"downloading {plain(part.file.path)} of {plain(self._listing.repo)}")
            download_part(self._access, self._listing.repo, self._listing.commit, part, self._stop)
        return "" if part.agrees(self._stop.check) else "its hash is not the one that the Hub lists"


def _fill_from_file(source: Path, part: PartFile, stop: Stop) -> None:
    with source.open("rb", buffering=0) as content:
        content.seek(part.n_bytes)
        while part.missing_bytes and (data := content.read(_COPY_BYTES)):
            stop.check()
            part.append(data, is_copy=True)


def _link(blob: Path, link: Path) -> None:
    """Give the blob its path in the snapshot: by a link, or where none can be made as the file itself."""
    from huggingface_hub import constants

    with disk_errors(link.parent):
        if not blob.exists() or (link.exists() and link.samefile(blob)):
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        aside = link.with_name(f"{blob.name[:16]}.{os.getpid()}.link")
        try:
            if constants.HF_HUB_DISABLE_SYMLINKS:
                raise OSError(errno.ENOTSUP, "links are not wanted")
            aside.unlink(missing_ok=True)
            aside.symlink_to(os.path.relpath(blob, link.parent))
        except OSError as error:
            if error.errno not in _SYMLINK_UNSUPPORTED:
                raise
            blob.replace(link)
        else:
            aside.replace(link)


def _write_ref(access: HubAccess, listing: RepoListing) -> None:
    """Name the commit after the branch or tag, as the cache does, so that its files do not count as abandoned."""
    name = PurePosixPath(listing.revision)
    if listing.revision == listing.commit or name.is_absolute() or ".." in name.parts:
        return
    ref = repo_folder(access, listing.repo) / "refs" / name
    with disk_errors(ref.parent):
        if ref.is_file() and ref.read_text() == listing.commit:
            return
        ref.parent.mkdir(parents=True, exist_ok=True)
        aside = ref.with_name(f"{ref.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        aside.write_text(listing.commit)
        aside.replace(ref)


def _rename_without_overwriting(job: _Job) -> None:
    try:
        job.target.hardlink_to(job.part)
    except FileExistsError:
        raise _name_conflict(job) from None
    except OSError:
        # A file system without hard links: then a file that appeared this moment cannot be told.
        if os.path.lexists(job.target):
            raise _name_conflict(job) from None
        job.part.rename(job.target)
    else:
        job.part.unlink()


def _name_conflict(job: _Job) -> UsageError:
    return UsageError(
        f"{plain(str(job.target))} is there and is not {plain(job.file.path)} of the repo: nothing is overwritten",
        "choose another folder with --to, or move that file away",
    )


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
