"""Which Hub, whether it may be asked, and where what it said is kept; and its refusals in words for a person.

The environment is read when an access is made: huggingface_hub reads it at import, which is too early for a test and
costs a sixth of a second where no network is wanted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench import paths
from ggbench.errors import DoesNotFit, GgbenchError, NetworkError, UsageError
from ggbench.plain import plain, shorten
from ggbench.units import format_duration

if TYPE_CHECKING:
    import httpx2

_ENDPOINT = "https://huggingface.co"
_YES = ("1", "true", "yes", "on")
_LOG_IN_HINT = "log in with `hf auth login`"
_OFFLINE_HINT = (
    "what is on this disk and what was listed before still work with --offline; synth: models need no network"
)


@dataclass(frozen=True, slots=True)
class HubAccess:
    """One Hub as the environment names it."""

    offline: bool
    """Whether nothing may be asked of the network."""
    endpoint: str
    """Its address, no slash at the end."""
    hub_cache: Path
    """Hugging Face's cache of downloads, which other programs share."""
    listings_dir: Path
    """What repos held when they were listed last."""
    headers_dir: Path
    """Headers of published files."""

    @classmethod
    def from_environment(cls, *, offline: bool = False) -> HubAccess:
        """As HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_CACHE and HF_HOME say. Raises UsageError for no endpoint."""
        environment = os.environ
        endpoint = (environment.get("HF_ENDPOINT") or _ENDPOINT).strip().rstrip("/")
        if not endpoint.startswith(("https://", "http://")):
            raise UsageError(
                f"HF_ENDPOINT is {shorten(endpoint, 60)!r}, which is no address", "unset it, or begin it with https://"
            )
        says_offline = environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or ""
        return cls(
            offline=offline or says_offline.strip().lower() in _YES,
            endpoint=endpoint,
            hub_cache=hub_cache_folder(environment),
            listings_dir=paths.hub_listings_dir(),
            headers_dir=paths.headers_dir(),
        )

    def require_network(self, what: str) -> None:
        """Raise NetworkError when offline; `what` is what the network is wanted for, such as `listing org/name`."""
        if self.offline:
            raise NetworkError(
                f"{what} needs the network, and this is offline",
                "leave --offline and HF_HUB_OFFLINE out once, then it works offline; synth: models need no network",
            )


def hub_cache_folder(environment: Mapping[str, str]) -> Path:
    """Hugging Face's cache as these variables name it, absolute. Source: huggingface_hub/constants.py."""
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if not named:
        caches = environment.get("XDG_CACHE_HOME") or "~/.cache"
        named = f"{environment.get('HF_HOME') or f'{caches}/huggingface'}/hub"
    text = os.path.expandvars(named)
    home = environment.get("HOME")
    if home and text.startswith("~/"):
        return Path(home) / text[2:]
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - pathlib's raises where nobody has that home


def error_for_response(response: httpx2.Response, repo: str, doing: str) -> NetworkError:
    """The error that an answer of the Hub with a status of 400 and more stands for; nothing of its text is repeated.

    Source: the codes that huggingface_hub tells apart (`X-Error-Code`). A repo that is not there and one that may not
    be seen are both a 401 to a stranger.
    """
    repo, doing = plain(repo), plain(doing)
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    if code == "GatedRepo":
        return NetworkError(
            f"{repo} is gated: its files are for those who accepted its terms",
            f"accept them at {_ENDPOINT}/{repo}, then {_LOG_IN_HINT}",
        )
    if code == "RevisionNotFound":
        where = "no such revision" if repo in doing else f"{repo} has no such revision"
        return NetworkError(f"{where} while {doing}", "name a branch, a tag or a commit of it")
    if code == "EntryNotFound":
        return NetworkError(f"the Hub does not find the file while {doing}", "list the repo again: it may have changed")
    if status == 401 and "Invalid credentials" in response.headers.get("X-Error-Message", ""):
        return NetworkError("the Hub does not know your token", f"{_LOG_IN_HINT} again, or unset HF_TOKEN")
    if code == "RepoNotFound" or status == 401:
        return NetworkError(
            f"there is no repo {repo}, or it is private",
            f"look for it with `ggbench models --search`; for a private one, {_LOG_IN_HINT}",
        )
    if status == 403:
        return NetworkError(
            f"the Hub refuses access to {repo} while {doing}", f"{_LOG_IN_HINT} with a token that may read it"
        )
    if status == 429:
        pause_s = retry_after_s(response)
        wait = f"in {format_duration(pause_s)}" if pause_s is not None else "later"
        return NetworkError(f"the Hub has had too many requests while {doing}", f"try again {wait}, or {_LOG_IN_HINT}")
    if status >= 500:
        return NetworkError(
            f"the Hub is in trouble (status {status}) while {doing}", f"try again later; {_OFFLINE_HINT}"
        )
    return NetworkError(
        f"the Hub answered with status {status} while {doing}", "see whether HF_ENDPOINT is a Hub's address"
    )


def retry_after_s(response: httpx2.Response) -> float | None:
    """For how long a busy server asks to be left alone; None where it does not say."""
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(response.headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    asked = response.headers.get("Retry-After", "").strip()
    return float(asked) if asked.isdecimal() and asked.isascii() and len(asked) < 10 else None


@contextmanager
def hub_errors(repo: str, *, doing: str) -> Iterator[None]:
    """Turn what huggingface_hub, httpx2 and the disk raise into errors of ours; `doing` is such as `listing org/name`.

    Raises UsageError for a name, an address or a token that none can be and for a folder that may not be written,
    DoesNotFit for a full disk, else NetworkError: whatever the Hub itself answers is its own, a repo that it does not
    have included. Their own words are left out: they may hold a token or a signed address.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    doing = plain(doing)
    try:
        yield
    except GgbenchError:
        raise
    except HfHubHTTPError as error:
        raise error_for_response(error.response, repo, doing) from None
    except HFValidationError:
        raise UsageError(f"{shorten(repo, 100)!r} cannot be a repo's name", "name it as ORG/NAME") from None
    except OfflineModeIsEnabled:
        raise NetworkError(f"{doing} needs the network, and HF_HUB_OFFLINE is set", _OFFLINE_HINT) from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        raise UsageError("HF_ENDPOINT or a proxy is no address", "correct or unset it") from None
    except (httpx2.LocalProtocolError, UnicodeEncodeError):
        raise UsageError(
            "the token holds characters that no token has", f"{_LOG_IN_HINT} again, or set HF_TOKEN"
        ) from None
    except httpx2.ProxyError:
        raise NetworkError(f"the proxy refuses while {doing}", "check HTTPS_PROXY and NO_PROXY") from None
    except (httpx2.TimeoutException, TimeoutError):
        raise NetworkError(f"no answer came in time while {doing}", f"try again; {_OFFLINE_HINT}") from None
    except httpx2.ConnectError:
        raise NetworkError(f"the Hub cannot be reached while {doing}", f"check the network; {_OFFLINE_HINT}") from None
    except (httpx2.HTTPError, ConnectionError):
        raise NetworkError(f"the connection to the Hub broke while {doing}", f"try again; {_OFFLINE_HINT}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DoesNotFit(
                f"the disk is full while {doing}", "make room, or choose another disk with HF_HOME"
            ) from None
        place = f" {plain(os.fsdecode(error.filename))}" if isinstance(error.filename, str | bytes) else ""
        raise UsageError(
            f"{error.strerror or 'the disk refuses'}:{place} while {doing}",
            "check the folder, or choose one with HF_HOME",
        ) from None
