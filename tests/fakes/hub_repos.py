"""Repos of the test Hub: their commits, files with the hashes of git and LFS, and faults of their downloads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_CHUNK_BYTES = 256 << 10


@dataclass
class HubFile:
    path: str
    content: Path | bytes
    in_git: bool
    """Whether git keeps it, so that it has no sha256."""
    stated_sha256: str | None = None

    @cached_property
    def n_bytes(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @cached_property
    def sha256(self) -> str:
        return self.stated_sha256 or self._hash(hashlib.sha256())

    @cached_property
    def blob_id(self) -> str:
        """Git's object id: of the content, or of the pointer file of an LFS file."""
        if self.in_git:
            return self._hash(hashlib.sha1(f"blob {self.n_bytes}\0".encode()))
        return hashlib.sha1(f"pointer to {self.sha256}".encode()).hexdigest()

    @property
    def etag(self) -> str:
        return self.blob_id if self.in_git else self.sha256

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `begin` up to `end`; zeros after the end of the file."""
        stop = min(end, self.n_bytes)
        if isinstance(self.content, bytes):
            yield self.content[begin:stop]
        else:
            with self.content.open("rb") as source:
                source.seek(begin)
                position = begin
                while position < stop and (chunk := source.read(min(_CHUNK_BYTES, stop - position))):
                    position += len(chunk)
                    yield chunk
        if end > stop:
            yield bytes(end - max(begin, stop))

    def _hash(self, digest: hashlib._Hash) -> str:
        for chunk in self.read(0, self.n_bytes):
            digest.update(chunk)
        return digest.hexdigest()


@dataclass
class HubRepo:
    name: str
    gated: bool
    private: bool
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)

    def commit(self, revision: str) -> str | None:
        return self.revisions.get(revision) or (revision if revision in self.commits else None)

    @property
    def has_gguf(self) -> bool:
        return any(path.lower().endswith(".gguf") for files in self.commits.values() for path in files)


@dataclass(frozen=True, slots=True)
class Cut:
    after_bytes: int


@dataclass(frozen=True, slots=True)
class Hang:
    """The body stops after that many bytes, and nothing follows until the Hub is closed."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Corrupt:
    at_byte: int


@dataclass(frozen=True, slots=True)
class WrongLength:
    delta: int


@dataclass(frozen=True, slots=True)
class IgnoresRanges:
    """Return the whole file with a 200, whatever range was requested."""


@dataclass(frozen=True, slots=True)
class WrongRange:
    """Return another range than requested: it begins that many bytes later."""

    later_bytes: int = 1


@dataclass(frozen=True, slots=True)
class TooMany:
    retry_after_s: int = 0


@dataclass(frozen=True, slots=True)
class Unavailable:
    status: int = 503


@dataclass(frozen=True, slots=True)
class Gated:
    status: int = 403


@dataclass(frozen=True, slots=True)
class Says:
    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Fault = Cut | Hang | Corrupt | WrongLength | IgnoresRanges | WrongRange | TooMany | Unavailable | Gated | Says
OF_THE_ANSWER = (TooMany, Unavailable, Gated, Says)
OF_THE_FILE = (Corrupt, WrongLength, IgnoresRanges, WrongRange)
