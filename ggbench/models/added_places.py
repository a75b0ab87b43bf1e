"""Folders, files and servers that a person added by hand: what they type, which of it has models, and the memory of it.

A place is remembered only once a GGUF was found in it. Removing one forgets the path and leaves its files alone. A
shell's completion reads the servers, so what lists and reads models is imported where it is used.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.server.config import is_url
from ggbench.errors import BadFile, UsageError
from ggbench.files import replace_file
from ggbench.paths import expand_path, path_exists
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.models.disk import LocalModel


_STARTS = ("/", "~", "./", "../", "file://")


def typed_path(text: str) -> Path | None:
    """Return the path that a person typed, pasted or dropped; None for text that is a name or words to search for.

    A path begins with `/`, `~`, `./` or `../`, or is one that exists and has a slash or ends in `.gguf`. Quotes,
    escaped spaces and `file://`, which terminals and file managers add, are undone.
    """
    text = text.strip()
    if not text or "\0" in text:
        return None
    unquoted = _unquoted(text)
    if text.startswith(_STARTS) or (unquoted != text and unquoted.startswith(_STARTS)):
        return expand_path(unquoted)
    is_bare = "/" not in text and not text.lower().endswith(".gguf")
    return None if is_bare or not path_exists(text) else expand_path(text)


def typed_server(text: str) -> str | None:
    """Return the base URL of a server that a person typed or pasted; None for other text, and for pages of the Hub."""
    if not is_url(text.strip()):
        return None
    from ggbench.models.reference import parse_model

    try:
        ref = parse_model(text.strip())
    except UsageError:
        return None
    return ref.name if ref.is_server else None


def is_local(text: str) -> bool:
    """Return whether a path of exactly this text exists, relative to the current folder."""
    return path_exists(text.strip())


def added_models() -> tuple[LocalModel, ...]:
    """Return the models of every place, in the order in which they were added; one without any is an entry with why.

    A file of two places, one of which may lie in the other, is listed in that which was added first.
    """
    found: list[LocalModel] = []
    seen: set[Path] = set()
    for place in remembered_places():
        found += [model for model in _listed(place) if not model.paths or not seen.issuperset(model.paths)]
        seen.update(_files(found))
    return tuple(found)


def add_place(path: Path) -> tuple[LocalModel, ...]:
    """Find the models of a folder or a file, remember it, and return them.

    A place whose files are all in others is not remembered; one that has all files of others replaces them. Raises
    BadFile where there is nothing to measure, for a tree with too many folders and for what cannot be read, and
    UsageError where the config folder cannot be written.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would show another path than was typed
    found = _measurable(path)
    files = _files(found)
    known = {place: _files(_listed(place)) for place in remembered_places()}
    others = {place: held for place, held in known.items() if place != path}
    if not files <= frozenset().union(*others.values()):
        kept = [place for place, held in known.items() if place == path or not held or not held <= files]
        remember_places([*kept, *([] if path in kept else [path])])
    return found


def forget_place(path: Path) -> None:
    """Forget a place; its files stay. Raises UsageError where the config folder cannot be written."""
    remember_places([place for place in remembered_places() if place != path])


def _listed(path: Path) -> tuple[LocalModel, ...]:
    from ggbench.models.disk import LocalModel, models_in_place, path_argument

    try:
        found = tuple(replace(model, place=path) for model in models_in_place(path))
        reason = "" if found else "it has no GGUF model any more"
    except BadFile as error:
        found, reason = (), error.message
    name = path_argument(path)
    return found or (LocalModel(name, sanitize(name), "", None, (), None, reason=sanitize(reason), place=path),)


def _measurable(path: Path) -> tuple[LocalModel, ...]:
    """Return the models of a place, at least one of them measurable. Raises BadFile."""
    from ggbench.models.disk import models_in_place, path_argument

    found, name = models_in_place(path), sanitize(path_argument(path))
    if any(not model.paths for model in found):
        raise BadFile(f"{name} has too many folders to search", "add the folder below it that has the models")
    if not found:
        raise BadFile(f"{name} has no GGUF model, nor have the folders below it", "add a folder with .gguf files")
    if all(model.reason for model in found):
        raise BadFile(f"{name}: {found[0].reason}", "add a .gguf file, or a folder with some")
    return tuple(replace(model, place=path) for model in found)


def _files(models: Sequence[LocalModel]) -> frozenset[Path]:
    return frozenset(path for model in models for path in model.paths)


def _unquoted(text: str) -> str:
    """Undo what a terminal or a file manager put around a path; text that exists as it is stays so."""
    if path_exists(text):
        return text
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    if any(mark in text for mark in "'\"\\"):
        with contextlib.suppress(ValueError):
            words = shlex.split(text)
            return words[0] if len(words) == 1 else text
    return text


_MAX_BYTES = 1 << 20


class _Remembered(msgspec.Struct, frozen=True):
    places: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def remembered_places() -> tuple[Path, ...]:
    """Return the places in the order in which they were added; none where the file is missing or damaged."""
    return tuple(Path(place) for place in _read().places if place)


def remember_places(places: Iterable[Path]) -> None:
    """Replace the places, in this order. Raises UsageError where the config folder cannot be written."""
    _write(_Remembered(tuple(map(str, places)), _read().servers))


def remembered_servers() -> tuple[str, ...]:
    """Return the base URLs of the servers in the order in which they were added."""
    return _read().servers


def add_server(base_url: str) -> None:
    """Remember a server. Raises UsageError where the config folder cannot be written."""
    known = _read()
    if base_url not in known.servers:
        _write(_Remembered(known.places, (*known.servers, base_url)))


def forget_server(base_url: str) -> None:
    """Forget a server. Raises UsageError where the config folder cannot be written."""
    known = _read()
    _write(_Remembered(known.places, tuple(each for each in known.servers if each != base_url)))


def _read() -> _Remembered:
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeError):
        with paths.added_places_file().open("rb") as source:
            content = source.read(_MAX_BYTES)
        return msgspec.json.decode(content, type=_Remembered)
    return _Remembered()


def _write(known: _Remembered) -> None:
    file = paths.added_places_file()
    try:
        replace_file(file, msgspec.json.format(msgspec.json.encode(known)))
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not text"
        raise UsageError(f"{sanitize(str(file))} cannot be written: {reason}", "nothing was remembered") from None
