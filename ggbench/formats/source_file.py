"""A file to import: its bytes within a limit, its hash, and its text; or a refusal that says why."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from ggbench.errors import BadFile
from ggbench.text import plain
from ggbench.units import format_bytes

MOST_BYTES = 64 << 20
"""Of a file of results: a row of llama-bench takes a thousand bytes. A bundle is read member by member, with the same
limit for each."""
STDIN = Path("-")


class SourceFile(msgspec.Struct, frozen=True):
    """What was read of a file."""

    name: str
    """Without its folder. Printable."""
    content: bytes
    sha256: str
    path: Path | None = None
    """None of standard input."""

    @property
    def text(self) -> str:
        """The content as text; bytes that are no UTF-8, as a file name may put there, become U+FFFD."""
        return self.content.decode("utf-8-sig", "replace")


def read_source(path: Path) -> SourceFile:
    """Read a file, or standard input for `-`. Raises BadFile for a folder, and for a file that is missing, too large
    or empty.
    """
    if path == STDIN:
        return _source("standard input", sys.stdin.buffer, None)
    name = plain(path.name)
    try:
        if path.is_dir():
            raise BadFile(f"{plain(str(path))} is a folder", "give the files in it")
        if not path.exists():
            raise BadFile(f"there is no file {plain(str(path))}", "look at the spelling")
        if not path.is_file():
            raise BadFile(f"{plain(str(path))} is not a regular file", "copy its content into a file")
        if path.stat().st_size > MOST_BYTES:
            raise _too_large(name, path.stat().st_size)
        with path.open("rb") as file:
            return _source(name, file, path)
    except OSError as error:
        raise BadFile(f"cannot read {plain(str(path))}: {error.strerror}", "look at its permissions") from error


def _source(name: str, file: BinaryIO, path: Path | None) -> SourceFile:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise _too_large(name, None)
    if not content.strip():
        raise BadFile(f"{name} is empty", "give a file with results; did the tool write them to stderr?")
    return SourceFile(name, content, hashlib.sha256(content).hexdigest(), path)


def _too_large(name: str, n_bytes: int | None) -> BadFile:
    size = f"more than {format_bytes(MOST_BYTES)}" if n_bytes is None else format_bytes(n_bytes)
    return BadFile(
        f"{name} has {size}; results take at most {format_bytes(MOST_BYTES)}", "divide it, or check what it is"
    )
