"""Errors of servers and of the way to them, as messages with a hint. A server's text is untrusted and kept short."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ggbench.engines.server.config import Address
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout, UsageError
from ggbench.text import shorten

_LOG_HINT = "look at the server's log"
_KEY_HINT = "export its API key and name the variable: --api-key-env NAME"


def transport_error(address: Address, error: Exception) -> GgbenchError:
    """Return what an exception of httpx2 means. Its text is dropped: it may repeat a header or a proxy's password."""
    import httpx2

    url = address.base_url
    tls = _tls_error(error)
    if tls is not None:
        return tls_error(address, tls)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return UsageError(f"{url} or a proxy setting is not a valid URL", "correct or unset it")
    if isinstance(error, httpx2.ProxyError):
        return NetworkError(f"the proxy refused the connection to {url}", "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY")
    if isinstance(error, httpx2.ConnectTimeout):
        return ServerTimeout(
            f"cannot connect to {url} in time", "check the address, and that no firewall blocks the port"
        )
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return ServerTimeout(f"no answer from {url} in time", "check that the server is not busy, or allow more time")
    if isinstance(error, httpx2.ConnectError):
        return NetworkError(f"cannot connect to {url}", "check that the server runs, and its host and port")
    if isinstance(error, httpx2.RemoteProtocolError):
        return ServerFailed(
            f"{url} broke off, or does not speak HTTP", f"{_LOG_HINT}, and check whether it wants https://"
        )
    if isinstance(error, httpx2.HTTPError | httpx2.StreamError | OSError):
        return NetworkError(f"the connection to {url} was lost", _LOG_HINT)
    return NetworkError(f"the connection to {url} failed ({type(error).__name__})", _LOG_HINT)


def tls_error(address: Address, error: ssl.SSLError) -> NetworkError:
    """Return the error for a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NetworkError(
            f"the certificate of {address.base_url} is not trusted: {shorten(error.verify_message, 120)}",
            "name the certificate of its authority in SSL_CERT_FILE",
        )
    return NetworkError(
        f"no TLS connection to {address.base_url}", "check its port, or write http:// where it has no TLS"
    )


def redirected(address: Address, location: str) -> NetworkError:
    """Return the error for a redirect; what it leads to is shown without user, password and query."""
    target = ""
    with contextlib.suppress(ValueError):
        parts = urlsplit(location)
        target = f" to {shorten(f'{parts.scheme}://{parts.hostname}{parts.path}', 80)}" if parts.hostname else ""
    return NetworkError(
        f"{address.base_url} redirects{target}, which ggbench does not follow",
        "give the server's own URL, if you trust it",
    )


def compressed(address: Address) -> ServerFailed:
    """Return the error for a compressed response, which was not asked for."""
    return ServerFailed(
        f"{address.base_url} sends compressed data although asked not to", "switch compression off in its proxy"
    )


def status_error(address: Address, status: int, body: str, what: str = "") -> GgbenchError:
    """Return the error for a response with that status; `what` was asked for."""
    url, said = address.base_url, server_message(body)
    suffix = f": {said}" if said else ""
    asked = f" for {what}" if what else ""
    if status == 401:
        if address.api_key_env is None:
            return NetworkError(f"{url} wants an API key", _KEY_HINT)
        return NetworkError(f"{url} rejected the API key in {address.api_key_env}", "check the key")
    if status == 403:
        return NetworkError(f"{url} denied access{suffix}", "check the API key and its rights")
    if status == 404:
        return ServerFailed(f"{url} returned 404{asked}{suffix}", "check the URL and the model's name")
    if status == 429:
        return ServerFailed(f"{url} limits the rate of requests{suffix}", "try again later")
    if status == 503 and "load" in said.lower():
        return ServerFailed(f"{url} is still loading its model", "wait until it is loaded, then try again")
    return ServerFailed(f"{url} returned status {status}{asked}{suffix}", _LOG_HINT)


def server_message(body: str) -> str:
    """Return the message of an error document in one short line; empty where there is none.

    OpenAI: `{"error": {"message": ...}}`; Ollama and TGI: `{"error": ...}`; FastAPI: `{"detail": ...}`.
    """
    with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        return error_text(msgspec.json.decode(body.encode(errors="replace")))
    return "" if body.lstrip()[:1] in ("<", "{", "[", "") else shorten(body.strip(), 120)


def error_text(document: Any) -> str:  # noqa: ANN401 - whatever JSON the server sent
    """Return the message inside an error document in one short line; empty where there is none."""
    for name in ("error", "message", "detail", "msg"):
        if isinstance(document, list) and document:
            document = document[0]
        if isinstance(document, dict) and document.get(name):
            document = document[name]
    return shorten(document, 200) if isinstance(document, str) else ""


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    for _ in range(8):
        if error is None or isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None
