"""Headers of published GGUF files, a few megabytes each, fetched by range and cached.

A header is cached under the content hash of its file, so other repos and commits with the same file share it and no
entry ever becomes stale.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile, GgbenchError, NetworkError, UsageError
from ggbench.gguf_file.header import assemble, shard_count
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import Header, read_header
from ggbench.hub import disk_cache
from ggbench.hub.access import HubAccess
from ggbench.hub.ranges import RangeSource
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.hub.session import NotReadable, Stop, start_daemons
from ggbench.text import plain

MAX_PARALLEL = 4
"""Variants read in parallel."""
_MAX_CONSECUTIVE_FAILURES = 4
"""Consecutive files that may fail before the remaining ones are skipped."""


@dataclass(frozen=True, slots=True)
class HeaderRead:
    """Result of reading one variant's header."""

    variant: RepoVariant
    file: ModelFile | None
    """None where the header could not be read."""
    reason: str
    """Why the header could not be read; empty on success."""
    moved_bytes: int
    """Bytes of file content received over the network."""


def read_headers(
    access: HubAccess,
    listing: RepoListing,
    variants: Sequence[RepoVariant],
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[HeaderRead, ...]:
    """Read several headers, in order; a failure is a reason. `on_progress` receives the number read and the total."""
    reader = _Reader(access, listing)
    reads = start_daemons(variants, reader.try_read, MAX_PARALLEL, "header")
    try:
        for n_read, _ in enumerate(as_completed(reads), start=1):
            if on_progress is not None:
                on_progress(n_read, len(reads))
        return tuple(read.result() for read in reads)
    finally:
        for read in reads:
            read.cancel()
        reader.stop.set()


def read_variant_header(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> ModelFile:
    """Read the header of one variant over all its shards.

    Raises BadFile for a missing shard, a header that is broken or claims more than its file holds, and shards that do
    not belong together; NetworkError where it is not cached and the Hub cannot be reached.
    """
    return _Reader(access, listing).read(variant, [])


class _Reader:
    """Reads variants of one repo from several threads."""

    def __init__(self, access: HubAccess, listing: RepoListing) -> None:
        self.stop = Stop()
        self._access = access
        self._listing = listing
        self._n_failures = 0

    def try_read(self, variant: RepoVariant) -> HeaderRead:
        """Read the header, or return the reason why it cannot be read."""
        fetched: list[RangeSource] = []
        file, reason = None, ""
        try:
            file = self.read(variant, fetched)
        except GgbenchError as error:
            reason = error.message
        return HeaderRead(variant, file, reason, sum(source.moved_bytes for source in fetched))

    def read(self, variant: RepoVariant, fetched: list[RangeSource]) -> ModelFile:
        """Read the header and list what was fetched for it. Raises as `read_variant_header` does."""
        variant.require_all_shards(self._listing.repo)
        headers = [self._read_file(file, fetched) for file in variant.files]
        claimed = shard_count(headers[0], variant.files[0].name)
        if claimed > 1 and claimed != len(headers):
            raise BadFile(
                f"{variant.name} claims to be one of {claimed} shards, but its name does not match",
                "take another quant",
            )
        label = variant.quant or variant.name.rsplit("/", 1)[-1]
        return assemble(headers, f"{self._listing.repo} {label}")

    def _read_file(self, file: RepoFile, fetched: list[RangeSource]) -> Header:
        path = self._access.headers_dir / f"{file.etag}.gguf-header"
        raw = disk_cache.get(path)
        if raw is not None:
            try:
                return read_header(io.BytesIO(raw), file.n_bytes, file.path)
            except BadFile:
                # Broken headers are cached too, so that the error is the same offline; online they are fetched again.
                if self._access.offline:
                    raise
        return self._fetch(file, path, fetched)

    def _fetch(self, file: RepoFile, path: Path, fetched: list[RangeSource]) -> Header:
        if self._n_failures >= _MAX_CONSECUTIVE_FAILURES:
            raise NetworkError(f"{plain(file.path)} was skipped after other files failed", "try again later")
        source = RangeSource(self._access, self._listing.repo, self._listing.commit, file, self.stop)
        fetched.append(source)
        try:
            header = read_header(source, file.n_bytes, file.path)
        except (NetworkError, UsageError):
            self._n_failures += 1
            raise
        except BadFile as error:
            if not isinstance(error, NotReadable):
                disk_cache.put(path, source.held)
            raise
        self._n_failures = 0
        disk_cache.put(path, header.raw)
        return header
