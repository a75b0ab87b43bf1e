"""Texts to score: a file, Python's manual (on every desktop), or WikiText-2, which published tables use.

WikiText-2's test text comes from the archive that llama.cpp's scripts/get-wikitext-2.sh downloads. The archive is in
Hugging Face's cache, and the text is read from it into memory. The archive is untrusted: its sizes and contents are
checked.
"""

from __future__ import annotations

import hashlib
import platform
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from ggbench.errors import BadFile, NetworkError, UsageError
from ggbench.experiments.quality.record import TextSource
from ggbench.hub.access import HubAccess
from ggbench.hub.download import FileProgress, download
from ggbench.hub.listing import find_file
from ggbench.hub.repo_records import cached_file
from ggbench.text import sanitize
from ggbench.units import format_bytes

TOPICS = "pydoc_data.topics"
"""The reference manual that comes with Python: about 460 kB of English prose that differs between Python versions."""

_LARGEST_BYTES = 1 << 28


def find_text(asked: str | Path | None, access: HubAccess | None = None) -> tuple[TextSource, str]:
    """Return a text and its source: `wikitext-2`, a file, or by default the manual that comes with Python.

    A Path is always a file. One newline at its end is removed, as llama-perplexity does. `wikitext-2` is downloaded
    unless it is on this disk, or `access` is offline or None. Raises UsageError for a missing or empty file, BadFile
    for one that is not UTF-8, and like `fetch_archive`.
    """
    if asked is None:
        from pydoc_data.topics import topics

        manual = "\n".join(topics[name] for name in sorted(topics))
        return _text(manual.encode(), TOPICS, source=f"Python {platform.python_version()}")
    if asked == WIKITEXT_2:
        archive = fetch_archive(access or HubAccess.from_environment(offline=True))
        return _text(read_text_bytes(archive), WIKITEXT_2, source=REPO)
    path = Path(asked)
    return _text(_content(path), path.name, str(path.absolute()))


def read_text(source: TextSource) -> str:
    """Return the text of a run. Raises like `find_text`, and UsageError if it has changed since."""
    found, text = find_text(Path(source.path) if source.path else text_argument(source))
    if found.sha256 != source.sha256:
        raise UsageError(
            f"the text {sanitize(source.name)} has changed since the run began",
            "start a new run: results for different texts are not comparable",
        )
    return text


def text_argument(source: TextSource) -> str | None:
    """Return the value of `--text` for this text; None for the default."""
    return source.path or (None if source.name == TOPICS else source.name)


def _content(path: Path) -> bytes:
    name = sanitize(str(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{name} is not a file", f"--text takes a file of plain text, or {WIKITEXT_2}")
        if status.st_size > _LARGEST_BYTES:
            raise UsageError(
                f"{name} is larger than {_LARGEST_BYTES >> 20} MiB", "use part of it; 1 MB is plenty"
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", f"--text takes a file of plain text, or {WIKITEXT_2}"
        ) from None


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
        raise UsageError(f"{shown} is empty", "--text takes a file of plain text")
    sha256 = hashlib.sha256(content).hexdigest()
    return TextSource(name, sha256, len(content), path, source), text.removesuffix("\n")


WIKITEXT_2 = "wikitext-2"
REPO = "datasets/ggml-org/ci"
ARCHIVE = "wikitext-2-raw-v1.zip"
MEMBER = "wikitext-2-raw/wiki.test.raw"
SHA256 = "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"
"""Hash of the text used by published tables, 1,290,590 bytes."""

_LARGEST_MEMBER_BYTES = 1 << 26
_OTHER_TEXT = "score another text with --text FILE"


def find_archive(access: HubAccess) -> Path | None:
    """Return the archive if it is on this disk, else None."""
    return cached_file(access, REPO, ARCHIVE)


def fetch_archive(
    access: HubAccess,
    *,
    on_progress: Callable[[tuple[FileProgress, ...]], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Path:
    """Return the archive, downloaded and verified unless it is on this disk. Raises like `hub.download.download`."""
    found = find_archive(access)
    if found is not None:
        return found
    if access.offline:
        raise NetworkError(
            f"{WIKITEXT_2} is not on this disk, and --offline or HF_HUB_OFFLINE forbids the network",
            f"run it once online, or {_OTHER_TEXT}",
        )
    listing = find_file(access, REPO, ARCHIVE)
    (path,) = download(access, listing, listing.variants[0], on_progress=on_progress, cancel=cancel)
    return path


def read_text_bytes(archive: Path) -> bytes:
    name = sanitize(str(archive))
    try:
        with zipfile.ZipFile(archive) as opened:
            member = opened.getinfo(MEMBER)
            if member.file_size > _LARGEST_MEMBER_BYTES:
                raise BadFile(f"{MEMBER} in {name} would take {format_bytes(member.file_size)}", _OTHER_TEXT)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{MEMBER} has an unknown compression")
            with opened.open(member) as stream:
                return stream.read(_LARGEST_MEMBER_BYTES)
    except KeyError:
        raise BadFile(f"{name} has no {MEMBER}", _OTHER_TEXT) from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadFile(f"{name} cannot be read: {sanitize(why)}", _OTHER_TEXT) from None
