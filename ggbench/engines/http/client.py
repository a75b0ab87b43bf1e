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

from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import LOG_HINT, Post, error_text
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout, UsageError
from ggbench.files import read_bounded
from ggbench.record import Record
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
_URL_HINT = "check that the URL is one of a model server"
_BUSY_HINT = "check that the server is not busy, and its address"
_STATUS_HINTS = {
    404: "check the URL and the model's name",
    503: "wait until its model is loaded, then try again",
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class HttpResponse(Record):
    status: int
    body: bytes

    def read_as(self, shape: type[_T]) -> _T | None:
        """Return the body's JSON as this type; None for an error status or anything else."""
        if self.status != 200:
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self.body, type=shape)
        return None


@dataclass(slots=True)
class Connection:
    """A request's socket, and when it was sent, as httpcore traces them."""

    socket: socket.socket | None = None
    sent_ns: int = 0
    is_aborted: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self.lock:
                self.socket = info["return_value"].get_extra_info("socket")
                is_aborted = self.is_aborted
            if is_aborted:
                self.abort()
        elif event.endswith("send_request_body.complete"):
            self.sent_ns = time.perf_counter_ns()

    def abort(self) -> None:
        """Close the connection, and wake a thread that waits for it; from any thread."""
        with self.lock:
            self.is_aborted = True
            opened = self.socket
        if opened is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)  # also works for an SSLSocket, below its TLS


class Client:
    """Connections to one address. Methods raise NetworkError, ServerFailed and UsageError."""

    def __init__(self, address: Address, timeout_s: float, document_s: float = _DOCUMENT_TIMEOUT_S) -> None:
        """`timeout_s` is the longest silence of a stream, and with `document_s` the most that a document takes."""
        import httpx2

        self.address = address
        self.timeout_s = timeout_s
        self._document_timeout_s = min(timeout_s, document_s)
        self._key = address.api_key()
        is_remote = urlsplit(address.base_url).hostname not in _LOOPBACK
        with self._errors():
            # Without encryption, a context that trusts nobody: reading the system's certificates takes 20 ms a client.
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._http = httpx2.Client(
                verify=httpx2.create_ssl_context() if address.base_url.startswith("https:") else tls,
                trust_env=is_remote,  # no proxy between this machine and itself
                follow_redirects=False,
                # a connection for each request, so that each can be closed separately
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            )

    def ask(self, path: str, body: object = None) -> HttpResponse:
        """Return the response to a request, whatever its status; `path` starts with a slash."""
        connection, timeout_s = Connection(), self._document_timeout_s
        with self._deadline(connection), self._open(path, body, connection, timeout_s) as response:
            return HttpResponse(response.status_code, _read(response))

    def stream(self, post: Post, connection: Connection) -> Iterator[tuple[int, bytes | None]]:
        """Send a POST request; yield the time of its sending with None, and of each line of the response with the line.

        `connection` may be closed from any thread; the reading thread gets NetworkError.
        """
        with self._open(post.path, post.body, connection, self.timeout_s) as response:
            yield connection.sent_ns or time.perf_counter_ns(), None
            if response.status_code != 200:
                self.fail(response.status_code, _read(response))
            yield from _lines(response)

    @contextlib.contextmanager
    def _open(
        self, path: str, body: object, connection: Connection, timeout_s: float
    ) -> Iterator[httpx2.Response]:
        """Send a GET request, or with a body, as JSON, a POST request. Raises GgbenchError, also for a redirect."""
        import httpx2

        headers = {"Accept-Encoding": "identity", "User-Agent": "ggbench", "Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        with self._errors():
            request = self._http.build_request(
                "GET" if body is None else "POST",
                self.address.base_url + path,
                content=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S),
                extensions={"trace": connection},
            )
            with contextlib.closing(self._http.send(request, stream=True)) as response:
                if response.is_redirect:
                    what = f"{self.address.base_url} redirects, which ggbench does not follow"
                    raise NetworkError(what, "use the server's own URL, if you trust it")
                yield response

    def fail(self, status: int, body: bytes) -> None:
        """Raise the error of a response with that status."""
        said = ""
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            said = error_text(msgspec.json.decode(self.without_key(body.decode(errors="replace"))))
        what = f"{self.address.base_url} returned status {status}: {said}".removesuffix(": ")
        if status in (401, 403):
            raise NetworkError(what, "export its API key and name the variable: --api-key-env NAME")
        raise ServerFailed(what, _STATUS_HINTS.get(status, LOG_HINT))

    def without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def silent(self, seconds: float) -> ServerTimeout:
        """Return the error for a server that is silent for too long."""
        return ServerTimeout(f"no answer from {self.address.base_url} for {seconds:g} s", _BUSY_HINT)

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._http.close()

    @contextlib.contextmanager
    def _deadline(self, connection: Connection) -> Iterator[None]:
        """Close the connection of a document that takes too long. Raises ServerTimeout."""
        timer = threading.Timer(self._document_timeout_s, connection.abort)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (NetworkError, ServerFailed):
            if connection.is_aborted:
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
    if cause is not None:
        why = shorten(getattr(cause, "verify_message", "") or "", 120) or "it may have none"
        hint = (
            "check its port, write http:// if it has no TLS, or set SSL_CERT_FILE to the certificate of its CA"
        )
        return NetworkError(f"no trusted TLS connection to {url}: {why}", hint)
    match error:
        case ImportError() | FileNotFoundError() | httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return UsageError(f"{url}, a proxy or SSL_CERT_FILE cannot be used", "correct or unset it")
        case httpx2.TimeoutException() | TimeoutError():
            return ServerTimeout(f"no answer from {url} in time", _BUSY_HINT)
        case httpx2.ConnectError() | httpx2.ProxyError():
            hint = "check that the server is running, its host and port, and HTTP_PROXY"
            return NetworkError(f"cannot connect to {url}", hint)
        case httpx2.RemoteProtocolError():
            return ServerFailed(f"{url} broke off, or does not speak HTTP", f"{LOG_HINT}, or try https://")
    return NetworkError(f"the connection to {url} was lost ({type(error).__name__})", LOG_HINT)


def _read(response: httpx2.Response) -> bytes:
    """Return a body. Raises ServerFailed for one of more than 16 MiB."""
    body = read_bounded(response.iter_raw(), _MAX_DOCUMENT_BYTES)
    if body is None:
        what = f"the server sent a document of more than {_MAX_DOCUMENT_BYTES >> 20} MiB"
        raise ServerFailed(what, _URL_HINT)
    return body


def _lines(response: httpx2.Response) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a stream, without their endings, and the time of their arrival.

    Raises ServerFailed for a line that is too long or incomplete.
    """
    clock = time.perf_counter_ns
    pending = b""
    for chunk in response.iter_raw():
        at_ns = clock()
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield at_ns, line.rstrip(b"\r")
        if len(pending) > _MAX_LINE_BYTES:
            raise ServerFailed(f"the server sent a line of more than {_MAX_LINE_BYTES >> 20} MiB", _URL_HINT)
    if pending.strip():
        raise ServerFailed("the server closed the stream in the middle of a line", LOG_HINT)
