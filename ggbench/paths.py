"""Paths of ggbench's own files: results, caches and config. No other module names a user folder.

Caches are safe to delete, but offline mode needs those of the Hub.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

import platformdirs

from ggbench.errors import UsageError

_dirs = platformdirs.PlatformDirs("ggbench", appauthor=False)


def results_file() -> Path:
    return _folder("data") / "results.sqlite"


def twins_dir() -> Path:
    return _folder("cache") / "twins"


def hub_listings_dir() -> Path:
    return _folder("cache") / "hub"


def headers_dir() -> Path:
    return _folder("cache") / "headers"


def forecasts_dir() -> Path:
    return _folder("cache") / "forecasts"


def logits_dir() -> Path:
    return _folder("cache") / "logits"


def caches_dir() -> Path:
    return _folder("cache")


def machine_cache_file() -> Path:
    return _folder("cache") / "machine.json"


def user_models_file() -> Path:
    """Return the user's own catalog, which extends and overrides the shipped one."""
    return _folder("config") / "models.toml"


def added_places_file() -> Path:
    """Return the list of folders and files that the user added by hand."""
    return _folder("config") / "places.json"


def theme_file() -> Path:
    """Return the name of the TUI's last theme."""
    return _folder("config") / "theme.txt"


def _folder(kind: Literal["data", "cache", "config"]) -> Path:
    """Return the user's folder for data, caches or config. Raises UsageError without a home folder."""
    with suppress(RuntimeError):
        folder = Path(getattr(_dirs, f"user_{kind}_dir"))
        if folder.is_absolute():  # older platformdirs do not expand a `~` without a home
            return folder
    raise UsageError(
        "this user has no home folder", "set HOME, or XDG_DATA_HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME"
    )


def path_exists(text: str) -> bool:
    """Return whether the text is a path that exists, relative to the current folder."""
    try:
        return bool(text) and expand_path(text).exists()
    except (OSError, ValueError):
        return False


def expand_path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111 - pathlib's raises where nobody has that home
