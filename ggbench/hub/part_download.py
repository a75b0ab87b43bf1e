"""Fill a part file from the Hub with range requests, through dropped connections, hangs and busy servers.

Every request goes to the file's resolve URL, which redirects to the storage: signed URLs expire, and files stored with
Xet are served there as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.errors import NetworkError
from ggbench.hub.access import HubAccess, hub_errors, retry_after_s
from ggbench.hub.api import file_url
from ggbench.hub.part_file import RESUME_HINT, PartFile
from ggbench.hub.session import RETRY_STATUSES, NotReadable, Stop, bytes_to_skip, open_response, range_headers
from ggbench.text import plain
from ggbench.units import format_bytes, format_duration

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Delays before retries. The counter resets when a try brings data; that many empty tries in a row end the download."""
READ_TIMEOUT_S = 30.0
"""Reconnect after this long without data."""
MAX_WAIT_S = 120.0
"""Give up when a server requests a longer delay."""
RANGE_BYTES = 8 << 30
"""Largest range of one request: the Hub's CDN does not serve a 50 GB file in one response."""


def download_part(access: HubAccess, repo: str, commit: str, part: PartFile, stop: Stop) -> None:
    """Download the missing bytes of a part. Raises Stopped, NetworkError after empty tries, and as `hub_errors`."""
    n_empty_tries = 0
    with hub_errors(repo, doing=f"downloading {plain(part.file.path)}"):
        url = file_url(access, repo, part.file.path, commit)
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
    """Why a request ended before the file was complete."""

    reason: str
    pause_s: float | None = None
    """Delay requested by the server."""


def _try_once(url: str, part: PartFile, stop: Stop) -> _Interruption:
    import httpx2

    try:
        return _fill_once(url, part, stop)
    except httpx2.ConnectError:
        return _Interruption("cannot connect")
    except httpx2.TimeoutException:
        return _Interruption("the server did not respond in time")
    except (httpx2.NetworkError, httpx2.RemoteProtocolError):
        return _Interruption("the connection was cut")
    except (NetworkError, NotReadable) as error:
        # Keep the part: the response may come from a captive portal between here and the Hub.
        return _Interruption(error.message)


def _fill_once(url: str, part: PartFile, stop: Stop) -> _Interruption:
    from huggingface_hub.utils import hf_raise_for_status

    begin = part.n_bytes
    asked = range_headers(begin, min(part.file.n_bytes, begin + RANGE_BYTES))
    with open_response(url, stop, read_timeout_s=READ_TIMEOUT_S, headers=asked) as response:
        if response.status_code in RETRY_STATUSES:
            return _Interruption(f"the server returned {response.status_code}", retry_after_s(response))
        if response.is_error:
            response.read()
            hf_raise_for_status(response)
        n_skip = bytes_to_skip(response, begin, part.file)
        for chunk in response.iter_raw():
            stop.check()
            if n_skip:
                chunk, n_skip = chunk[n_skip:], max(0, n_skip - len(chunk))
            part.append(chunk)
            if not part.missing_bytes:
                break
    return _Interruption("the connection closed early")


def _gave_up_error(part: PartFile, ended: _Interruption, n_empty_tries: int) -> NetworkError:
    so_far = f"{format_bytes(part.n_bytes)} of {format_bytes(part.file.n_bytes)}"
    what = f"the download of {plain(part.file.name)} stopped at {so_far}: {ended.reason}"
    if ended.pause_s is not None and ended.pause_s > MAX_WAIT_S:
        return NetworkError(
            f"{what} and asks to wait {format_duration(ended.pause_s)}", f"try again then: {RESUME_HINT}"
        )
    return NetworkError(f"{what}, {n_empty_tries} tries without data", RESUME_HINT)
