"""Texts to score: a file, one that every desktop has, or the one that published figures are of."""

from __future__ import annotations

import hashlib
import platform
import stat
from pathlib import Path

from ggbench.errors import BadFile, UsageError
from ggbench.experiments.quality.record import TextSource
from ggbench.hub.access import HubAccess
from ggbench.models.wikitext import REPO, WIKITEXT_2, fetch_archive, read_text_bytes
from ggbench.text import plain

TOPICS = "pydoc_data.topics"
"""The reference manual that comes with Python: some 460 kB of English prose, which differ by Python version."""

_LARGEST_BYTES = 1 << 28


def find_text(asked: str | Path | None, access: HubAccess | None = None) -> tuple[TextSource, str]:
    """Return a text and where it comes from: `wikitext-2`, a file, or without either the one that comes with Python.

    A Path is always a file. The text is without one newline at its end, as llama-perplexity reads a file. `wikitext-2`
    is downloaded where it is not on this disk, unless `access` is offline or None.

    Raises UsageError for a file that is not there or empty, BadFile for one that is not UTF-8, and as `fetch_archive`.
    """
    if asked is None:
        return _text(_topics().encode(), TOPICS, source=f"Python {platform.python_version()}")
    if asked == WIKITEXT_2:
        archive = fetch_archive(access or HubAccess.from_environment(offline=True))
        return _text(read_text_bytes(archive), WIKITEXT_2, source=REPO)
    path = Path(asked)
    return _text(_content(path), path.name, str(path.absolute()))


def read_text(source: TextSource) -> str:
    """Return the text of a run. Raises as `find_text`, and UsageError where it has changed meanwhile."""
    found, text = find_text(Path(source.path) if source.path else text_argument(source))
    if found.sha256 != source.sha256:
        raise UsageError(
            f"{plain(source.name)} has changed", "start a new run; figures of different texts do not compare"
        )
    return text


def text_argument(source: TextSource) -> str | None:
    """Return what `--text` is for this text; None where it is left out."""
    return source.path or (None if source.name == TOPICS else source.name)


def _content(path: Path) -> bytes:
    name = plain(str(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{name} is not a file", f"--text takes a file of plain text, or {WIKITEXT_2}")
        if status.st_size > _LARGEST_BYTES:
            raise UsageError(f"{name} is larger than {_LARGEST_BYTES >> 20} MiB", "give a part of it; 1 MB is plenty")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", f"--text takes a file of plain text, or {WIKITEXT_2}"
        ) from None


def _text(content: bytes, name: str, path: str = "", source: str = "") -> tuple[TextSource, str]:
    shown = plain(path or name)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadFile(
            f"{shown} is not UTF-8: byte {error.start} is {content[error.start]:#04x}",
            "--text takes plain text; iconv -t utf-8 converts it",
        ) from None
    if not text.strip():
        raise UsageError(f"{shown} is empty", "--text takes a file of plain text")
    sha256 = hashlib.sha256(content).hexdigest()
    return TextSource(name, sha256, len(content), path, source), text.removesuffix("\n")


def _topics() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
