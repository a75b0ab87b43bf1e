"""The headers of published files: some megabytes each instead of the model, and kept, so that they are read once.

A header is kept under what the Hub names the content, so another repo or commit with the same file shares it, and none
is ever stale.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile, GgbenchError, NetworkError, UsageError
from ggbench.gguf_file.header import assemble, shard_count
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import Header, read_header
from ggbench.hub import disk_cache
from ggbench.hub.access import HubAccess
from ggbench.hub.ranges import NotReadable, RangeSource
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.hub.session import Stop
from ggbench.hub.variant_grouping import require_all_shards
from ggbench.plain import plain

MAX_PARALLEL = 4
"""Variants that are read at the same time."""
_MAX_CONSECUTIVE_FAILURES = 4
"""Files in a row that the Hub may refuse or the network fail, before the rest is not asked for."""


@dataclass(frozen=True, slots=True)
class HeaderRead:
    """What the header of one variant said."""

    variant: RepoVariant
    file: ModelFile | None
    """None where it could not be read."""
    reason: str
    """Why not; empty where it was."""
    moved_bytes: int
    """Of content, over the network."""
    from_cache: bool
    """Whether all of it was kept from an earlier time."""


def read_headers(
    access: HubAccess,
    listing: RepoListing,
    variants: Sequence[RepoVariant],
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[HeaderRead, ...]:
    """The headers of several variants, in their order; one that cannot be read has a reason, and raises nothing.

    `on_progress` is told in this thread how many have been read, and of how many.
    """
    reader = _Reader(access, listing)
    reads: dict[Future[HeaderRead], RepoVariant] = {Future(): variant for variant in variants}
    waiting = deque(reads.items())
    for _ in range(min(MAX_PARALLEL, len(reads))):
        # Not joined at exit: whoever interrupts this must not wait for a server that does not answer.
        threading.Thread(target=reader.work, args=(waiting,), name="header", daemon=True).start()
    try:
        for n_read, _ in enumerate(as_completed(reads), start=1):
            if on_progress is not None:
                on_progress(n_read, len(reads))
        return tuple(read.result() for read in reads)
    finally:
        waiting.clear()
        reader.stop.set()


def read_variant_header(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> ModelFile:
    """The header of one variant, all of its shards.

    Raises BadFile for a missing shard, a header that is broken or claims more than its file holds, and files that do
    not belong together; NetworkError where it is not kept and the Hub cannot be asked.
    """
    return _Reader(access, listing).read(variant, _Tally())


@dataclass(slots=True)
class _Tally:
    """What reading one variant took."""

    moved_bytes: int = 0
    n_fetched: int = 0


class _Reader:
    """Reads variants of one repo, from several threads."""

    def __init__(self, access: HubAccess, listing: RepoListing) -> None:
        self.stop = Stop()
        self._access = access
        self._listing = listing
        self._n_failures = 0

    def work(self, waiting: deque[tuple[Future[HeaderRead], RepoVariant]]) -> None:
        """Read variants until none waits."""
        while True:
            try:
                read, variant = waiting.popleft()
            except IndexError:
                return
            try:
                read.set_result(self.try_read(variant))
            except BaseException as error:
                read.set_exception(error)

    def try_read(self, variant: RepoVariant) -> HeaderRead:
        """What the header says, or the reason why it cannot be read."""
        tally, file, reason = _Tally(), None, ""
        try:
            file = self.read(variant, tally)
        except GgbenchError as error:
            reason = error.message
        return HeaderRead(variant, file, reason, tally.moved_bytes, file is not None and tally.n_fetched == 0)

    def read(self, variant: RepoVariant, tally: _Tally) -> ModelFile:
        """Raises as `read_variant_header` does."""
        require_all_shards(self._listing.repo, variant)
        headers = [self._read_file(file, tally) for file in variant.files]
        claimed = shard_count(headers[0], variant.files[0].name)
        if claimed > 1 and claimed != len(headers):
            raise BadFile(
                f"{variant.name} says that it is one of {claimed} shards and is not named so", "take another quant"
            )
        label = variant.quant or variant.name.rsplit("/", 1)[-1]
        return assemble(headers, f"{self._listing.repo} {label}")

    def _read_file(self, file: RepoFile, tally: _Tally) -> Header:
        path = self._access.headers_dir / f"{file.etag}.gguf-header"
        raw = disk_cache.get(path)
        if raw is not None:
            try:
                return read_header(io.BytesIO(raw), file.n_bytes, file.path)
            except BadFile:
                # What was broken when it came is kept too, so that offline says the same; online it gets another try.
                if self._access.offline:
                    raise
        return self._fetch(file, path, tally)

    def _fetch(self, file: RepoFile, path: Path, tally: _Tally) -> Header:
        if self._n_failures >= _MAX_CONSECUTIVE_FAILURES:
            raise NetworkError(f"{plain(file.path)} was not asked for: others could not be had", "try again later")
        source = RangeSource(self._access, self._listing.repo, self._listing.commit, file, self.stop)
        tally.n_fetched += 1
        try:
            header = read_header(source, file.n_bytes, file.path)
        except (NetworkError, UsageError):
            self._n_failures += 1
            raise
        except NotReadable:
            raise
        except BadFile:
            disk_cache.put(path, source.held)
            raise
        finally:
            tally.moved_bytes += source.moved_bytes
        self._n_failures = 0
        disk_cache.put(path, header.raw)
        return header
