"""Paths of ggbench's own files: results, caches and config. No other module names a user folder."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_dirs = platformdirs.PlatformDirs("ggbench", appauthor=False)


def results_file() -> Path:
    """Return the SQLite file with all runs."""
    return Path(_dirs.user_data_dir) / "results.sqlite"


def twins_dir() -> Path:
    """Return the folder of twins made for `synth:` and `twin:` models; safe to delete."""
    return Path(_dirs.user_cache_dir) / "twins"


def header_index_file() -> Path:
    """Return the cached header facts of local files; safe to delete."""
    return Path(_dirs.user_cache_dir) / "local-headers.json"


def hub_listings_dir() -> Path:
    """Return the folder of cached repo listings; safe to delete, but offline needs them."""
    return Path(_dirs.user_cache_dir) / "hub"


def headers_dir() -> Path:
    """Return the folder of cached Hub headers, by content hash; safe to delete, but offline needs them."""
    return Path(_dirs.user_cache_dir) / "headers"


def forecasts_dir() -> Path:
    """Return the folder of twins that a forecast writes and removes; safe to delete."""
    return Path(_dirs.user_cache_dir) / "forecasts"


def logits_dir() -> Path:
    """Return the folder of logits of models that others are compared with; safe to delete."""
    return Path(_dirs.user_cache_dir) / "logits"


def machine_cache_file() -> Path:
    """Return the cache of measurements of this machine, such as its memory bandwidth."""
    return Path(_dirs.user_cache_dir) / "machine.json"


def user_models_file() -> Path:
    """Return the user's own catalog, which extends and overrides the shipped one."""
    return Path(_dirs.user_config_dir) / "models.toml"


def added_places_file() -> Path:
    """Return the list of folders and files that the user added by hand."""
    return Path(_dirs.user_config_dir) / "places.json"
