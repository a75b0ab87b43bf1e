"""A published file as a seekable source for the GGUF parser, of which only the first bytes are fetched.

Every request goes to the file's resolve URL, which redirects to the storage. Files stored with Xet are served there
too, so hf_xet is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.errors import NetworkError
from ggbench.hub.access import HubAccess
from ggbench.hub.api import file_url, send_request
from ggbench.hub.repo_records import RepoFile
from ggbench.hub.session import NotReadable, Stop, bytes_to_skip, range_headers
from ggbench.text import plain
from ggbench.units import format_bytes

if TYPE_CHECKING:
    import httpx2

FIRST_BYTES = 1 << 20
"""Holds the header of a model with a small vocabulary, and of every shard but the first."""
MAX_HEADER_BYTES = 64 << 20
"""Four times the largest known header: 262,144 tokens with their merges take about 15 MiB."""


class RangeSource:
    """The first bytes of a file at one commit of a repo, fetched on demand."""

    def __init__(self, access: HubAccess, repo: str, commit: str, file: RepoFile, stop: Stop | None = None) -> None:
        access.require_network(f"reading the header of {plain(file.path)}")
        self.moved_bytes = 0
        """Bytes of file content received over the network."""
        self._repo = repo
        self._file = file
        self._stop = stop or Stop()
        self._url = file_url(access, repo, file.path, commit)
        self._held = bytearray()
        self._position = 0
        self._ignores_ranges = False

    @property
    def held(self) -> bytes:
        """All bytes fetched so far, from the start of the file."""
        return bytes(self._held)

    def seek(self, offset: int, /) -> int:
        """Move to an offset from the start."""
        self._position = offset
        return offset

    def read(self, n_bytes: int, /) -> bytes:
        """Return up to `n_bytes`, nothing only at the end. Raises NotReadable, and as `send_request` does."""
        end = min(self._position + n_bytes, self._file.n_bytes)
        if end > MAX_HEADER_BYTES:
            # The parser reads slightly ahead: only its last chunk may exceed the limit.
            if self._position >= MAX_HEADER_BYTES or n_bytes > FIRST_BYTES:
                raise NotReadable(
                    f"the header of {plain(self._file.path)} is larger than {format_bytes(MAX_HEADER_BYTES)}",
                    "download the file and give its path",
                )
            end = MAX_HEADER_BYTES
        # Return what is held first, even if it is less than requested: the rest may never be needed.
        if self._position >= len(self._held) < end:
            self._fetch(end)
        data = bytes(self._held[self._position : end])
        self._position += len(data)
        return data

    def _fetch(self, end: int) -> None:
        """Fetch up to `end` and some more, so that a long header takes few requests."""
        held = len(self._held)
        # A server that ignores ranges resends everything, so fetch in larger steps.
        step = held if self._ignores_ranges else held // 8
        wanted = min(max(end, held + max(step, FIRST_BYTES)), MAX_HEADER_BYTES, self._file.n_bytes)
        doing = f"reading the header of {plain(self._file.path)}"
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
        self._ignores_ranges = response.status_code != 206
        n_skip = bytes_to_skip(response, len(self._held), self._file)
        for chunk in response.iter_raw():
            self._stop.check()
            self.moved_bytes += len(chunk)
            new = chunk[n_skip:]
            n_skip = max(0, n_skip - len(chunk))
            self._held += new[: wanted - len(self._held)]
            if len(self._held) >= wanted:
                break
