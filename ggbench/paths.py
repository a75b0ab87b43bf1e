"""ggbench's own files: paths of results, caches and config, and atomic writing. No other module names a user folder."""

from __future__ import annotations

import os
import tempfile
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


def take_free_name(file: Path, name: Path) -> None:
    """Give a file a name that nothing has. Raises FileExistsError, and OSError as a rename does."""
    try:
        name.hardlink_to(file)  # the only call that fails if the name is taken
    except FileExistsError:
        raise
    except OSError:  # no hard links, as on FAT: a file made between the check and the rename would be lost
        if os.path.lexists(name):
            raise FileExistsError from None
        file.rename(name)
    else:
        file.unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, and its folder, atomically: a reader never sees a part of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as aside:
        try:
            aside.write(content)
            aside.close()
            Path(aside.name).replace(path)
        except BaseException:
            Path(aside.name).unlink(missing_ok=True)
            raise
