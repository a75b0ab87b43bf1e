"""Texts to score: a file, or one that every desktop has."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ggbench.errors import BadFile, UsageError
from ggbench.plain import plain
from ggbench.records.quality import TextSource

TOPICS = "pydoc_data.topics"
"""The reference manual that comes with Python: some 460 kB of English prose, which differ by Python version."""

_LARGEST_BYTES = 1 << 28


def find_text(path: Path | None) -> tuple[TextSource, str]:
    """Return a text and where it comes from; without a path, the one that comes with Python.

    Raises UsageError for a file that is not there or empty, and BadFile for one that is not UTF-8.
    """
    if path is None:
        text = _topics()
        return _source(TOPICS, text.encode()), text
    name = plain(str(path))
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise UsageError(f"{name} is larger than {_LARGEST_BYTES >> 20} MiB", "give a part of it; 1 MB is plenty")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", "--text takes a file of plain text") from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadFile(
            f"{name} is not UTF-8: byte {error.start} is {content[error.start]:#04x}",
            "--text takes plain text; iconv -t utf-8 converts it",
        ) from None
    if not text.strip():
        raise UsageError(f"{name} is empty", "--text takes a file of plain text")
    return _source(path.name, content, str(path.absolute())), text


def read_text(source: TextSource) -> str:
    """Return the text of a run. Raises as `find_text`, and UsageError where it has changed meanwhile."""
    found, text = find_text(Path(source.path) if source.path else None)
    if found.sha256 != source.sha256:
        raise UsageError(
            f"{plain(source.name)} has changed", "start a new run; figures of different texts do not compare"
        )
    return text


def _source(name: str, content: bytes, path: str = "") -> TextSource:
    return TextSource(name, hashlib.sha256(content).hexdigest(), len(content), path)


def _topics() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
