"""A published file as a source that a parser can seek and read, of which only the first bytes are ever fetched.

Each request goes to the file's resolve address, which redirects to wherever the content lies. A file kept by Xet is
served there too, so nothing here needs hf_xet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.errors import BadFile, NetworkError
from ggbench.hub.access import HubAccess
from ggbench.hub.api import send_request
from ggbench.hub.repo_records import RepoFile
from ggbench.hub.session import Stop, range_headers, response_range
from ggbench.plain import plain, shorten
from ggbench.units import format_bytes

if TYPE_CHECKING:
    import httpx2

FIRST_BYTES = 1 << 20
"""Holds the header of a model with a small vocabulary, and of every shard but the first."""
MAX_HEADER_BYTES = 64 << 20
"""Four times the largest header known: 262,144 tokens with their merges take about 15 MiB."""


class NotReadable(BadFile):
    """Ranges do not tell this file's header: another file came than was listed, or the header is beyond the cap."""


class RangeSource:
    """The first bytes of a file of a repo at one commit, fetched as they are asked for."""

    def __init__(self, access: HubAccess, repo: str, commit: str, file: RepoFile, stop: Stop | None = None) -> None:
        access.require_network(f"reading the header of {plain(file.path)}")
        from huggingface_hub import hf_hub_url

        self.moved_bytes = 0
        """Of the file's content, over the network."""
        self._repo = repo
        self._file = file
        self._stop = stop or Stop()
        self._url = hf_hub_url(repo, file.path, revision=commit, endpoint=access.endpoint)
        self._held = bytearray()
        self._position = 0
        self._ignores_ranges = False

    @property
    def held(self) -> bytes:
        """Everything that was fetched so far, from the file's start."""
        return bytes(self._held)

    def seek(self, offset: int, /) -> int:
        """Move to an offset from the start."""
        self._position = offset
        return offset

    def read(self, n_bytes: int, /) -> bytes:
        """Up to that many bytes, one at least; none at the end of the file.

        Raises NotReadable where the header is larger than the cap or the file is not the one that was listed, and
        NetworkError or UsageError as `hub.api.send_request` does.
        """
        end = min(self._position + n_bytes, self._file.n_bytes)
        if end > MAX_HEADER_BYTES:
            # A parser asks for more than it needs, but not for much more: only its last chunk may reach over the cap.
            if self._position >= MAX_HEADER_BYTES or n_bytes > FIRST_BYTES:
                raise self._too_large()
            end = MAX_HEADER_BYTES
        # What is held comes first, though it is less than asked for: the rest may never be needed.
        if self._position >= len(self._held) < end:
            self._fetch(end)
        data = bytes(self._held[self._position : end])
        self._position += len(data)
        return data

    def _fetch(self, end: int) -> None:
        """Hold the file's bytes up to `end` and some more, so that a long header takes few requests."""
        held = len(self._held)
        # A server that sends every answer from the start is asked rarely.
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
                raise NetworkError(f"the Hub sends nothing while {doing}", "try again later")

    def _take(self, response: httpx2.Response, wanted: int) -> None:
        n_skip = self._bytes_to_skip(response)
        for chunk in response.iter_raw():
            self._stop.check()
            self.moved_bytes += len(chunk)
            new = chunk[n_skip:]
            n_skip = max(0, n_skip - len(chunk))
            self._held += new[: wanted - len(self._held)]
            if len(self._held) >= wanted:
                break

    def _bytes_to_skip(self, response: httpx2.Response) -> int:
        """Bytes of the answer that are held already. Raises NotReadable where the answer is of another file."""
        self._ignores_ranges = response.status_code != 206
        answered = response_range(response)
        if answered is None or (not self._ignores_ranges and answered[0] != len(self._held)):
            raise NetworkError(
                f"the server does not answer with the bytes of {plain(self._file.path)} that it was asked for",
                "try again, or without the proxy",
            )
        begin, stated = answered
        if stated != "*" and stated != str(self._file.n_bytes):
            raise NotReadable(
                f"{plain(self._file.path)} has {shorten(stated, 20)} bytes and was listed with {self._file.n_bytes}",
                "see whether a proxy or HF_ENDPOINT changes it",
            )
        return len(self._held) - begin

    def _too_large(self) -> NotReadable:
        return NotReadable(
            f"the header of {plain(self._file.path)} is larger than {format_bytes(MAX_HEADER_BYTES)}",
            "download the file and name it by its path",
        )
