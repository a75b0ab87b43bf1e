"""Headers of published GGUF files, a few megabytes each, fetched by range and cached.

A header is cached under the content hash of its file, so other repos and commits with the same file share it and no
entry becomes stale. Requests go to the file's resolve URL, which redirects to the storage, also of files stored with
Xet.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import TYPE_CHECKING

from ggbench import __version__
from ggbench.errors import BadFile, GgbenchError, NetworkError
from ggbench.files import get_cached, put_cached
from ggbench.gguf_file.header import assemble, shard_count
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import Header, read_header
from ggbench.hub.access import HubAccess
from ggbench.hub.api import (
    NotReadable,
    Stop,
    check_range,
    file_url,
    range_headers,
    send_request,
    start_daemons,
)
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.text import sanitize
from ggbench.units import format_bytes

if TYPE_CHECKING:
    import httpx2

MAX_PARALLEL = 4
"""Variants read in parallel."""


def read_headers(
    access: HubAccess,
    listing: RepoListing,
    variants: Sequence[RepoVariant],
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[ModelFile | GgbenchError, ...]:
    """Return several headers, in order, or why one cannot be read; `on_progress` receives the number and the total."""
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

    Raises BadFile for a missing shard, a header that is broken or claims more than its file contains, and shards that
    do not belong together; NetworkError if it is not cached and the Hub cannot be reached.
    """
    return _Reader(access, listing).read(variant)


class _Reader:
    """Reads variants of one repo from several threads."""

    def __init__(self, access: HubAccess, listing: RepoListing) -> None:
        self.stop = Stop()
        self._wasted_bytes = 0
        """Bytes fetched of headers that were broken."""
        self._access = access
        self._listing = listing

    def try_read(self, variant: RepoVariant) -> ModelFile | GgbenchError:
        try:
            return self.read(variant)
        except GgbenchError as error:
            return error

    def read(self, variant: RepoVariant) -> ModelFile:
        """Read the header. Raises like `read_variant_header`."""
        variant.require_all_shards(self._listing.repo)
        headers = [self._read_file(file) for file in variant.files]
        claimed = shard_count(headers[0], variant.files[0].name)
        if claimed > 1 and claimed != len(headers):
            raise BadFile(
                f"{variant.name} claims to be one of {claimed} shards, but its name does not match",
                "use another quant",
            )
        label = variant.quant or variant.name.rsplit("/", 1)[-1]
        return assemble(headers, f"{self._listing.repo} {label}")

    def _read_file(self, file: RepoFile) -> Header:
        folder, name = self._access.headers_dir, file.etag
        path, broken = folder / f"{name}.gguf-header", folder / f"{name}.{__version__}.broken"
        if (raw := get_cached(path)) is not None:
            return read_header(io.BytesIO(raw), file.n_bytes, file.path)
        if (known := get_cached(broken)) is not None:
            raise BadFile(known.decode(), _BROKEN_HINT)
        if self._wasted_bytes > MAX_HEADER_BYTES:
            raise BadFile(f"{sanitize(file.path)} was left out: headers of its repo are broken", _BROKEN_HINT)
        source = RangeSource(self._access, self._listing.repo, self._listing.commit, file, self.stop)
        try:
            header = read_header(source, file.n_bytes, file.path)
        except BadFile as error:
            self._wasted_bytes += len(source.held)
            if len(source.held) >= FIRST_BYTES:  # not to be fetched again
                put_cached(broken, sanitize(error.message).encode())
            raise
        put_cached(path, header.raw)
        return header


FIRST_BYTES = 1 << 20
"""Enough for the header of a model with a small vocabulary, and of every shard except the first."""
MAX_HEADER_BYTES = 32 << 20
"""Twice the largest known header: 262,144 tokens with their merges take about 15 MiB. Also of all broken ones of a repo
together, as four are read at once."""
_BROKEN_HINT = "use another quant, or download the file and give its path"


class RangeSource:
    """The first bytes of a file at one commit of a repo, fetched on demand."""

    def __init__(
        self,
        access: HubAccess,
        repo: str,
        commit: str,
        file: RepoFile,
        stop: Stop | None = None,
    ) -> None:
        access.require_network(f"reading the header of {sanitize(file.path)}")
        self._repo = repo
        self._file = file
        self._stop = stop or Stop()
        self._url = file_url(access, repo, file.path, commit)
        self._held = bytearray()
        self._position = 0

    @property
    def held(self) -> bytes:
        return bytes(self._held)

    def seek(self, offset: int, /) -> int:
        self._position = offset
        return offset

    def read(self, n_bytes: int, /) -> bytes:
        """Return up to `n_bytes`, nothing only at the end. Raises NotReadable, and like `send_request`."""
        end = min(self._position + n_bytes, self._file.n_bytes)
        if end > MAX_HEADER_BYTES:
            # The parser reads slightly ahead: only its last chunk may exceed the limit.
            if self._position >= MAX_HEADER_BYTES or n_bytes > FIRST_BYTES:
                raise NotReadable(
                    f"the header of {sanitize(self._file.path)} is larger than {format_bytes(MAX_HEADER_BYTES)}",
                    "download the file and give its path",
                )
            end = MAX_HEADER_BYTES
        # return cached data first, even if it is less than requested: the rest may never be needed
        if self._position >= len(self._held) < end:
            self._fetch(end)
        data = bytes(self._held[self._position : end])
        self._position += len(data)
        return data

    def _fetch(self, end: int) -> None:
        """Fetch up to `end` and some more, so that a long header takes few requests."""
        held = len(self._held)
        wanted = min(max(end, held + max(held // 8, FIRST_BYTES)), MAX_HEADER_BYTES, self._file.n_bytes)
        doing = f"reading the header of {sanitize(self._file.path)}"
        while len(self._held) < wanted:
            before = len(self._held)
            send_request(
                self._url,
                lambda response: self._take(response, wanted),
                repo=self._repo,
                doing=doing,
                headers=lambda: range_headers(len(self._held), wanted),
                stop=self._stop,
            )
            if len(self._held) == before:
                raise NetworkError(f"the Hub sent no data while {doing}", "try again later")

    def _take(self, response: httpx2.Response, wanted: int) -> None:
        check_range(response, len(self._held), self._file)
        for chunk in response.iter_raw():
            self._stop.check()
            self._held += chunk[: wanted - len(self._held)]
            if len(self._held) >= wanted:
                break
