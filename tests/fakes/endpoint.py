"""A server of a model on this machine that says what a voice says, until a fault says otherwise.

with TestEndpoint(AnyLength("llama_server")) as endpoint:
    ... endpoint.url ...
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.fakes.endpoint_voices import Body, Recording, Said


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: Body


Fault = Callable[["Handler", Request], bool]
"""Answers a request wrongly and returns True, or leaves it to the voice and returns False."""


class TestEndpoint:
    __test__ = False

    def __init__(self, voice: Recording, fault: Fault | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.voice = voice
        self.fault = fault
        self.requests: list[Request] = []
        self.closing = threading.Event()
        """Set when it closes: whatever hangs ends."""
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.endpoint = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_port
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> TestEndpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    endpoint: TestEndpoint

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        """A client that leaves in mid-stream is what many tests are about."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError | OSError | ValueError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer("POST", json.loads(content or b"{}"))

    @property
    def endpoint(self) -> TestEndpoint:
        return self.server.endpoint

    def _answer(self, method: str, body: Body) -> None:
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = Request(method, self.path, dict(self.headers.items()), body)
        self.endpoint.requests.append(request)
        with suppress(ConnectionError):
            if self.endpoint.fault is not None and self.endpoint.fault(self, request):
                self.close_connection = True
                return
            if method == "POST" and self.endpoint.voice.is_streamed(self.path, body):
                self.stream(self.endpoint.voice.stream(self.path, body))
                return
            status, document = self.endpoint.voice.document(method, self.path, body)
            self.document(status, document)

    def document(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response_only(status)
        for name, value in (("Content-Type", "application/json"), *headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response_only(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def stream(self, said: Iterable[Said]) -> None:
        self.begin_stream()
        for each in said:
            if each.after_s and self.endpoint.closing.wait(each.after_s):
                return
            self.chunk(each.line + b"\n")
        self.wfile.write(b"0\r\n\r\n")
