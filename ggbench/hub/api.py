"""Requests to the Hub through huggingface_hub's session, with timeouts and bounded retries.

huggingface_hub's own listing has no timeout for a silent server and can retry a busy one for minutes, so timeouts and
delays are implemented here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec

from ggbench.errors import NetworkError
from ggbench.hub.access import HubAccess, error_for_response, hub_errors, retry_after_s
from ggbench.hub.session import RETRY_STATUSES, Stop, open_response
from ggbench.units import format_bytes

if TYPE_CHECKING:
    import httpx2

BACKOFF_S = (0.5, 1.0, 2.0)
"""Delays before each retry; their number is the number of retries."""
MAX_PAUSE_S = 10.0
"""Give up when a server requests a longer delay."""
READ_TIMEOUT_S = 10.0
"""Retry a request after this long without data."""

_MAX_RESPONSE_BYTES = 64 << 20
_UNEXPECTED_HINT = "check that HF_ENDPOINT is the URL of a Hub, and that this network does not require a login page"
_Answer = TypeVar("_Answer")
_Document = TypeVar("_Document")
Params = Iterable[tuple[str, str]]


def send_request(
    url: str,
    read: Callable[[httpx2.Response], _Answer],
    *,
    repo: str,
    doing: str,
    params: Params = (),
    headers: Callable[[], dict[str, str]] = dict,
    stop: Stop | None = None,
) -> _Answer:
    """Return `read(response)` of a GET request; a retry calls `headers` and `read` again. Raises as `hub_errors`."""
    stop = stop or Stop()
    with hub_errors(repo, doing=doing):
        import httpx2

        broken = (httpx2.ReadTimeout, httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
        for pause_s in (*BACKOFF_S, None):
            opened = open_response(url, stop, read_timeout_s=READ_TIMEOUT_S, params=params, headers=headers())
            try:
                with opened as response:
                    wait_s = None if pause_s is None else _retry_pause_s(response, pause_s)
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


def fetch_json(
    url: str, kind: type[_Document], *, repo: str, doing: str, params: Params = ()
) -> tuple[_Document, Params | None]:
    """Fetch one JSON document of the API; return it with the query of the next page, None on the last one.

    Raises as `send_request` does, and NetworkError where the response does not match `kind`.
    """
    import httpx2

    def read(response: httpx2.Response) -> tuple[bytearray, Params | None]:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MAX_RESPONSE_BYTES:
                raise NetworkError(
                    f"the Hub's response exceeds {format_bytes(_MAX_RESPONSE_BYTES)} while {doing}", _UNEXPECTED_HINT
                )
        # Only the query of the next page is used: its URL may name another host, which must not receive the token.
        link = response.links.get("next", {}).get("url")
        return body, None if link is None else tuple(httpx2.URL(link).params.multi_items())

    body, next_page = send_request(url, read, repo=repo, doing=doing, params=params)
    try:
        return msgspec.json.decode(body, type=kind), next_page
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NetworkError(f"the Hub's response cannot be parsed while {doing}", _UNEXPECTED_HINT) from None


def api_url(access: HubAccess, kind_or_repo: str, *parts: str) -> str:
    """Return the URL of an endpoint of all `models`, or of a repo; the parts are percent-encoded."""
    return "/".join((access.endpoint, "api", quote(kind_or_repo), *(quote(part, safe="") for part in parts)))


def file_url(access: HubAccess, repo: str, path: str, commit: str) -> str:
    """Return the URL of a file's content, which redirects to the storage."""
    return "/".join((access.endpoint, repo, "resolve", quote(commit, safe=""), quote(path)))


def _retry_pause_s(response: httpx2.Response, pause_s: float) -> float | None:
    """Return the delay before the next retry; None where this response is final."""
    if response.status_code not in RETRY_STATUSES:
        return None
    retry_s = retry_after_s(response)
    if retry_s is None:
        return pause_s
    return retry_s if retry_s <= MAX_PAUSE_S else None
