"""Fill a part from the Hub over HTTP ranges, through cuts, hangs and busy servers, for as long as bytes arrive.

Ranges go to the file's resolve address each time, which redirects to wherever the content lies: signed addresses
expire, and a file kept by Xet is served there as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggbench.errors import NetworkError
from ggbench.hub.access import HubAccess, hub_errors, retry_after_s
from ggbench.hub.part_file import RESUME_HINT, PartFile
from ggbench.hub.session import RETRY_STATUSES, Stop, open_response, range_headers, response_range
from ggbench.plain import plain, shorten
from ggbench.units import format_bytes, format_duration

if TYPE_CHECKING:
    import httpx2

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Waits before another try: the first after one that brought something. As many in a row that bring nothing end it."""
READ_TIMEOUT_S = 30.0
"""A connection that brings nothing for so long hangs, and is made anew."""
MAX_WAIT_S = 120.0
"""A server that asks for a longer pause is not waited for."""
RANGE_BYTES = 8 << 30
"""The most that one request asks for: the Hub's network serves no file of 50 GB at once."""


class _WrongContent(Exception):
    """The answer is of another file than the one that was listed."""


def download_part(access: HubAccess, repo: str, commit: str, part: PartFile, stop: Stop) -> None:
    """Bring what the part lacks, from where it ends.

    Raises Stopped, NetworkError when several tries in a row bring nothing, and as `hub.access.hub_errors` says where
    the Hub refuses.
    """
    from huggingface_hub import hf_hub_url

    n_empty_tries = 0
    with hub_errors(repo, doing=f"downloading {plain(part.file.path)}"):
        url = hf_hub_url(repo, part.file.path, revision=commit, endpoint=access.endpoint)
        while part.missing_bytes:
            before = part.n_bytes
            ended = _try_once(url, part, stop)
            stop.check()
            if not part.missing_bytes:
                return
            n_empty_tries = 0 if part.n_bytes > before else n_empty_tries + 1
            if n_empty_tries == len(BACKOFF_S) or (ended.pause_s or 0) > MAX_WAIT_S:
                raise _gave_up_error(part, ended, n_empty_tries)
            stop.wait(max(BACKOFF_S[n_empty_tries], ended.pause_s or 0))


@dataclass(frozen=True, slots=True)
class _Interruption:
    """Why a request ended before the file did."""

    reason: str
    pause_s: float | None = None
    """For how long the server asked to be left alone."""


def _try_once(url: str, part: PartFile, stop: Stop) -> _Interruption:
    import httpx2

    try:
        return _fill_once(url, part, stop)
    except httpx2.ConnectError:
        return _Interruption("no connection can be made")
    except httpx2.TimeoutException:
        return _Interruption("no answer came in time")
    except (httpx2.NetworkError, httpx2.RemoteProtocolError):
        return _Interruption("the connection was cut")
    except _WrongContent as error:
        # What is in the part is not to blame: it stays. Between here and the Hub may be a page that asks to log in.
        return _Interruption(str(error))


def _fill_once(url: str, part: PartFile, stop: Stop) -> _Interruption:
    from huggingface_hub.utils import hf_raise_for_status

    begin = part.n_bytes
    asked = range_headers(begin, min(part.file.n_bytes, begin + RANGE_BYTES))
    with open_response(url, stop, read_timeout_s=READ_TIMEOUT_S, headers=asked) as response:
        if response.status_code in RETRY_STATUSES:
            return _Interruption(f"the server answered {response.status_code}", retry_after_s(response))
        if response.is_error:
            response.read()
            hf_raise_for_status(response)
        n_skip = _bytes_to_skip(response, part, begin)
        for chunk in response.iter_raw():
            stop.check()
            if n_skip:
                chunk, n_skip = chunk[n_skip:], max(0, n_skip - len(chunk))
            part.append(chunk)
            if not part.missing_bytes:
                break
    return _Interruption("the connection ended early")


def _bytes_to_skip(response: httpx2.Response, part: PartFile, begin: int) -> int:
    """Bytes of the answer that the part holds already. Raises _WrongContent where the answer is of another file."""
    answered = response_range(response)
    if answered is None or (response.status_code == 206 and answered[0] != begin):
        raise _WrongContent("the server does not answer with the bytes that it was asked for")
    at, stated = answered
    if stated not in ("*", str(part.file.n_bytes)):
        raise _WrongContent(f"the server has {shorten(stated, 20)} bytes, and {part.file.n_bytes} were listed")
    return begin - at


def _gave_up_error(part: PartFile, ended: _Interruption, n_empty_tries: int) -> NetworkError:
    so_far = f"{format_bytes(part.n_bytes)} of {format_bytes(part.file.n_bytes)}"
    what = f"the download of {plain(part.file.name)} stopped at {so_far}: {ended.reason}"
    if ended.pause_s is not None and ended.pause_s > MAX_WAIT_S:
        return NetworkError(
            f"{what} and asks to wait {format_duration(ended.pause_s)}", f"come back then: {RESUME_HINT}"
        )
    return NetworkError(f"{what}, {n_empty_tries} times without a byte", RESUME_HINT)
