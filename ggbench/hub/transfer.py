"""Fill a part from the Hub over HTTP ranges, through cuts, hangs and busy servers, for as long as bytes arrive.

Ranges go to the file's resolve address each time, which redirects to wherever the content lies: signed addresses
expire, and a file kept by Xet is served there as well. huggingface_hub's session brings the person's token and proxies;
its client leaves the token behind when a redirect leaves the Hub.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggbench.errors import NetworkError
from ggbench.hub.access import HubAccess, asked_pause_s, hub_errors
from ggbench.hub.part_file import KEPT, PartFile
from ggbench.plain import plain, shorten
from ggbench.units import format_bytes, format_duration

if TYPE_CHECKING:
    import httpx2

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Waits before another try: the first after one that brought something. As many in a row that bring nothing end it."""
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 30.0
"""A connection that brings nothing for so long hangs, and is made anew."""
LONGEST_WAIT_S = 120.0
"""A server that asks for a longer pause is not waited for."""
RANGE_BYTES = 8 << 30
"""The most that one request asks for: the Hub's network serves no file of 50 GB at once."""

_BUSY = (408, 429, 500, 502, 503, 504)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Stop:
    """Ends transfers that run in other threads, also those that wait for the network."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    def set(self) -> None:
        """Every transfer with this stop ends soon, by Stopped."""
        with self._lock:
            self._event.set()
            for each in self._sockets:
                # A thread that waits in recv does not notice a close; it wakes from a shutdown.
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises Stopped once this was set."""
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Raises Stopped as soon as this is set."""
        if self._event.wait(seconds):
            raise Stopped

    @contextmanager
    def covers(self, response: httpx2.Response) -> Iterator[None]:
        """While this lasts, the response ends when this is set."""
        stream = response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        with self._lock:
            if connection is not None:
                self._sockets.add(connection)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._sockets.discard(connection)


class Stopped(Exception):
    """The transfer was told to stop; the part stays."""


class _WrongContent(Exception):
    """The answer is of another file than the one that was listed."""


def fill_from_hub(access: HubAccess, repo: str, commit: str, part: PartFile, stop: Stop) -> None:
    """Bring what the part lacks, from where it ends.

    Raises Stopped, NetworkError when several tries in a row bring nothing, and as `hub.access.hub_errors` says where
    the Hub refuses.
    """
    from huggingface_hub import hf_hub_url

    n_fruitless = 0
    with hub_errors(repo, doing=f"downloading {plain(part.file.path)}"):
        url = hf_hub_url(repo, part.file.path, revision=commit, endpoint=access.endpoint)
        while part.missing_bytes:
            before = part.n_bytes
            ended = _try_once(url, part, stop)
            stop.check()
            if not part.missing_bytes:
                return
            n_fruitless = 0 if part.n_bytes > before else n_fruitless + 1
            if n_fruitless == len(BACKOFF_S) or (ended.pause_s or 0) > LONGEST_WAIT_S:
                raise _gave_up(part, ended, n_fruitless)
            stop.wait(max(BACKOFF_S[n_fruitless], ended.pause_s or 0))


@dataclass(frozen=True, slots=True)
class _Ended:
    """Why a request ended before the file did."""

    reason: str
    pause_s: float | None = None
    """For how long the server asked to be left alone."""


def _try_once(url: str, part: PartFile, stop: Stop) -> _Ended:
    import httpx2

    try:
        return _fill_once(url, part, stop)
    except httpx2.ConnectError:
        return _Ended("no connection can be made")
    except httpx2.TimeoutException:
        return _Ended("no answer came in time")
    except (httpx2.NetworkError, httpx2.RemoteProtocolError):
        return _Ended("the connection was cut")
    except _WrongContent as error:
        # What is in the part is not to blame: it stays. Between here and the Hub may be a page that asks to log in.
        return _Ended(str(error))
    except RuntimeError:
        # huggingface_hub closes the session that all threads share when one of them cannot connect.
        return _Ended("the connection was closed")


def _fill_once(url: str, part: PartFile, stop: Stop) -> _Ended:
    import httpx2
    from huggingface_hub.utils import (
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    begin = part.n_bytes
    end = min(part.file.n_bytes, begin + RANGE_BYTES)
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={begin}-{end - 1}"}
    timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    request = get_session().stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True)
    with request as response, stop.covers(response):
        if response.status_code in _BUSY:
            return _Ended(f"the server answered {response.status_code}", asked_pause_s(response))
        if response.is_error:
            response.read()
            hf_raise_for_status(response)
        n_skipped = _bytes_to_skip(response, part, begin)
        for chunk in response.iter_raw():
            stop.check()
            if n_skipped:
                chunk, n_skipped = chunk[n_skipped:], max(0, n_skipped - len(chunk))
            part.append(chunk)
            if not part.missing_bytes:
                break
    return _Ended("the connection ended early")


def _bytes_to_skip(response: httpx2.Response, part: PartFile, begin: int) -> int:
    """Bytes of the answer that the part holds already. Raises _WrongContent where the answer is of another file."""
    if response.status_code == 206:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or match[1] != str(begin):
            raise _WrongContent("the server answers with another range than it was asked for")
        stated, n_skipped = match[3], 0
    else:
        # A server that ignores ranges sends the file from its beginning.
        stated, n_skipped = response.headers.get("Content-Length", "*"), begin
    if stated not in ("*", str(part.file.n_bytes)):
        raise _WrongContent(f"the server has {shorten(stated, 20)} bytes, and {part.file.n_bytes} were listed")
    return n_skipped


def _gave_up(part: PartFile, ended: _Ended, n_fruitless: int) -> NetworkError:
    so_far = f"{format_bytes(part.n_bytes)} of {format_bytes(part.file.n_bytes)}"
    what = f"the download of {plain(part.file.name)} stopped at {so_far}: {ended.reason}"
    if ended.pause_s is not None and ended.pause_s > LONGEST_WAIT_S:
        return NetworkError(f"{what} and asks to wait {format_duration(ended.pause_s)}", f"come back then: {KEPT}")
    return NetworkError(f"{what}, {n_fruitless} times without a byte", KEPT)
