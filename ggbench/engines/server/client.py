"""HTTP to one server: documents of limited size, and streams read line by line, each with its time of arrival.

The wait for a token ends at a timeout, however the server spends it: silent, or dripping a byte a second. No redirect
is followed, because it could carry the key and the prompt to another host. Nothing here repeats the API key: messages
of the server are shown with the key removed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from ggbench.engines.server.config import Address
from ggbench.engines.server.contract import FirstByte, NetworkTimes, Sent
from ggbench.engines.server.failures import compressed, redirected, status_error, transport_error
from ggbench.errors import GgbenchError, NetworkError, ServerFailed, ServerTimeout

if TYPE_CHECKING:
    import httpx2

_T = TypeVar("_T")

CONNECT_TIMEOUT_S = 10.0
MOST_DOCUMENT_S = 30.0
"""For a whole document, from connecting to its last byte, where the timeout is not shorter."""
MAX_DOCUMENT_BYTES = 16 << 20
MAX_LINE_BYTES = 8 << 20
"""llama-server repeats the prompt in its last line: about 4 bytes a token."""
_MAX_ERROR_BYTES = 64 << 10
_EMPTY_REQUESTS = 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Post(msgspec.Struct, frozen=True):
    """A request with a JSON body."""

    path: str
    body: Mapping[str, object]


class HttpResponse(msgspec.Struct, frozen=True):
    """A whole response."""

    status: int
    body: bytes
    server: str
    """The header `Server`; empty where there is none. Untrusted text."""

    @property
    def document(self) -> Any:  # noqa: ANN401 - whatever JSON the server sent
        """The body as JSON; None where the status is an error or the body is anything else."""
        if self.status != 200:
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self.body)
        return None

    def read_as(self, shape: type[_T]) -> _T | None:
        """Return the body as a struct; None where it is anything else."""
        if self.status != 200:
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self.body, type=shape)
        return None


class StreamLine(msgspec.Struct, frozen=True):
    """A line of a stream without its ending."""

    at_ns: int
    content: bytes


@dataclass(slots=True)
class _Trace:
    """What httpcore reports of one request: its socket, and when its parts were done."""

    connection: socket.socket | None = None
    connecting_ns: int = 0
    connected_ns: int = 0
    sent_ns: int = 0
    is_aborted: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("connect_tcp.started"):
            self.connecting_ns = time.perf_counter_ns()
        elif event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self.connected_ns = time.perf_counter_ns()
            with self.lock:
                self.connection = info["return_value"].get_extra_info("socket")
                is_aborted = self.is_aborted
            if is_aborted:
                self.abort()
        elif event.endswith("send_request_body.complete"):
            self.sent_ns = time.perf_counter_ns()

    @property
    def sent(self) -> Sent:
        connect_ns = self.connected_ns - self.connecting_ns if self.connected_ns and self.connecting_ns else None
        return Sent(self.sent_ns or time.perf_counter_ns(), connect_ns)

    def abort(self) -> None:
        """Wake a thread that waits for this connection; it then finds the connection closed."""
        with self.lock:
            self.is_aborted = True
            connection = self.connection
        if connection is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of an SSLSocket too, below its TLS


class Exchange:
    """One request whose response is read as it comes; `abort` may be called from another thread."""

    def __init__(self, client: Client, post: Post) -> None:
        self._client = client
        self._post = post
        self._trace = _Trace()

    def abort(self) -> None:
        """Close the connection; the thread that reads it gets NetworkError."""
        self._trace.abort()

    def items(self) -> Iterator[Sent | FirstByte | StreamLine]:
        """Send the request; yield when it was sent, when its head came, and each line. Raises GgbenchError."""
        client = self._client
        with (
            client.errors(),
            client.streams.stream(
                "POST",
                client.url(self._post.path),
                content=msgspec.json.encode(self._post.body),
                headers=client.headers("application/json"),
                extensions={"trace": self._trace},
            ) as response,
        ):
            first = FirstByte(time.perf_counter_ns())
            yield self._trace.sent
            client.check(response)
            yield first
            yield from _lines(response)


class Client:
    """Connections to one address. Methods raise NetworkError, ServerFailed and UsageError."""

    def __init__(self, address: Address, *, timeout_s: float, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """`timeout_s` is the longest silence of a stream."""
        import httpx2

        self.address = address
        self.timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._document_timeout_s = min(timeout_s, MOST_DOCUMENT_S)
        self._key = address.api_key()
        is_local = urlsplit(address.base_url).hostname in _LOOPBACK
        tls: Any = httpx2.create_ssl_context() if address.base_url.startswith("https:") else True

        def client(read_timeout_s: float, n_kept: int) -> httpx2.Client:
            return httpx2.Client(
                verify=tls,
                trust_env=not is_local,  # a proxy has no business between this machine and itself
                follow_redirects=False,
                timeout=httpx2.Timeout(read_timeout_s, connect=connect_timeout_s),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=n_kept),
            )

        with self.errors():
            self._documents = client(self._document_timeout_s, 1)
            self.streams = client(timeout_s, 0)
            """Opens a connection for each request, so that each can be closed alone."""

    def url(self, path: str) -> str:
        """Return the URL of a path that begins with a slash."""
        return f"{self.address.base_url}{path}"

    def headers(self, content_type: str = "") -> dict[str, str]:
        """Return the headers of a request, with the key."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "ggbench"}
        if content_type:
            headers["Content-Type"] = content_type
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def get(self, path: str) -> HttpResponse:
        """Return the response to a GET request, whatever its status."""
        return self._document("GET", path, None)

    def post(self, post: Post) -> HttpResponse:
        """Return the response to a POST request, whatever its status."""
        return self._document("POST", post.path, msgspec.json.encode(post.body))

    def _time_empty(self, path: str) -> tuple[int, int | None]:
        """Return the nanoseconds from a GET request sent to its first byte, and those to connect."""
        trace = _Trace()
        with self._deadline(trace), self._open("GET", path, None, trace) as response:
            first_ns = time.perf_counter_ns()
            _read(response, MAX_DOCUMENT_BYTES)
        sent = trace.sent
        return first_ns - sent.at_ns, sent.connect_ns

    def network_times(self, path: str) -> NetworkTimes:
        """Time opening a connection and 20 requests over it that compute nothing. Raises NetworkError and ServerFailed.

        A server that closes the connection after each response makes every request open one; their time is not counted
        in `empty_request_ns`.
        """
        connect_ns: list[int] = []
        empty_ns: list[int] = []
        with Client(self.address, timeout_s=self.timeout_s, connect_timeout_s=self._connect_timeout_s) as fresh:
            for _ in range(_EMPTY_REQUESTS):
                first_byte_ns, opening_ns = fresh._time_empty(path)
                empty_ns.append(first_byte_ns)
                if opening_ns is not None:
                    connect_ns.append(opening_ns)
        return NetworkTimes(min(connect_ns), tuple(empty_ns))

    def exchange(self, post: Post) -> Exchange:
        """Return a request whose response is a stream; nothing is sent yet."""
        return Exchange(self, post)

    def check(self, response: httpx2.Response) -> None:
        """Raise GgbenchError for a response that is a redirect, compressed, or an error."""
        if response.is_redirect:
            raise redirected(self.address, response.headers.get("Location", ""))
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise compressed(self.address)
        if response.status_code != 200:
            body = _read(response, _MAX_ERROR_BYTES, is_cut=True)
            raise status_error(self.address, response.status_code, self.without_key(body.decode(errors="replace")))

    def check_answer(self, answer: HttpResponse, what: str) -> None:
        """Raise GgbenchError where the answer is an error; `what` was asked for."""
        if answer.status != 200:
            text = self.without_key(answer.body[:_MAX_ERROR_BYTES].decode(errors="replace"))
            raise status_error(self.address, answer.status, text, what)

    def without_key(self, text: str) -> str:
        """Return a text of the server with the API key removed."""
        return text.replace(self._key, "***") if self._key else text

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the exceptions of httpx2."""
        try:
            yield
        except GgbenchError:
            raise
        except Exception as error:
            raise transport_error(self.address, error) from None

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._documents.close()
        self.streams.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _document(self, method: str, path: str, content: bytes | None) -> HttpResponse:
        trace = _Trace()
        with self._deadline(trace), self._open(method, path, content, trace) as response:
            if response.is_redirect:
                raise redirected(self.address, response.headers.get("Location", ""))
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise compressed(self.address)
            body = _read(response, MAX_DOCUMENT_BYTES)
            return HttpResponse(response.status_code, body, response.headers.get("Server", ""))

    @contextlib.contextmanager
    def _open(self, method: str, path: str, content: bytes | None, trace: _Trace) -> Iterator[httpx2.Response]:
        with (
            self.errors(),
            self._documents.stream(
                method,
                self.url(path),
                content=content,
                headers=self.headers("application/json" if content is not None else ""),
                extensions={"trace": trace},
            ) as response,
        ):
            trace.connection = trace.connection or response.extensions["network_stream"].get_extra_info("socket")
            yield response

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
                raise silent(self.address, self._document_timeout_s) from None
            raise
        finally:
            timer.cancel()


def silent(address: Address, seconds: float) -> ServerTimeout:
    """Return the error for a server that was silent for too long."""
    return ServerTimeout(
        f"no answer from {address.base_url} for {seconds:g} s", "check that the server is not busy, or allow more time"
    )


def _read(response: httpx2.Response, most: int, *, is_cut: bool = False) -> bytes:
    """Return a body of at most `most` bytes; a longer one is cut where `is_cut`, else raises ServerFailed."""
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
    """Yield the lines of a stream; the last one only where it is complete. Raises ServerFailed for an endless line."""
    clock = time.perf_counter_ns
    pending = b""
    for chunk in response.iter_raw():
        at_ns = clock()
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield StreamLine(at_ns, line.rstrip(b"\r"))
        if len(pending) > MAX_LINE_BYTES:
            raise ServerFailed(
                f"the server sent a line of more than {MAX_LINE_BYTES >> 20} MiB",
                "check that the URL is one of a model server",
            )
    if pending.strip():
        raise ServerFailed("the server closed the stream in the middle of a line", "look at the server's log")
