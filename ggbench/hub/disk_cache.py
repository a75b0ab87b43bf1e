"""Cache on disk, one file per entry, which ends with the SHA-256 of its content; a damaged entry counts as missing."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from ggbench.files import replace_file

_DIGEST_BYTES = hashlib.sha256().digest_size
_LARGEST_BYTES = 256 << 20


def put(path: Path, content: bytes) -> None:
    """Write an entry atomically; write errors are ignored, since the entry can be fetched again."""
    with suppress(OSError):
        replace_file(path, content + hashlib.sha256(content).digest())


def get(path: Path) -> bytes | None:
    """Return the entry; None where it is missing or damaged."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return None
        stored = path.read_bytes()
    except OSError:
        return None
    content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == digest else None
