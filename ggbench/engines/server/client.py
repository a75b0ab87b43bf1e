"""HTTP to one server: documents of limited size, and streams of lines with their arrival times.

The wait for a token has a timeout, whether the server is silent or drips a byte per second. Redirects are not followed,
because they could send the key and the prompt to another host. A server's text is untrusted: it is shortened for
display, with the API key removed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from ggbench.engines.server.config import Address
from ggbench.engines.server.contract import LOG_HINT, Post, Sent, error_text
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout, UsageError
from ggbench.text import shorten

if TYPE_CHECKING:
    import httpx2

_T = TypeVar("_T")

_CONNECT_TIMEOUT_S = 10.0
_DOCUMENT_TIMEOUT_S = 30.0
"""Time limit of a whole document, from connecting to its last byte, unless the timeout is shorter."""
_MAX_DOCUMENT_BYTES = 16 << 20
_MAX_LINE_BYTES = 8 << 20
"""llama-server repeats the prompt in its last line: about 4 bytes per token."""
_MAX_ERROR_BYTES = 64 << 10
_EMPTY_REQUESTS = 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class HttpResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes

    def read_as(self, shape: type[_T]) -> _T | None:
        """Return the body's JSON as this type; None for an error status or anything else."""
        if self.status != 200:
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self.body, type=shape)
        return None


class StreamLine(msgspec.Struct, frozen=True):
    """A line of a stream, without its line ending."""

    at_ns: int
    content: bytes


@dataclass(slots=True)
class _Trace:
    """httpcore's data on a request: its socket, and when it was sent."""

    connection: socket.socket | None = None
    sent_ns: int = 0
    is_aborted: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self.lock:
                self.connection = info["return_value"].get_extra_info("socket")
                is_aborted = self.is_aborted
            if is_aborted:
                self.abort()
        elif event.endswith("send_request_body.complete"):
            self.sent_ns = time.perf_counter_ns()

    def abort(self) -> None:
        """Wake a thread that waits for this connection; it then finds the connection closed."""
        with self.lock:
            self.is_aborted = True
            connection = self.connection
        if connection is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # also works for an SSLSocket, below its TLS


class Exchange:
    """A request whose response is read as it arrives."""

    def __init__(self, client: Client, post: Post) -> None:
        self._client = client
        self._post = post
        self._trace = _Trace()
        self.abort = self._trace.abort
        """Close the connection, from any thread; the reading thread gets NetworkError."""

    def items(self) -> Iterator[Sent | StreamLine]:
        """Send the request; yield its time of sending, and each line. Raises GgbenchError."""
        client = self._client
        with client.open(client.streams, "POST", self._post.path, self._post.body, self._trace) as response:
            yield Sent(self._trace.sent_ns or time.perf_counter_ns())
            if response.status_code != 200:
                client.fail(response.status_code, _read(response, _MAX_ERROR_BYTES, is_cut=True))
            yield from _lines(response)


