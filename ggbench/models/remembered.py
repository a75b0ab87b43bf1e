"""The file of the config folder that remembers the places and servers which a person added by hand.

Apart from what lists their models, so that a shell's completion reads it without importing any of that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ggbench import paths
from ggbench.errors import UsageError
from ggbench.files import replace_file
from ggbench.text import plain

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
        raise UsageError(f"{plain(str(file))} cannot be written: {reason}", "nothing was remembered") from None
