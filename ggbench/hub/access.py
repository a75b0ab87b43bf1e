"""Configuration of the Hub (endpoint, cache folders, offline mode) and translation of its errors.

The environment is read when a HubAccess is created: huggingface_hub reads it at import, which is too early for tests,
and importing it takes about 150 ms.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench import paths
from ggbench.errors import GgbenchError, NetworkError, UsageError
from ggbench.record import Record
from ggbench.text import sanitize

if TYPE_CHECKING:
    import httpx2

HUB = "https://huggingface.co"
"""The default endpoint."""
_YES = ("1", "true", "yes", "on")
_LOG_IN_HINT = "log in with `hf auth login`"
_OFFLINE_HINT = "or use --offline: local models, cached repo listings and twin: models still work"


class HubAccess(Record):
    """One Hub endpoint and its local folders, as configured by the environment."""

    offline: bool
    """True forbids network access."""
    endpoint: str
    """URL without a trailing slash."""
    hub_cache: Path
    """Hugging Face's download cache, shared with other programs."""
    listings_dir: Path
    """Cached repo listings."""
    headers_dir: Path
    """Cached headers of published files."""

    @classmethod
    def from_environment(cls, *, offline: bool = False) -> HubAccess:
        """Read HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_CACHE and HF_HOME. Raises UsageError for an invalid endpoint."""
        environment = os.environ
        endpoint = (environment.get("HF_ENDPOINT") or HUB).strip().rstrip("/")
        if not endpoint.startswith(("https://", "http://")):
            raise UsageError("HF_ENDPOINT is not a URL", "unset it, or use a URL with https://")
        says_offline = environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or ""
        return cls(
            offline=offline or says_offline.strip().lower() in _YES,
            endpoint=endpoint,
            hub_cache=hub_cache_folder(),
            listings_dir=paths.hub_listings_dir(),
            headers_dir=paths.headers_dir(),
        )

    def require_network(self, what: str) -> None:
        """Raise NetworkError when offline; `what` names the operation, e.g. `listing org/name`."""
        if self.offline:
            raise NetworkError(
                f"{what} needs the network, but offline mode is on",
                "run it once without --offline and HF_HUB_OFFLINE, then it works offline",
            )


def hub_cache_folder() -> Path:
    """Return Hugging Face's cache folder, absolute. Source: huggingface_hub/constants.py."""
    of_user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    of_hub = os.environ.get("HF_HOME") or f"{of_user}/huggingface"
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    text = os.path.expandvars(named or f"{of_hub}/hub")
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - pathlib's raises where nobody has that home


def error_for_response(response: httpx2.Response, repo: str, doing: str) -> NetworkError:
    """Return the error for a Hub response with status 400 or above; the response body is never repeated.

    Source: the error codes of huggingface_hub (`X-Error-Code`). Without a token, a missing repo and a private one both
    return 401.
    """
    repo, doing = sanitize(repo), sanitize(doing)
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    what, hint = f"the Hub returned status {status} while {doing}", f"try again later, {_OFFLINE_HINT}"
    if code == "GatedRepo":
        what = f"{repo} is gated: its files require accepting its terms"
        hint = f"accept them at {HUB}/{repo}, then {_LOG_IN_HINT}"
    elif code in ("RevisionNotFound", "EntryNotFound"):
        what = f"the Hub cannot find the revision or file while {doing}"
        hint = "give a branch, a tag or a commit of the repo, or list it again: it may have changed"
    elif status == 401 and "Invalid credentials" in response.headers.get("X-Error-Message", ""):
        what, hint = "the Hub rejected your token", f"{_LOG_IN_HINT} again, or unset HF_TOKEN"
    elif code == "RepoNotFound" or status == 401:
        what = f"repo {repo} does not exist, or is private"
        hint = f"search with `ggbench models --search`; if it is private, {_LOG_IN_HINT}"
    elif status == 403:
        what = f"the Hub denied access to {repo} while {doing}"
        hint = f"{_LOG_IN_HINT} with a token that has read access"
    elif status == 429:
        what, hint = f"the Hub's rate limit was reached while {doing}", f"try again later, or {_LOG_IN_HINT}"
    elif status < 500:
        hint = "check that HF_ENDPOINT is the URL of a Hub"
    return NetworkError(what, hint)


def retry_after_s(response: httpx2.Response) -> float | None:
    """Return the delay in seconds that a busy server requests; None if it requests none."""
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(response.headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    asked = response.headers.get("Retry-After", "").strip()
    return float(asked) if asked.isdecimal() and asked.isascii() and len(asked) < 10 else None


def _network_problem(error: Exception) -> str:
    import httpx2

    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return "the Hub did not respond in time"
    if isinstance(error, (httpx2.ConnectError, httpx2.ProxyError)):
        return "cannot connect to the Hub"
    return "the connection to the Hub was lost"


@contextmanager
def hub_errors(doing: str) -> Iterator[None]:
    """Translate exceptions of httpx2 and the file system; `doing` is e.g. `listing org/name`.

    Raises UsageError for an invalid address or token or an unusable file; otherwise NetworkError. The original messages
    are dropped, as they may contain a token or a signed URL.
    """
    import httpx2

    doing = sanitize(doing)
    try:
        yield
    except GgbenchError:
        raise
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        what = "HF_ENDPOINT, another HF_ variable, a proxy or SSL_CERT_FILE cannot be used"
        raise UsageError(what, "correct or unset it; a SOCKS proxy needs pip install 'httpx2[socks]'") from None
    except (httpx2.LocalProtocolError, UnicodeEncodeError):
        raise UsageError(
            "the token contains invalid characters", f"{_LOG_IN_HINT} again, or set HF_TOKEN"
        ) from None
    except (httpx2.HTTPError, TimeoutError, ConnectionError) as error:
        raise NetworkError(
            f"{_network_problem(error)} while {doing}", f"check the network, {_OFFLINE_HINT}"
        ) from None
    except OSError as error:
        hint = "check the folder, or choose another with HF_HOME"
        place = sanitize(str(error.filename or "this disk"))
        raise UsageError(f"{error.strerror or 'disk error'}: {place} while {doing}", hint) from None