class Client:
    """Connections to one address. Methods raise NetworkError, ServerFailed and UsageError."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        """`timeout_s` is the longest silence of a stream."""
        import httpx2

        self.address = address
        self.timeout_s = timeout_s
        self._document_timeout_s = min(timeout_s, _DOCUMENT_TIMEOUT_S)
        self._key = address.api_key()
        is_local = urlsplit(address.base_url).hostname in _LOOPBACK
        is_encrypted = address.base_url.startswith("https:")
        # Without encryption, a context that trusts nobody: reading the system's certificates takes 20 ms a client.
        tls = httpx2.create_ssl_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

        def client(read_timeout_s: float, n_kept: int) -> httpx2.Client:
            return httpx2.Client(
                verify=tls,
                trust_env=not is_local,  # no proxy between this machine and itself
                follow_redirects=False,
                timeout=httpx2.Timeout(read_timeout_s, connect=_CONNECT_TIMEOUT_S),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=n_kept),
            )

        with self._errors():
            self._documents = client(self._document_timeout_s, 1)
            self.streams = client(timeout_s, 0)
            """Opens a connection for each request, so that each can be closed separately."""

    def get(self, path: str) -> HttpResponse:
        """Return the response to a GET request, whatever its status; `path` starts with a slash."""
        return self._document("GET", path, None)

    def post(self, post: Post) -> HttpResponse:
        """Return the response to a POST request, whatever its status."""
        return self._document("POST", post.path, post.body)

    def exchange(self, post: Post) -> Exchange:
        """Return a request whose response is a stream; nothing is sent yet."""
        return Exchange(self, post)

    def round_trips_ns(self, path: str) -> tuple[int, ...]:
        """Time 20 GET requests without computation, from sending to the first byte, over one open connection."""
        found: list[int] = []
        with Client(self.address, timeout_s=self.timeout_s) as fresh:
            for _ in range(_EMPTY_REQUESTS):
                trace = _Trace()
                with fresh._deadline(trace), fresh.open(fresh._documents, "GET", path, None, trace) as response:
                    first_ns = time.perf_counter_ns()
                    _read(response, _MAX_DOCUMENT_BYTES)
                found.append(first_ns - (trace.sent_ns or first_ns))
        return tuple(found)

    @contextlib.contextmanager
    def open(
        self, connections: httpx2.Client, method: str, path: str, body: object, trace: _Trace
    ) -> Iterator[httpx2.Response]:
        """Send a request, with a JSON body unless it is None. Raises GgbenchError, also for a redirect."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "ggbench"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        url = self.address.base_url
        content = None if body is None else msgspec.json.encode(body)
        with (
            self._errors(),
            connections.stream(
                method, url + path, content=content, headers=headers, extensions={"trace": trace}
            ) as response,
        ):
            trace.connection = trace.connection or response.extensions["network_stream"].get_extra_info("socket")
            if response.is_redirect:
                target = ""
                with contextlib.suppress(ValueError):  # shown without user, password and query
                    to = urlsplit(response.headers.get("Location", ""))
                    target = f" to {shorten(f'{to.scheme}://{to.hostname}{to.path}', 80)}" if to.hostname else ""
                raise NetworkError(
                    f"{url} redirects{target}, which ggbench does not follow",
                    "use the server's own URL, if you trust it",
                )
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise ServerFailed(f"{url} sends compressed data", "turn off compression in its proxy")
            yield response

    def fail(self, status: int, body: bytes, what: str = "") -> None:
        """Raise the error of a response with that status; `what` names the requested thing."""
        url, said = self.address.base_url, _message(self.without_key(body[:_MAX_ERROR_BYTES].decode(errors="replace")))
        suffix = f": {said}" if said else ""
        asked = f" for {what}" if what else ""
        if status == 401 and self.address.api_key_env is None:
            raise NetworkError(
                f"{url} requires an API key", "export its API key and name the variable: --api-key-env NAME"
            )
        if status == 401:
            raise NetworkError(f"{url} rejected the API key in {self.address.api_key_env}", "check the key")
        if status == 403:
            raise NetworkError(f"{url} denied access{suffix}", "check the API key and its permissions")
        if status == 404:
            raise ServerFailed(f"{url} returned 404{asked}{suffix}", "check the URL and the model's name")
        if status == 503 and "load" in said.lower():
            raise ServerFailed(f"{url} is still loading its model", "wait until it is loaded, then try again")
        raise ServerFailed(f"{url} returned status {status}{asked}{suffix}", LOG_HINT)

    def without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def silent(self, seconds: float) -> ServerTimeout:
        """Return the error for a server that is silent for too long."""
        return ServerTimeout(
            f"no answer from {self.address.base_url} for {seconds:g} s", "check that the server is not busy"
        )

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._documents.close()
        self.streams.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _document(self, method: str, path: str, body: object) -> HttpResponse:
        trace = _Trace()
        with self._deadline(trace), self.open(self._documents, method, path, body, trace) as response:
            return HttpResponse(response.status_code, _read(response, _MAX_DOCUMENT_BYTES))

    @contextlib.contextmanager
    def _deadline(self, trace: _Trace) -> Iterator[None]:
        """Close the connection of a document that takes too long. Raises ServerTimeout."""
        timer = threading.Timer(self._document_timeout_s, trace.abort)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (NetworkError, ServerFailed):
            if trace.is_aborted:
                raise self.silent(self._document_timeout_s) from None
            raise
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the exceptions of httpx2."""
        try:
            yield
        except GgbenchError:
            raise
        except Exception as error:
            raise _transport_error(self.address.base_url, error) from None


def _transport_error(url: str, error: Exception) -> GgbenchError:
    """Return the error for an exception of httpx2. Its text is dropped, as it may contain a header or a proxy's
    password.
    """
    import httpx2

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return NetworkError(
            f"the certificate of {url} is not trusted: {shorten(cause.verify_message, 120)}",
            "set SSL_CERT_FILE to the certificate of its CA",
        )
    if cause is not None:
        return NetworkError(f"no TLS connection to {url}", "check its port, or write http:// if it has no TLS")
    match error:
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return UsageError(f"{url} or a proxy setting is not a valid URL", "correct or unset it")
        case httpx2.ProxyError():
            return NetworkError(
                f"the proxy refused the connection to {url}", "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
            )
        case httpx2.ConnectTimeout():
            return ServerTimeout(f"timeout connecting to {url}", "check the address and the firewall")
        case httpx2.TimeoutException() | TimeoutError():
            return ServerTimeout(f"no answer from {url} in time", "check that the server is not busy")
        case httpx2.ConnectError():
            return NetworkError(f"cannot connect to {url}", "check that the server is running, and its host and port")
        case httpx2.RemoteProtocolError():
            return ServerFailed(f"{url} broke off, or does not speak HTTP", f"{LOG_HINT}, or try https://")
    return NetworkError(f"the connection to {url} was lost ({type(error).__name__})", LOG_HINT)


def _message(body: str) -> str:
    """Return the message of an error document in one short line; empty if it has none."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        return error_text(msgspec.json.decode(body.encode(errors="replace")))
    return "" if body.lstrip()[:1] in ("<", "{", "[", "") else shorten(body.strip(), 120)


def _read(response: httpx2.Response, most: int, *, is_cut: bool = False) -> bytes:
    """Return a body of at most `most` bytes; a longer one is truncated if `is_cut`, else raises ServerFailed."""
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > most:
            if is_cut:
                break
            raise ServerFailed(
                f"the server sent a document of more than {most >> 20} MiB",
                "check that the URL is one of a model server",
            )
    return bytes(body[:most])


def _lines(response: httpx2.Response) -> Iterator[StreamLine]:
    """Yield the complete lines of a stream. Raises ServerFailed for a line that is too long or incomplete."""
    clock = time.perf_counter_ns
    pending = b""
    for chunk in response.iter_raw():
        at_ns = clock()
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield StreamLine(at_ns, line.rstrip(b"\r"))
        if len(pending) > _MAX_LINE_BYTES:
            raise ServerFailed(
                f"the server sent a line of more than {_MAX_LINE_BYTES >> 20} MiB",
                "check that the URL is one of a model server",
            )
    if pending.strip():
        raise ServerFailed("the server closed the stream in the middle of a line", LOG_HINT)
