"""HTTP handler of the test Hub: the endpoints called by huggingface_hub 2.4.0, and injected faults.

As with the real Hub, LFS files are redirected to another origin, which must not receive the token, and a private
repo is a 401.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.fakes.hub_repos import (
    OF_THE_ANSWER,
    OF_THE_FILE,
    Corrupt,
    Cut,
    Gated,
    Hang,
    HubFile,
    HubRepo,
    IgnoresRanges,
    Says,
    TooMany,
    Unavailable,
    WrongLength,
    WrongRange,
)

if TYPE_CHECKING:
    from tests.fakes.hub import TestHub

_CHUNK_BYTES = 256 << 10
_BEARER = "Bearer "
MEMBER_TOKEN = "hf_test_member_of_everything"
"""The one token that opens private and gated repos; any other is a stranger's."""


@dataclass(slots=True)
class HubRequest:
    method: str
    path: str
    """Unquoted, without the query."""
    query: str
    range: str | None
    had_token: bool
    host: str
    """The Host header."""
    status: int = 0
    sent_bytes: int = 0
    """Bytes of file content; API responses are not counted."""


class HubServer(ThreadingHTTPServer):
    request_queue_size = 64

    def __init__(self, hub: TestHub, port: int) -> None:
        self.hub = hub
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer asks the resolver for this machine's full name here, which can take seconds.
        socket.socket.bind(self.socket, self.server_address[:2])
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.hub.send_buffer_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.hub.send_buffer_bytes)
        with self.hub.lock:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as typeshed has it
        with self.hub.lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self.hub.lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.hub.errors.append(error)


