"""A local Hub for huggingface_hub's own client, with injected faults.

In a process of its own: `python -m tests.fakes.hub --root DIR` prints its address.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import os
import ssl
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from unittest import mock

from tests.fakes.hub_repos import (
    Corrupt,
    Cut,
    Fault,
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
from tests.fakes.hub_server import MEMBER_TOKEN, HubRequest, HubServer

__all__ = [
    "MEMBER_TOKEN", "Corrupt", "Cut", "Fault", "Gated", "Hang", "HubFile", "HubRequest", "IgnoresRanges", "Says",
    "TestHub", "TooMany", "Unavailable", "WrongLength", "WrongRange", "served",
]  # fmt: skip

_LFS_BYTES = 10 << 20


@contextmanager
def served() -> Iterator[TestHub]:
    """Serve a Hub that HF_ENDPOINT names; huggingface_hub's own client talks to it, without encryption.

    So the client needs none of the system's certificates, which take longer to read than most tests.
    """
    import httpcore2
    from huggingface_hub import close_session

    close_session()
    with (
        mock.patch.object(httpcore2, "default_ssl_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
        TestHub() as hub,
        mock.patch.dict(os.environ, HF_ENDPOINT=hub.url),
    ):
        try:
            yield hub
        finally:
            close_session()


@dataclass(slots=True)
class _Cue:
    path_glob: str
    fault: Fault
    times_left: int | None


class TestHub:
    __test__ = False

    def __init__(
        self, port: int = 0, *, send_buffer_bytes: int | None = None, bytes_per_s: float | None = None
    ) -> None:
        self.requests: list[HubRequest] = []
        self.errors: list[BaseException] = []
        """Exceptions inside the Hub itself."""
        self.send_buffer_bytes = send_buffer_bytes
        """A small buffer keeps `sent_bytes` close to the received bytes."""
        self.bytes_per_s = bytes_per_s
        """Bandwidth limit of file content per connection; None for unlimited."""
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.repos: dict[str, HubRepo] = {}
        self._cues: list[_Cue] = []
        self._servers = [HubServer(self, port), HubServer(self, 0)]
        self.url = f"http://127.0.0.1:{self._servers[0].server_port}"
        """Value for HF_ENDPOINT."""
        self.cdn_url = f"http://localhost:{self._servers[1].server_port}"
        """Origin of LFS files: another host name and port."""
        self._threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in self._servers]
        for thread in self._threads:
            thread.start()

    def add_repo(
        self,
        name: str,
        files: Mapping[str, Path | bytes],
        *,
        gated: bool = False,
        private: bool = False,
        revision: str = "main",
        in_git: Collection[str] = (),
        sha256: Mapping[str, str] | None = None,
    ) -> str:
        """Add a repo, `org/name` or `datasets/org/name`, or a revision of one and return the commit.

        GGUF files and large ones are stored in LFS, except those in `in_git`. `sha256` states what a file's
        hash is, true or not: a large file that nobody will download need not be hashed.
        """
        stated = sha256 or {}
        held = {
            path: HubFile(path, content, path in in_git or not _is_large(path, content), stated.get(path))
            for path, content in files.items()
        }
        commit = hashlib.sha1(repr([(path, file.blob_id) for path, file in held.items()]).encode()).hexdigest()
        with self.lock:
            repo = self.repos.setdefault(name, HubRepo(name, gated, private))
            repo.gated, repo.private = gated, private
            repo.revisions[revision] = commit
            repo.commits[commit] = held
        return commit

    def fail(self, path_glob: str, fault: Fault, times: int | None = 1) -> None:
        """Apply a fault to the first `times` requests with a matching path, None for all; faults apply in order.

        A path is `/api/models/ORG/NAME/...`, `/ORG/NAME/resolve/COMMIT/PATH` or, after the redirect,
        `/cdn/ORG/NAME/COMMIT/PATH`. Faults of a body wait for a request that has one.
        """
        with self.lock:
            self._cues.append(_Cue(path_glob, fault, times))

    def heal(self) -> None:
        with self.lock:
            self._cues.clear()

    def sent_bytes(self, path_glob: str = "*") -> int:
        with self.lock:
            return sum(each.sent_bytes for each in self.requests if fnmatch.fnmatchcase(each.path, path_glob))

    def forget_requests(self) -> None:
        self.requests.clear()

    def take_fault(self, path: str, kinds: tuple[type, ...]) -> Fault | None:
        with self.lock:
            for cue in self._cues:
                if isinstance(cue.fault, kinds) and fnmatch.fnmatchcase(path, cue.path_glob):
                    if cue.times_left is not None:
                        cue.times_left -= 1
                        if cue.times_left <= 0:
                            self._cues.remove(cue)
                    return cue.fault
        return None

    def close(self) -> None:
        """Close every connection, hung ones included, and stop listening."""
        if self.closing.is_set():
            return
        self.closing.set()
        for server in self._servers:
            server.shutdown()
            server.hang_up()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> TestHub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_large(path: str, content: Path | bytes) -> bool:
    n_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size
    return path.lower().endswith((".gguf", ".safetensors", ".bin", ".zip")) or n_bytes > _LFS_BYTES


def main() -> None:
    """Serve `DIR/org/name/...` until stdin ends or the process is stopped."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--send-buffer-bytes", type=int)
    parser.add_argument("--bytes-per-s", type=float)
    options = parser.parse_args()
    with TestHub(options.port, send_buffer_bytes=options.send_buffer_bytes, bytes_per_s=options.bytes_per_s) as hub:
        for repo in sorted(options.root.glob("*/*")):
            files = {path.relative_to(repo).as_posix(): path for path in sorted(repo.rglob("*")) if path.is_file()}
            hub.add_repo(repo.relative_to(options.root).as_posix(), files)
        os.write(1, f"{hub.url}\n".encode())
        with suppress(KeyboardInterrupt):
            while sys.stdin.readline():
                pass


if __name__ == "__main__":
    main()
