"""GET requests through huggingface_hub's HTTP session, and their cancellation from another thread.

The session provides the user's token, certificates and proxies; its client drops the token when a redirect leaves the
Hub.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from ggbench.errors import BadFile, NetworkError
from ggbench.hub.repo_records import RepoFile
from ggbench.text import shorten

if TYPE_CHECKING:
    import httpx2

RETRY_STATUSES = (408, 429, 500, 502, 503, 504)
"""Statuses for which a retry may succeed."""
CONNECT_TIMEOUT_S = 10.0
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


class Stop:
    """Cancels requests that run in other threads, including those blocked on the network."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    def set(self) -> None:
        """Make every request attached to this end soon with Stopped."""
        with self._lock:
            self._event.set()
            for each in self._sockets:
                # Closing the socket does not wake a thread blocked in recv; shutting it down does.
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def check(self) -> None:
        """Raise Stopped if this is set."""
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep; raise Stopped as soon as this is set."""
        if self._event.wait(seconds):
            raise Stopped

    @contextmanager
    def attached_to(self, response: httpx2.Response) -> Iterator[None]:
        """Within this context, setting this ends the response."""
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


def start_daemons(
    jobs: Iterable[_Job], work: Callable[[_Job], _Result], n_threads: int, name: str
) -> list[Future[_Result]]:
    """Do `work` for each job, in order, in daemon threads: one that waits for the network must not delay Ctrl-C."""
    waiting = deque((Future[_Result](), job) for job in jobs)
    futures = [future for future, _ in waiting]

    def run() -> None:
        with suppress(IndexError):
            while True:
                future, job = waiting.popleft()
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(work(job))
                    except BaseException as error:
                        future.set_exception(error)

    for _ in range(min(n_threads, len(futures))):
        threading.Thread(target=run, name=name, daemon=True).start()
    return futures


class Stopped(Exception):
    """The transfer was cancelled; received data is kept."""


class NotReadable(BadFile):
    """The file cannot be read by range: it has another length than was listed, or its header is too large."""


@contextmanager
def open_response(
    url: str,
    stop: Stop,
    *,
    read_timeout_s: float,
    params: Iterable[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Iterator[httpx2.Response]:
    """Open the response to a GET request, whatever its status. Raises Stopped, and what httpx2 does."""
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
            # huggingface_hub closes the session shared by all threads when one of them cannot connect.
            raise httpx2.ReadError("the session was closed") from None
        stack.enter_context(stop.attached_to(response))
        yield response


def range_headers(begin: int, end: int) -> dict[str, str]:
    """Return the request headers for the bytes from `begin` up to but excluding `end`, uncompressed."""
    return {"Accept-Encoding": "identity", "Range": f"bytes={begin}-{end - 1}"}


def bytes_to_skip(response: httpx2.Response, begin: int, file: RepoFile) -> int:
    """Return how many bytes of the response precede `begin`: a server that ignores ranges starts at the file's first.

    Raises NetworkError where the body is not the file's own bytes (another range, or compressed), and NotReadable.
    """
    is_range = response.status_code == 206
    stated_range = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "")) if is_range else None
    is_packed = response.headers.get("Content-Encoding", "identity") != "identity"
    if is_packed or (is_range and (stated_range is None or int(stated_range[1]) != begin)):
        raise NetworkError("the server returned other bytes than requested", "try again, or without the proxy")
    stated = stated_range[3] if stated_range else response.headers.get("Content-Length", "*")
    if stated not in ("*", str(file.n_bytes)):
        raise NotReadable(
            f"the server reports {shorten(stated, 20)} bytes, but {file.n_bytes} were listed",
            "check whether a proxy or HF_ENDPOINT changes it",
        )
    return 0 if is_range else begin
