"""Cache of header facts of local files by path, size and mtime, so that listing hundreds of models opens none of them.

Only the metadata before the vocabulary is read: the vocabulary makes a header megabytes long and a listing needs none
of it. Where the cache is missing, damaged, of another version or read-only, the files are read again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ggbench.errors import BadFile
from ggbench.files import replace_file
from ggbench.gguf_file.quants import quant_by_ftype
from ggbench.text import plain, shorten

_VERSION = 1
_MAX_INDEX_BYTES = 64 << 20
_MAX_ENTRIES = 20_000
"""Most files in the index."""
_NAME_WIDTH = 120
_LARGEST = 1 << 31


class HeaderFacts(msgspec.Struct, frozen=True):
    """Facts from the beginning of a header that a listing shows; text is printable."""

    architecture: str | None
    n_ctx_train: int | None
    quant: str | None
    """Lower case; None where the file type follows the vocabulary, as llama-quantize writes it."""
    is_twin: bool
    twin_source: str | None
    """What a twin was made from, e.g. `catalog:qwen1.5-7b`."""


UNKNOWN_FACTS = HeaderFacts(None, None, None, False, None)
"""Facts of a file that cannot be read."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    size: int
    mtime_ns: int
    facts: HeaderFacts


class _Index(msgspec.Struct, frozen=True):
    version: int
    files: dict[str, _Entry]


class HeaderIndex:
    """The index stored in one file; not thread-safe."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _load(file)
        self._seen: dict[str, _Entry] = {}
        self._changed = False

    def facts(self, path: Path, status: os.stat_result) -> HeaderFacts:
        """Return the facts of a file with this stat result. Raises BadFile for a broken one, which is not cached."""
        key = str(path)
        entry = self._known.get(key)
        if entry is None or entry.size != status.st_size or entry.mtime_ns != status.st_mtime_ns:
            entry = _Entry(status.st_size, status.st_mtime_ns, read_facts(path))
            self._changed = True
        self._seen[key] = entry
        return entry.facts

    def save(self) -> None:
        """Write changes; entries of files not queried stay while the files exist. Never raises OSError."""
        if not self._changed:
            return
        # A name that is not UTF-8 cannot be stored in JSON; such a file is read each time.
        kept = {key: entry for key, entry in self._seen.items() if key.isprintable()}
        for key, entry in self._known.items():
            if len(kept) < _MAX_ENTRIES and key not in kept and os.path.lexists(key):
                kept[key] = entry
        with contextlib.suppress(OSError):
            replace_file(self._file, msgspec.json.encode(_Index(_VERSION, kept)))
            self._changed = False


def read_facts(path: Path) -> HeaderFacts:
    """Read the facts from the file itself, bypassing the index. Raises BadFile."""
    from ggbench.gguf_file.parser import read_leading_metadata

    name = plain(path.name)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadFile(f"{name} is not a regular file", "give a .gguf file")
        with path.open("rb", buffering=0) as file:
            return _facts(read_leading_metadata(file, status.st_size, name))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadFile(f"{name} cannot be read: {reason}", "check its permissions") from error


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
        index = msgspec.json.decode(raw, type=_Index)
        return index.files if index.version == _VERSION else {}
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}
