"""One request through huggingface_hub's session, and what ends it from another thread.

Its session brings the person's token, certificates and proxies; its client leaves the token behind when a redirect
leaves the Hub.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

RETRY_STATUSES = (408, 429, 500, 502, 503, 504)
"""Statuses after which another try may help."""
CONNECT_TIMEOUT_S = 10.0
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


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
    def attached_to(self, response: httpx2.Response) -> Iterator[None]:
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
    """The transfer was told to stop; what has arrived stays."""


@contextmanager
def open_response(
    url: str,
    stop: Stop,
    *,
    read_timeout_s: float,
    params: Iterable[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Iterator[httpx2.Response]:
    """The answer to a GET, whatever its status, before its body is read. Raises what httpx2 does, and Stopped."""
    import httpx2
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers

    request = get_session().stream(
        "GET",
        url,
        params=list(params) or None,
        headers={**build_hf_headers(), **(headers or {})},
        timeout=httpx2.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S),
        follow_redirects=True,
    )
    with ExitStack() as stack:
        try:
            response = stack.enter_context(request)
        except RuntimeError:
            # huggingface_hub closes the session that all threads share when one of them cannot connect.
            raise httpx2.ReadError("the session was closed") from None
        stack.enter_context(stop.attached_to(response))
        yield response


def range_headers(begin: int, end: int) -> dict[str, str]:
    """What asks for the bytes of a file from `begin` up to and without `end`, as they are."""
    return {"Accept-Encoding": "identity", "Range": f"bytes={begin}-{end - 1}"}


def response_range(response: httpx2.Response) -> tuple[int, str] | None:
    """Where in the file the answer begins, and the file's length as the server states it, `*` where it does not.

    A server that ignores ranges answers from the file's beginning. None for bytes that are not the file's own: packed
    unasked, or of a range that is not stated.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        return None
    if response.status_code != 206:
        return 0, response.headers.get("Content-Length", "*")
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return None if match is None else (int(match[1]), match[3])
