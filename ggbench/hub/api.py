"""Requests to the Hub through huggingface_hub's session, with timeouts, bounded retries and cancellation.

The session provides the user's token, certificates and proxies; its client drops the token when a redirect leaves the
Hub. huggingface_hub's own listing has no timeout for a silent server and can retry a busy one for minutes, so timeouts
and delays are implemented here.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from ggbench import __version__
from ggbench.errors import BadFile, NetworkError
from ggbench.files import read_bounded
from ggbench.hub.access import HubAccess, error_for_response, hub_errors, retry_after_s
from ggbench.hub.repo_records import RepoFile
from ggbench.text import shorten
from ggbench.units import format_bytes

if TYPE_CHECKING:
    import httpx2

BACKOFF_S = (0.5, 1.0, 2.0)
MAX_PAUSE_S = 10.0
READ_TIMEOUT_S = 10.0
"""Pauses between tries and timeouts of requests to the API and for headers."""

_MAX_RESPONSE_BYTES = 64 << 20
_UNEXPECTED_HINT = (
    "check that HF_ENDPOINT is the URL of a Hub, and that this network does not require a login page"
)
_Answer = TypeVar("_Answer")
_Document = TypeVar("_Document")
Params = Iterable[tuple[str, str]]


class Patience(NamedTuple):
    """How long a request is tried again."""

    backoff_s: Sequence[float]
    """Delays before each retry; their number is the number of retries."""
    max_pause_s: float
    """Give up when a server requests a longer delay."""
    read_timeout_s: float
    """Retry after this long without data."""
    reconnects: bool = False
    """Whether it is tried again also if no connection can be made."""


class WrongBody(NetworkError):
    """The body of a response is not what was asked for; that of another try may be."""


def send_request(
    url: str,
    read: Callable[[httpx2.Response], _Answer],
    *,
    repo: str,
    doing: str,
    params: Params = (),
    headers: Callable[[], dict[str, str]] = dict,
    stop: Stop | None = None,
    patience: Patience | None = None,
) -> _Answer:
    """Return `read(response)` of a GET request; a retry calls `headers` and `read` again. Raises like `hub_errors`."""
    stop, patience = stop or Stop(), patience or Patience(BACKOFF_S, MAX_PAUSE_S, READ_TIMEOUT_S)
    with hub_errors(doing):
        import httpx2

        broken: tuple[type[Exception], ...] = (WrongBody, NotReadable, httpx2.RemoteProtocolError)
        if patience.reconnects:
            broken += (httpx2.TimeoutException, httpx2.NetworkError)
        else:
            broken += (httpx2.ReadTimeout, httpx2.ReadError, httpx2.WriteError)
        for pause_s in (*patience.backoff_s, None):
            opened = open_response(url, patience.read_timeout_s, params, headers())
            try:
                with opened as response:
                    wait_s = (
                        None if pause_s is None else _retry_pause_s(response, pause_s, patience.max_pause_s)
                    )
                    if wait_s is None:
                        if response.is_error:
                            raise error_for_response(response, repo, doing)
                        return read(response)
                    pause_s = wait_s
            except broken:
                stop.check()
                if pause_s is None:
                    raise
            stop.wait(pause_s)
    raise AssertionError("the last try returns or raises")


def fetch_json(url: str, kind: type[_Document], *, repo: str, doing: str, params: Params) -> _Document:
    """Fetch one JSON document of the API.

    Raises like `send_request`, and NetworkError if the response does not match `kind`.
    """

    def read(response: httpx2.Response) -> bytes:
        body = read_bounded(response.iter_bytes(), _MAX_RESPONSE_BYTES)
        if body is None:
            what = f"the Hub's response exceeds {format_bytes(_MAX_RESPONSE_BYTES)} while {doing}"
            raise NetworkError(what, _UNEXPECTED_HINT)
        return body

    body = send_request(url, read, repo=repo, doing=doing, params=params)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NetworkError(f"the Hub's response cannot be parsed while {doing}", _UNEXPECTED_HINT) from None


def api_url(access: HubAccess, kind_or_repo: str, *parts: str) -> str:
    return "/".join((access.endpoint, "api", quote(kind_or_repo), *(quote(part, safe="") for part in parts)))


def file_url(access: HubAccess, repo: str, path: str, commit: str) -> str:
    return "/".join((access.endpoint, repo, "resolve", quote(commit, safe=""), quote(path)))


def _retry_pause_s(response: httpx2.Response, pause_s: float, max_pause_s: float) -> float | None:
    """Return the delay before the next retry; None if this response is final."""
    if response.status_code not in RETRY_STATUSES:
        return None
    retry_s = retry_after_s(response)
    if retry_s is None:
        return pause_s
    return max(retry_s, pause_s) if retry_s <= max_pause_s else None


RETRY_STATUSES = (408, 429, 500, 502, 503, 504)
"""Statuses for which a retry may succeed."""
CONNECT_TIMEOUT_S = 10.0
_MAX_REDIRECTS, _MAX_REDIRECT_BYTES = 10, 64 << 10
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


class Stop:
    """Cancels requests that run in other threads, when data arrives or their timeout ends."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set

    def check(self) -> None:
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep; raise Stopped as soon as this is set."""
        if self._event.wait(seconds):
            raise Stopped


def start_daemons(
    jobs: Iterable[_Job], work: Callable[[_Job], _Result], n_threads: int, name: str
) -> list[Future[_Result]]:
    """Do `work` for each job, in order, in daemon threads, so that waiting for the network never delays Ctrl-C."""
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
    """The file cannot be read by range: its length differs from the listing's, or its header is too large."""


