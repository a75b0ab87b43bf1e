"""The streams that a command is started with: closed ones, and encodings that lack characters, as ASCII does.

Imported by every command at its start, so it imports nothing heavy.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

from ggbench.text import in_ascii

_NAME = "ggbench_ascii"
"""Of the error handler, and of an encoding that click leaves alone: for `ascii` it writes UTF-8. Source:
`_is_compat_stream_attr` and `_stream_is_misconfigured` in click/_compat.py."""


def open_closed() -> None:
    """Point each stream that is closed at the null device, so that no other file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
        if getattr(sys, name) is None:
            stream = open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def has_every_character(stream: TextIO) -> bool:
    """Return whether a stream can write any text."""
    return not stream.encoding or codecs.lookup(stream.encoding).name.startswith("utf")


def spell_missing() -> None:
    """Let stdout and stderr spell what their encoding lacks, instead of failing at it."""
    codecs.register_error(_NAME, _spelled)
    codecs.register(_find)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not has_every_character(stream):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_NAME if is_ascii else stream.encoding, errors=_NAME)


class _Encoder(codecs.IncrementalEncoder):
    def encode(self, text: str, final: bool = False) -> bytes:
        return in_ascii(text).encode()


def _find(name: str) -> codecs.CodecInfo | None:
    if name != _NAME:
        return None
    ascii_codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_codec.encode,
        ascii_codec.decode,
        incrementalencoder=_Encoder,
        incrementaldecoder=ascii_codec.incrementaldecoder,
        name=_NAME,
    )


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end
