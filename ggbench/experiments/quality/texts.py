"""Texts to score: a file, or Python's manual, which is on every desktop."""

from __future__ import annotations

import hashlib
import platform
import stat
from pathlib import Path

from ggbench.errors import BadFile, UsageError
from ggbench.experiments.quality.record import TextSource
from ggbench.text import sanitize

_LARGEST_BYTES = 1 << 28
_PLAIN = "--text takes a file of plain text"


def find_text(path: Path | None) -> tuple[TextSource, str]:
    """Return the text of a file and its source; by default of the manual that comes with Python, about 460 kB of
    English prose that differs between Python versions.

    One newline at its end is removed, as llama-perplexity does. Raises UsageError for a missing or empty file, and
    BadFile for one that is not UTF-8.
    """
    if path is not None:
        return _text(_content(path), path.name, str(path.absolute()))
    from pydoc_data.topics import topics

    manual = "\n".join(topics[name] for name in sorted(topics))
    return _text(manual.encode(), "pydoc_data.topics", source=f"Python {platform.python_version()}")


def read_text(source: TextSource) -> str:
    """Return the text of a run. Raises like `find_text`, and UsageError if it has changed since."""
    found, text = find_text(Path(source.path) if source.path else None)
    if found.sha256 != source.sha256:
        raise UsageError(
            f"the text {sanitize(source.name)} has changed since the run began",
            "start a new run: results for different texts are not comparable",
        )
    return text


def _content(path: Path) -> bytes:
    name = sanitize(str(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{name} is not a file", _PLAIN)
        if status.st_size > _LARGEST_BYTES:
            raise UsageError(
                f"{name} is larger than {_LARGEST_BYTES >> 20} MiB", "use part of it; 1 MB is plenty"
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", _PLAIN) from None


def _text(content: bytes, name: str, path: str = "", source: str = "") -> tuple[TextSource, str]:
    shown = sanitize(path or name)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadFile(
            f"{shown} is not UTF-8: byte {error.start} is {content[error.start]:#04x}",
            "--text takes plain text; iconv -t utf-8 converts it",
        ) from None
    if not text.strip():
        raise UsageError(f"{shown} is empty", _PLAIN)
    sha256 = hashlib.sha256(content).hexdigest()
    return TextSource(name, sha256, len(content), path, source), text.removesuffix("\n")
