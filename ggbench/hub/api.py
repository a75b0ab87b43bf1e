"""One question to the Hub, asked through huggingface_hub's session until it is answered or clearly will not be.

huggingface_hub's own listing waits for a silent server without end and, when asked to, minutes for a busy one, so
timeouts and pauses are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
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
"""Pauses before the second try and those after it; there are no more tries than that."""
MAX_PAUSE_S = 10.0
"""A server that asks for a longer one is not waited for."""
READ_TIMEOUT_S = 10.0
"""A connection that brings nothing for so long hangs, and the question is asked again."""

_MAX_RESPONSE_BYTES = 64 << 20
_UNEXPECTED_HINT = "see whether HF_ENDPOINT is a Hub's address, and whether this network asks you to log in first"
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
    """What `read` makes of the answer to a GET. After a cut both `headers` and `read` are called again.

    Raises as `hub.access.hub_errors` says, and session.Stopped once `stop` is set.
    """
    stop = stop or Stop()
    with hub_errors(repo, doing=doing):
        import httpx2

        broken = (httpx2.ReadTimeout, httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)

        def open_again() -> AbstractContextManager[httpx2.Response]:
            return open_response(url, stop, read_timeout_s=READ_TIMEOUT_S, params=params, headers=headers())

        for pause_s in BACKOFF_S:
            try:
                with open_again() as response:
                    retry_s = _retry_pause_s(response, pause_s)
                    if retry_s is None:
                        return _checked(read, response, repo, doing)
                    pause_s = retry_s
            except broken:
                stop.check()
            stop.wait(pause_s)
        with open_again() as response:
            return _checked(read, response, repo, doing)


def fetch_json(
    url: str, kind: type[_Document], *, repo: str, doing: str, params: Params = ()
) -> tuple[_Document, Params | None]:
    """The document at an address of the API, and the query of the page after it; None where this is the last.

    Raises as `ask` does; NetworkError where the answer is not such a document.
    """
    import httpx2

    def read(response: httpx2.Response) -> tuple[bytearray, Params | None]:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MAX_RESPONSE_BYTES:
                raise NetworkError(
                    f"the Hub's answer exceeds {format_bytes(_MAX_RESPONSE_BYTES)} while {doing}", _UNEXPECTED_HINT
                )
        # Of the next page only the query counts: its address may name another host, which must not get the token.
        link = response.links.get("next", {}).get("url")
        return body, None if link is None else tuple(httpx2.URL(link).params.multi_items())

    body, next_page = send_request(url, read, repo=repo, doing=doing, params=params)
    try:
        return msgspec.json.decode(body, type=kind), next_page
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NetworkError(f"the Hub's answer makes no sense while {doing}", _UNEXPECTED_HINT) from None


def api_url(access: HubAccess, *parts: str) -> str:
    """The address of a question about models; the parts are quoted."""
    return "/".join((access.endpoint, "api", "models", *(quote(part, safe="") for part in parts)))


def _retry_pause_s(response: httpx2.Response, pause_s: float) -> float | None:
    """How long to wait before another try; None where this answer is the last."""
    if response.status_code not in RETRY_STATUSES:
        return None
    retry_s = retry_after_s(response)
    if retry_s is None:
        return pause_s
    return retry_s if retry_s <= MAX_PAUSE_S else None


def _checked(read: Callable[[httpx2.Response], _Answer], response: httpx2.Response, repo: str, doing: str) -> _Answer:
    if response.status_code >= 400:
        raise error_for_response(response, repo, doing)
    return read(response)