@contextmanager
def open_response(
    url: str, read_timeout_s: float, params: Params, headers: Mapping[str, str]
) -> Iterator[httpx2.Response]:
    """Open the response to a GET request, whatever its status. Raises like httpx2.

    Redirects are followed here, as httpx2 would read the body of each, however long.
    """
    import httpx2

    try:
        from huggingface_hub import constants, get_session, get_token

        session = get_session()
    except (ImportError, OSError, ValueError):  # a proxy by SOCKS, certificates, a timeout
        raise httpx2.InvalidURL("a variable of the environment") from None
    # Not `build_hf_headers`: it asks the Hub for a list of agents first, and reads whatever that answers.
    own = {"User-Agent": f"ggbench/{__version__}"}
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    if token is not None:
        own["Authorization"] = f"Bearer {token}"
    request = session.build_request(
        "GET",
        url,
        params=list(params) or None,
        headers={**own, **headers},
        timeout=httpx2.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S),
    )
    for _ in range(_MAX_REDIRECTS):
        try:
            response = session.send(request, stream=True, follow_redirects=False)
        except RuntimeError:
            # huggingface_hub closes the session shared by all threads when one of them cannot connect.
            raise httpx2.ReadError("the session was closed") from None
        with closing(response):
            if not response.has_redirect_location:
                yield response
                return
            read_bounded(response.iter_raw(), _MAX_REDIRECT_BYTES)  # so that its connection serves again
        if response.next_request is None:
            break
        request = response.next_request
    raise httpx2.TooManyRedirects("no redirect led to a file")


def range_headers(begin: int, end: int) -> dict[str, str]:
    """Return the request headers for the bytes from `begin` up to but excluding `end`, uncompressed."""
    return {"Accept-Encoding": "identity", "Range": f"bytes={begin}-{end - 1}"}


def check_range(response: httpx2.Response, begin: int, file: RepoFile) -> None:
    """Raise WrongBody unless the body is the file's bytes from `begin` on, and NotReadable for another length."""
    stated = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "bytes 0-0/*"))
    is_packed = response.headers.get("Content-Encoding", "identity") != "identity"
    if is_packed or stated is None or int(stated[1]) != begin:
        raise WrongBody("the server returned other bytes than requested", "try again, or without the proxy")
    length = stated[3] if response.status_code == 206 else response.headers.get("Content-Length", "*")
    if length not in ("*", str(file.n_bytes)):
        raise NotReadable(
            f"the server reports {shorten(length, 20)} bytes, the repo listing {file.n_bytes}",
            "try again; a proxy or HF_ENDPOINT mirror may alter the file",
        )
