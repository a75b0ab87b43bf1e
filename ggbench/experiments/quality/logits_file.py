"""A base's logits in llama-perplexity's format, so that either tool can use the other's files.

Format, from llama.cpp's tools/perplexity/perplexity.cpp: `_logits_`, then n_ctx, n_vocab and n_chunk as int32, the
tokens of all chunks as int32, and a row of 16-bit words for each scored position (`ggbench.stats.logits.pack`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ggbench.errors import BadFile, DoesNotFit, UsageError
from ggbench.record import Record
from ggbench.stats.logits import n_words
from ggbench.text import sanitize
from ggbench.units import format_bytes

_MAGIC = b"_logits_"
WRITES = "llama-perplexity --save-all-logits FILE writes one"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HEADER_BYTES = len(_MAGIC) + 3 * 4


class LogitsFile(Record):
    """The header of a file."""

    path: Path
    n_ctx: int
    n_vocab: int
    n_chunks: int
    tokens: tuple[int, ...]
    """n_chunks x n_ctx tokens of all chunks, without BOS."""

    @property
    def rows_per_chunk(self) -> int:
        """Scored positions per chunk."""
        return self.n_ctx - 1 - self.n_ctx // 2

    @property
    def first_byte(self) -> int:
        return _HEADER_BYTES + 4 * self.n_ctx * self.n_chunks

    @property
    def n_bytes(self) -> int:
        return self.first_byte + 2 * n_words(self.n_vocab) * self.rows_per_chunk * self.n_chunks


def read_logits_file(path: Path) -> LogitsFile:
    """Read the header and the tokens. Raises BadFile for another kind of file or an incomplete one, and UsageError."""
    name = sanitize(str(path))
    try:
        with path.open("rb") as stream:
            head, size = stream.read(_HEADER_BYTES), os.fstat(stream.fileno()).st_size
            if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
                raise BadFile(f"{name} is not a logits file", WRITES)
            n_ctx, n_vocab, n_chunks = map(int, np.frombuffer(head, "<i4", 3, len(_MAGIC)))
            found = LogitsFile(path, n_ctx, n_vocab, n_chunks, ())
            if min(n_ctx - 3, n_vocab, n_chunks) < 1 or found.n_bytes > size:
                what = f"n_ctx {n_ctx}, n_vocab {n_vocab} and {n_chunks} chunks in {format_bytes(size)}"
                raise BadFile(f"{name} is damaged: {what}", "save it again")
            tokens = np.frombuffer(stream.read(4 * n_ctx * n_chunks), "<i4")
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", "--base-logits needs a logits file"
        ) from None
    return LogitsFile(path, n_ctx, n_vocab, n_chunks, tuple(tokens.tolist()))


def begin_logits_file(path: Path, n_ctx: int, n_vocab: int, n_chunks: int, tokens: Sequence[int]) -> LogitsFile:
    """Write header and tokens and reserve the whole file, so that a full disk is noticed before scoring.

    Raises DoesNotFit if the disk has no room, and UsageError if the folder is not writable.
    """
    begun = LogitsFile(path, n_ctx, n_vocab, n_chunks, tuple(tokens))
    try:
        with path.open("wb") as stream:
            stream.write(_MAGIC + np.array([n_ctx, n_vocab, n_chunks, *tokens], "<i4").tobytes())
            stream.flush()
            _reserve_room(stream.fileno(), begun.n_bytes, path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        folder = sanitize(str(path.parent))
        if error.errno not in _NO_ROOM:
            raise UsageError(
                f"{folder} cannot be written: {error.strerror}", "use a file in another folder"
            ) from None
        raise DoesNotFit(
            f"{folder} has no room for {format_bytes(begun.n_bytes)} of logits: {error.strerror}",
            "use a disk with more room, or score fewer --chunks",
        ) from None
    return begun


def _reserve_room(descriptor: int, n_bytes: int, folder: Path) -> None:
    """Set the length of an open file and reserve its disk space. Raises OSError, with ENOSPC if there is too little."""
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, n_bytes)
    else:  # macOS cannot reserve space: others may still fill the disk
        if shutil.disk_usage(folder).free < n_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(descriptor, n_bytes)
