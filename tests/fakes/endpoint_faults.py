"""Ways of a server to go wrong, each a `Fault` of tests.fakes.endpoint.

`STREAM_FAULTS` break a generation, after `AFTER` tokens where that is possible; `ANY_FAULTS` break every request.
"""

import gzip
import json
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import islice

from tests.fakes.endpoint import Fault, Handler, Request
from tests.fakes.endpoint_voices import Said

AFTER = 5
"""Tokens before a stream breaks."""
SECRET = "sk-secret-of-the-tests"


def _lines(handler: Handler, request: Request) -> Iterator[Said]:
    return handler.endpoint.voice.stream(request.path, request.body)


def _begin(handler: Handler, request: Request) -> Iterator[Said]:
    lines = _lines(handler, request)
    handler.begin_stream()
    for said in islice(lines, 2 * AFTER):
        handler.chunk(said.line + b"\n")
    return lines


def dies(handler: Handler, request: Request) -> None:
    _begin(handler, request)


def resets(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def hangs(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.endpoint.closing.wait()


def hangs_at_once(handler: Handler, request: Request) -> None:
    handler.endpoint.closing.wait()


def pings(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    while not handler.endpoint.closing.wait(0.02):
        handler.chunk(b": ping\n\n")


def drips(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.chunk(b"data: ")
    while not handler.endpoint.closing.wait(0.02):
        handler.chunk(b" ")


def drips_its_head(handler: Handler, request: Request) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.endpoint.closing.wait(0.02):
        handler.wfile.write(b"a")


def half_a_line(handler: Handler, request: Request) -> None:
    rest = _begin(handler, request)
    handler.chunk(next(rest, Said(0.0, b"data: {")).line[:20])
    handler.wfile.write(b"0\r\n\r\n")


def ends_early(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.wfile.write(b"0\r\n\r\n")


def endless_line(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.chunk(b"data: ")
    while not handler.endpoint.closing.is_set():
        handler.chunk(b"a" * 65536)


def wrong_json(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.chunk(b'data: {"content": \n\n')
    handler.wfile.write(b"0\r\n\r\n")


def wrong_types(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.chunk(b'data: {"content": 7, "tokens_predicted": "six", "choices": {}, "stop": "no"}\n\n')
    handler.wfile.write(b"0\r\n\r\n")


def deep_json(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.chunk(b'data: {"error": ' + b"[" * 200_000 + b"\n\n")
    handler.wfile.write(b"0\r\n\r\n")


def not_utf8(handler: Handler, request: Request) -> None:
    _begin(handler, request)
    handler.chunk(b'data: {"content": "\xff\xfe"}\n\n')
    handler.wfile.write(b"0\r\n\r\n")


def not_a_stream(handler: Handler, request: Request) -> None:
    handler.document(200, b"<html><body>Welcome to nginx!</body></html>\n", (("Content-Type", "text/html"),))


def reports_an_error(handler: Handler, request: Request) -> None:
    """Report an error in mid-stream, with a terminal escape and the key in it."""
    _begin(handler, request)
    error = {"error": {"message": f"out of memory \x1b[2J{SECRET}\r\nsecond line", "code": 500}}
    handler.chunk(b"data: " + json.dumps(error).encode() + b"\n\n")


def refuses(handler: Handler, request: Request) -> None:
    """Refuse the request with a message that has a terminal escape and the key in it."""
    error = {"error": {"message": f"no\x1b]0;owned\x07 such model {SECRET}", "code": 400}}
    handler.document(400, json.dumps(error).encode())


def never_stops(handler: Handler, request: Request) -> None:
    handler.begin_stream()
    while not handler.endpoint.closing.is_set():
        for said in islice(_lines(handler, request), 2):
            handler.chunk(_numbered(said.line, handler) + b"\n")


def _numbered(line: bytes, handler: Handler) -> bytes:
    if b"tokens_predicted" not in line:
        return line
    document = json.loads(line[5:])
    handler.n_said = getattr(handler, "n_said", 0) + 1  # type: ignore[attr-defined]
    document["tokens_predicted"] = handler.n_said  # type: ignore[attr-defined]
    return b"data: " + json.dumps(document).encode()


def _changed(change: Callable[[dict[str, object]], None]) -> Callable[[Handler, Request], None]:
    def fault(handler: Handler, request: Request) -> None:
        def lines() -> Iterator[Said]:
            for said in _lines(handler, request):
                prefix = b"data: " if said.line.startswith(b"data: ") else b""
                text = said.line.removeprefix(prefix)
                if text.startswith(b"{"):
                    document = json.loads(text)
                    change(document)
                    yield Said(0.0, prefix + json.dumps(document).encode())
                else:
                    yield said

        handler.stream(lines())

    return fault


def _timings(**values: object) -> Callable[[dict[str, object]], None]:
    def change(document: dict[str, object]) -> None:
        timings = document.get("timings")
        if isinstance(timings, dict):
            timings.update(values)

    return change


def fewer_tokens(handler: Handler, request: Request) -> None:
    asked = {name: AFTER for name in ("n_predict", "max_tokens") if name in request.body}
    handler.stream(handler.endpoint.voice.stream(request.path, {**request.body, **asked}))


def more_tokens(handler: Handler, request: Request) -> None:
    asked = {name: request.body[name] + 3 for name in ("n_predict", "max_tokens") if name in request.body}
    handler.stream(handler.endpoint.voice.stream(request.path, {**request.body, **asked}))


def unauthorized(handler: Handler, request: Request) -> None:
    handler.document(401, b'{"error":{"message":"Invalid API Key"}}')


def not_found(handler: Handler, request: Request) -> None:
    handler.document(404, b"not here")


def loading(handler: Handler, request: Request) -> None:
    handler.document(503, b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}')


def redirects(handler: Handler, request: Request) -> None:
    handler.document(307, b"", (("Location", "https://user:pw@evil.example/v1\x1b[2J?key=1"),))


def gzip_bomb(handler: Handler, request: Request) -> None:
    body = gzip.compress(b" " * (64 << 20)) * 16
    handler.document(200, body, (("Content-Encoding", "gzip"),))


def huge_document(handler: Handler, request: Request) -> None:
    handler.begin_stream()
    while not handler.endpoint.closing.is_set():
        handler.chunk(b" " * 65536)


def huge_header(handler: Handler, request: Request) -> None:
    handler.document(200, b"{}", (("X-Long", "a" * (1 << 20)),))


def not_http(handler: Handler, request: Request) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")


ANY_FAULTS: dict[str, Callable[[Handler, Request], None]] = {
    each.__name__: each
    for each in (unauthorized, not_found, loading, redirects, gzip_bomb, huge_document, huge_header, not_http,
                 not_a_stream, hangs_at_once, drips_its_head)
}  # fmt: skip

STREAM_FAULTS: dict[str, Callable[[Handler, Request], None]] = {
    **ANY_FAULTS,
    **{
        each.__name__: each
        for each in (dies, resets, hangs, pings, drips, half_a_line, ends_early, endless_line, wrong_json, wrong_types,
                     deep_json, not_utf8, reports_an_error, refuses, never_stops)
    },
}  # fmt: skip

CLOCK_FAULTS: dict[str, Callable[[Handler, Request], None]] = {
    "nan_timings": _changed(_timings(predicted_ms=float("nan"))),
    "infinite_timings": _changed(_timings(predicted_ms=1e300, prompt_ms=1e300)),
    "negative_timings": _changed(_timings(predicted_ms=-1.0, prompt_ms=-5.0)),
    "stopped_timings": _changed(_timings(predicted_ms=None)),
}


def everywhere(fault: Callable[[Handler, Request], None]) -> Fault:
    def apply(handler: Handler, request: Request) -> bool:
        fault(handler, request)
        return True

    return apply


def of_streams(fault: Callable[[Handler, Request], None]) -> Fault:
    def apply(handler: Handler, request: Request) -> bool:
        if not handler.endpoint.voice.is_streamed(request.path, request.body):
            return False
        fault(handler, request)
        return True

    return apply
