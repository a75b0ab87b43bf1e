"""Folders and files that the user added by hand, remembered in the config folder.

A place is remembered only if a GGUF was found in it. Forgetting one leaves its files alone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.errors import BadFile, UsageError
from ggbench.files import replace_file, write_new
from ggbench.paths import expand_path, path_exists
from ggbench.record import Record
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.models.disk import LocalModel


_STARTS = ("/", "~", "./", "../")


def typed_path(text: str) -> Path | None:
    """Return the path that the user typed, pasted or dropped; None for a name or words to search for.

    A path begins with `/`, `~`, `./` or `../`, or exists and has a slash or ends in `.gguf`. Quotes, escaped spaces and
    `file://`, which terminals and file managers add, are removed.
    """
    text = text.strip()
    if not text or "\0" in text:
        return None
    plain = _unquoted(text)
    if plain.startswith(_STARTS):
        return expand_path(plain)
    looks_like_path = "/" in text or text.lower().endswith(".gguf")
    return expand_path(text) if looks_like_path and path_exists(text) else None


def _unquoted(text: str) -> str:
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    if not path_exists(text):
        with contextlib.suppress(ValueError):
            words = shlex.split(text)
            return words[0] if len(words) == 1 else text
    return text


def is_local(text: str) -> bool:
    """Return whether a path of exactly this text exists, relative to the current folder."""
    return path_exists(text.strip())


def added_models() -> tuple[LocalModel, ...]:
    """Return the models of every place, in the order added.

    A place without models is an entry with the reason. A file in two places is listed in the first.
    """
    found: list[LocalModel] = []
    seen: set[Path] = set()
    for place in remembered_places():
        found += [model for model in _listed(place) if not model.paths or not seen.issuperset(model.paths)]
        seen.update(path for model in found for path in model.paths)
    return tuple(found)


def add_place(path: Path) -> tuple[LocalModel, ...]:
    """Find the models of a folder or a file, remember it unless it is in a remembered folder, and return them.

    Raises BadFile if there is nothing to measure, for a tree with too many folders and for unreadable files, and
    UsageError if the config folder cannot be written.
    """
    from ggbench.models.disk import models_in_place, path_argument

    path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would show another path than was typed
    found, name = models_in_place(path), sanitize(path_argument(path))
    if any(not model.paths for model in found):
        raise BadFile(f"{name} has too many folders to search", "add the folder below it that has the models")
    if not found:
        raise BadFile(
            f"{name} contains no GGUF file, nor do its subfolders",
            "add a .gguf file or a folder with .gguf files",
        )
    if all(model.reason for model in found):
        raise BadFile(f"{name}: {found[0].reason}", "download it again, or add another file or folder")
    places = remembered_places()
    if not any(path.is_relative_to(place) for place in places):
        _remember((*places, path))
    return tuple(replace(model, place=path) for model in found)


def forget_place(path: Path) -> None:
    """Forget a place; its files stay. Raises UsageError if the config folder cannot be written."""
    _remember([place for place in remembered_places() if place != path])


def _listed(path: Path) -> tuple[LocalModel, ...]:
    from ggbench.models.disk import LocalModel, models_in_place, path_argument

    try:
        found = tuple(replace(model, place=path) for model in models_in_place(path))
        reason = "" if found else "it no longer has a GGUF model"
    except BadFile as error:
        found, reason = (), error.message
    name = path_argument(path)
    return found or (LocalModel(name, sanitize(name), "", None, (), None, reason=sanitize(reason), place=path),)


_MAX_BYTES = 1 << 20


class _Remembered(Record):
    places: tuple[str, ...] = ()


def remembered_places() -> tuple[Path, ...]:
    """Return the places in the order added; empty if the file is missing or damaged."""
    return tuple(Path(place) for place in (_stored() or _Remembered()).places if place)


def are_places_damaged() -> bool:
    """Return whether the file of added places is there but cannot be read, so that none is listed."""
    return _stored() is None


def _stored() -> _Remembered | None:
    """Return what is remembered; None if the file is damaged."""
    try:
        with paths.added_places_file().open("rb") as source:
            content = source.read(_MAX_BYTES)
    except FileNotFoundError:
        return _Remembered()
    except OSError:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(content, type=_Remembered)
    return None


def _remember(places: Iterable[Path]) -> None:
    """Write the file; a damaged one is kept under another name."""
    file = paths.added_places_file()
    try:
        if are_places_damaged():
            write_new(file.parent, f"{file.stem}.broken", file.suffix, file.read_bytes())
        replace_file(file, msgspec.json.format(msgspec.json.encode(_Remembered(tuple(map(str, places))))))
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not text"
        raise UsageError(
            f"{sanitize(str(file))} cannot be written: {reason}", "nothing was remembered"
        ) from None
