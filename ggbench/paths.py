"""Where ggbench keeps what it makes: results, caches, config. Nothing else in the package names a folder of a user."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_dirs = platformdirs.PlatformDirs("ggbench", appauthor=False)


def results_file() -> Path:
    """The SQLite file with every run."""
    return Path(_dirs.user_data_dir) / "results.sqlite"


def twins_dir() -> Path:
    """Twins made for `synth:` and `twin:` models; safe to delete."""
    return Path(_dirs.user_cache_dir) / "twins"


def header_index_file() -> Path:
    """What the headers of files on this disk said, by path; safe to delete."""
    return Path(_dirs.user_cache_dir) / "local-headers.json"


def hub_listings_dir() -> Path:
    """What repos of the Hub held when they were listed last; safe to delete, but then offline knows nothing of them."""
    return Path(_dirs.user_cache_dir) / "hub"


def headers_dir() -> Path:
    """Headers of files on the Hub, by what their content is; safe to delete, as the listings are."""
    return Path(_dirs.user_cache_dir) / "headers"


def machine_cache_file() -> Path:
    """What was measured once about this machine, such as its memory bandwidth."""
    return Path(_dirs.user_cache_dir) / "machine.json"


def user_models_file() -> Path:
    """The person's own catalog, added to and overriding the shipped one."""
    return Path(_dirs.user_config_dir) / "models.toml"
