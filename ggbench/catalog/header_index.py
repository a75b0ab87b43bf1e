"""What the headers of local files said, kept by path, size and mtime, so that a list of hundreds opens none of them.

Only what stands before the vocabulary is read: that makes a header megabytes long, and a list needs none of it.
The index is a cache: where it is missing, damaged, of another version or cannot be written, the files are read again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import quant_by_ftype
from ggbench.plain import plain, shorten

if TYPE_CHECKING:
    from ggbench.gguf_file.header_bytes import Source

_VERSION = 1
_MAX_INDEX_BYTES = 64 << 20
_MAX_ENTRIES = 20_000
"""Files that the index holds at most."""
_READ_BYTES = 16 << 10
"""What stands before a vocabulary takes a few kilobytes."""
_NAME_WIDTH = 120
_LARGEST = 1 << 31


class HeaderFacts(msgspec.Struct, frozen=True):
    """What a list tells of a model from the beginning of its header; text is printable."""

    architecture: str | None
    n_ctx_train: int | None
    quant: str | None
    """In lower case; None where the file's type stands behind the vocabulary, as llama-quantize writes it."""
    is_twin: bool
    twin_source: str | None
    """What a twin was made from, `catalog:qwen1.5-7b`."""


UNKNOWN_FACTS = HeaderFacts(None, None, None, False, None)
"""Of a file that cannot be read."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    size: int
    mtime_ns: int
    facts: HeaderFacts


class _Index(msgspec.Struct, frozen=True):
    version: int
    files: dict[str, _Entry]


class _Version(msgspec.Struct, frozen=True):
    version: int


class HeaderIndex:
    """The index of one file on the disk; not for several threads at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _load(file)
        self._seen: dict[str, _Entry] = {}
        self._changed = False

    def facts(self, path: Path, status: os.stat_result) -> HeaderFacts:
        """What the header of this file says; `status` is its own, links followed.

        Raises BadFile for a header that is broken or cannot be read, which is not kept.
        """
        key = str(path)
        entry = self._known.get(key)
        if entry is None or entry.size != status.st_size or entry.mtime_ns != status.st_mtime_ns:
            entry = _Entry(status.st_size, status.st_mtime_ns, read_facts(path))
            self._changed = True
        self._seen[key] = entry
        return entry.facts

    def save(self) -> None:
        """Write what is new; of the files not asked for, those that are still there stay. Never raises OSError."""
        if not self._changed:
            return
        kept = {key: entry for key, entry in self._seen.items() if _is_text(key)}
        for key, entry in self._known.items():
            if len(kept) < _MAX_ENTRIES and key not in kept and os.path.lexists(key):
                kept[key] = entry
        with contextlib.suppress(OSError):
            _write(self._file, msgspec.json.encode(_Index(_VERSION, kept)))
            self._changed = False


def read_facts(path: Path) -> HeaderFacts:
    """What stands at the beginning of this file's header, whatever any index says. Raises BadFile."""
    from ggbench.gguf_file.parser import read_leading_metadata

    name = plain(path.name)
    try:
        with open(path, "rb", buffering=0, opener=_open_nonblocking) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadFile(f"{name} is not an ordinary file", "name a .gguf file")
            metadata = read_leading_metadata(_BoundedReads(file), status.st_size, name)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadFile(f"{name} cannot be read: {reason}", "check its permissions") from error
    return _facts(metadata)


def _open_nonblocking(path: str, flags: int) -> int:
    """A file descriptor; a FIFO under a model's name would else wait for a writer for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _BoundedReads:
    """A source that gives no more at once than the beginning of a header needs."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def seek(self, offset: int, /) -> int:
        return self._source.seek(offset)

    def read(self, n_bytes: int, /) -> bytes:
        return self._source.read(min(n_bytes, _READ_BYTES))


def _facts(metadata: Mapping[str, object]) -> HeaderFacts:
    architecture = _text(metadata, "general.architecture")
    n_ctx_train = metadata.get(f"{architecture}.context_length")
    file_type = metadata.get("general.file_type")
    return HeaderFacts(
        architecture,
        n_ctx_train if isinstance(n_ctx_train, int) and 0 < n_ctx_train < _LARGEST else None,
        quant_by_ftype(file_type) if isinstance(file_type, int) else None,
        bool(metadata.get("ggbench.twin")),
        _text(metadata, "ggbench.twin.source"),
    )


def _text(metadata: Mapping[str, object], key: str) -> str | None:
    value = metadata.get(key)
    return shorten(value, _NAME_WIDTH) or None if isinstance(value, str) else None


def _load(file: Path) -> dict[str, _Entry]:
    try:
        with file.open("rb") as source:
            raw = source.read(_MAX_INDEX_BYTES)
        if msgspec.json.decode(raw, type=_Version).version != _VERSION:
            return {}
        return msgspec.json.decode(raw, type=_Index).files
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}


def _write(file: Path, raw: bytes) -> None:
    """Aside and renamed, so that no reader sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=file.name, dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
        Path(aside).replace(file)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _is_text(key: str) -> bool:
    """Whether JSON can hold the path: bytes that are no UTF-8 are lone surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
