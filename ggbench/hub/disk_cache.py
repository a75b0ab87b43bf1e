"""What the Hub said, kept on disk so that the same question needs no network again.

A record ends with the sha256 of what is before it, so that a file cut short or damaged is no record, and is asked for
anew.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path

_DIGEST_BYTES = hashlib.sha256().digest_size
_LARGEST_BYTES = 256 << 20


def put(path: Path, content: bytes) -> None:
    """Write a record aside and rename it; a disk that refuses only means that it must be asked for again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as aside:
            try:
                aside.write(content + hashlib.sha256(content).digest())
                aside.close()
                Path(aside.name).replace(path)
            except BaseException:
                Path(aside.name).unlink(missing_ok=True)
                raise


def get(path: Path) -> bytes | None:
    """The record, as it was kept; None where there is none, or where it is damaged."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return None
        stored = path.read_bytes()
    except OSError:
        return None
    content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == digest else None