class _Refused(Exception):
    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stderr is the tests'."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.hub = self.server.hub
        address = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(address.query).items()}
        self.asked = HubRequest(
            self.command, unquote(address.path), address.query, self.headers.get("Range"),
            self.headers.get("Authorization", "").startswith(_BEARER), self.headers.get("Host", ""),
        )  # fmt: skip
        self.hub.requests.append(self.asked)
        try:
            if not self._answer_with_fault():
                self._route(address.path)
        except _Refused as refused:
            headers = {"X-Error-Message": refused.message}
            if refused.code:
                headers["X-Error-Code"] = refused.code
            self._send_json({"error": refused.message}, refused.status, headers)

    def _answer_with_fault(self) -> bool:
        match self.hub.take_fault(self.asked.path, OF_THE_ANSWER):
            case TooMany(retry_after_s):
                self._send_json({"error": "too many requests"}, 429, {"Retry-After": str(retry_after_s)})
            case Unavailable(status):
                self._send_json({"error": "in trouble"}, status)
            case Gated(status):
                raise _Refused(status, "GatedRepo", "Access to this model is restricted.")
            case Says(body, status, content_type, headers):
                self._send(body, status, {"Content-Type": content_type, **headers})
            case _:
                return False
        return True

    def _route(self, path: str) -> None:
        match _parts(path):
            case ["_requests"]:
                self._send_json({"sent_bytes": self.hub.sent_bytes(), "n_requests": len(self.hub.requests)})
            case ["api", "models"]:
                self._send_search()
            case ["api", "models", org, name]:
                self._send_info(self._repo(org, name), "main")
            case ["api", "models", org, name, "revision", revision]:
                self._send_info(self._repo(org, name), revision)
            case [org, name, "resolve", revision, *inside]:
                self._send_resolved(self._repo(org, name), revision, "/".join(inside))
            case ["cdn", org, name, commit, *inside]:
                repo = self.hub.repos[f"{org}/{name}"]
                file = repo.commits[commit]["/".join(inside)]
                self._send_file(file, {"ETag": f'"{file.etag}"'})
            case _:
                raise _Refused(404, None, "Sorry, we can't find the page you are looking for.")

    def _repo(self, org: str, name: str) -> HubRepo:
        repo = self.hub.repos.get(f"{org}/{name}")
        if repo is None or (repo.private and not self._is_member):
            if self._is_member:
                raise _Refused(404, "RepoNotFound", "Repository not found")
            raise _Refused(401, None, "Invalid username or password.")
        return repo

    @property
    def _is_member(self) -> bool:
        return self.headers.get("Authorization") == f"{_BEARER}{MEMBER_TOKEN}"

    def _check_gate(self, repo: HubRepo) -> None:
        if repo.gated and not self._is_member:
            status, who = (403, "you are not in the authorized list") if self.asked.had_token else (401, "log in")
            raise _Refused(status, "GatedRepo", f"Access to model {repo.name} is restricted: {who}.")

    def _commit(self, repo: HubRepo, revision: str) -> str:
        commit = repo.commit(revision)
        if commit is None:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _send_search(self) -> None:
        words = self.query.get("search", "").lower()
        limit = int(self.query.get("limit", "1000"))
        found = [
            self._summary(repo)
            for repo in self.hub.repos.values()
            if words in repo.name.lower() and not repo.private and (repo.has_gguf or self.query.get("filter") != "gguf")
        ]
        self._send_json(found[:limit])

    def _summary(self, repo: HubRepo) -> dict[str, object]:
        return {
            "_id": hashlib.sha1(repo.name.encode()).hexdigest()[:24], "id": repo.name.removeprefix("datasets/"),
            "modelId": repo.name, "downloads": 1000, "likes": 10, "private": repo.private,
            "gated": "auto" if repo.gated else False, "lastModified": "2026-01-02T03:04:05.000Z",
            "createdAt": "2025-01-02T03:04:05.000Z", "tags": ["gguf"] if repo.has_gguf else [],
        }  # fmt: skip

    def _send_info(self, repo: HubRepo, revision: str) -> None:
        commit = self._commit(repo, revision)
        siblings: list[dict[str, object]] = []
        for path, file in repo.commits[commit].items():
            sibling: dict[str, object] = {"rfilename": path}
            if self.query.get("blobs", "").lower() == "true":
                sibling |= {"size": file.n_bytes, "blobId": file.blob_id}
                if not file.in_git:
                    sibling["lfs"] = {"sha256": file.sha256, "size": file.n_bytes, "pointerSize": 134}
            siblings.append(sibling)
        self._send_json({**self._summary(repo), "sha": commit, "siblings": siblings}, headers={"X-Repo-Commit": commit})

    def _send_resolved(self, repo: HubRepo, revision: str, path: str) -> None:
        self._check_gate(repo)
        commit = self._commit(repo, revision)
        file = repo.commits[commit].get(path)
        if file is None:
            raise _Refused(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"'}
        if file.in_git:
            self._send_file(file, headers)
            return
        headers |= {
            "X-Linked-Size": str(file.n_bytes),
            "X-Linked-Etag": f'"{file.sha256}"',
            "Location": f"{self.hub.cdn_url}/cdn/{repo.name}/{commit}/{quote(path)}",
        }
        self._send(b"Found. Redirecting", 302, headers)

    def _send_file(self, file: HubFile, headers: Mapping[str, str]) -> None:
        fault = self.hub.take_fault(self.asked.path, OF_THE_FILE) if self.command == "GET" else None
        n_bytes = file.n_bytes + (fault.delta if isinstance(fault, WrongLength) else 0)
        begin, end, status = 0, n_bytes, 200
        if self.asked.range and not isinstance(fault, IgnoresRanges):
            begin, end = _parse_range(self.asked.range, n_bytes)
            if begin >= n_bytes:
                self._send(b"", 416, {"Content-Range": f"bytes */{n_bytes}"})
                return
            if isinstance(fault, WrongRange):
                begin, end = begin + fault.later_bytes, min(n_bytes, end + fault.later_bytes)
            status = 206
            headers = {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{n_bytes}"}
        headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
        self._begin(status, end - begin, headers)
        if self.command == "GET":
            broken_at = fault.at_byte if isinstance(fault, Corrupt) else None
            self._send_body(_with_broken_byte(file.read(begin, end), begin, broken_at), is_file=True)

    def _send_json(self, document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(json.dumps(document).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self._begin(status, len(body), headers)
        if self.command != "HEAD":
            self._send_body(iter([body]), is_file=False)

    def _begin(self, status: int, n_bytes: int, headers: Mapping[str, str]) -> None:
        self.asked.status = status
        self.send_response(status)
        self.send_header("Content-Length", str(n_bytes))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send_body(self, chunks: Iterator[bytes], *, is_file: bool) -> None:
        is_answer = is_file or self.asked.status == 200
        fault = self.hub.take_fault(self.asked.path, (Cut, Hang)) if is_answer else None
        left = fault.after_bytes if isinstance(fault, Cut | Hang) else None
        for chunk in chunks:
            part = chunk if left is None else chunk[:left]
            self._send_chunk(part, is_file=is_file)
            if left is not None:
                left -= len(part)
                if left <= 0:
                    break
        if fault is not None:
            if isinstance(fault, Hang):
                self.hub.closing.wait()
            self.close_connection = True

    def _send_chunk(self, chunk: bytes, *, is_file: bool) -> None:
        view = memoryview(chunk)
        most = min(_CHUNK_BYTES, int(self.hub.bytes_per_s / 50) or 1) if self.hub.bytes_per_s else _CHUNK_BYTES
        ready = select.poll()
        ready.register(self.connection, select.POLLOUT)
        while view:
            if self.hub.closing.is_set():
                raise ConnectionAbortedError
            if not ready.poll(100):
                continue
            # Counted before anyone can look, so that a client that has read all finds all counted.
            with self.hub.lock, suppress(BlockingIOError):
                n_sent = self.connection.send(view[:most], socket.MSG_DONTWAIT)
                view = view[n_sent:]
                if is_file:
                    self.asked.sent_bytes += n_sent
            if is_file and self.hub.bytes_per_s:
                time.sleep(most / self.hub.bytes_per_s)


def _parts(path: str) -> list[str]:
    """The parts of a path; a dataset is a repo of the organization `datasets/org`, so that it has a model's routes."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", "datasets", org, *rest]:
            return ["api", "models", f"datasets/{org}", *rest]
        case ["datasets", org, *rest]:
            return [f"datasets/{org}", *rest]
        case ["cdn", "datasets", org, *rest]:
            return ["cdn", f"datasets/{org}", *rest]
    return parts


def _parse_range(text: str, n_bytes: int) -> tuple[int, int]:
    first, _, last = text.removeprefix("bytes=").partition("-")
    return int(first), min(n_bytes, int(last) + 1) if last else n_bytes


def _with_broken_byte(chunks: Iterator[bytes], begin: int, at_byte: int | None) -> Iterator[bytes]:
    position = begin
    for chunk in chunks:
        if at_byte is not None and position <= at_byte < position + len(chunk):
            broken = bytearray(chunk)
            broken[at_byte - position] ^= 0xFF
            yield bytes(broken)
        else:
            yield chunk
        position += len(chunk)
