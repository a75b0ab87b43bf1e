"""Locate the folders where programs store GGUF files: Hugging Face, llama.cpp, LM Studio, Ollama, and ggbench's twins.

Each program has moved its folder at least once and left files behind, so old and new locations are searched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from ggbench import paths
from ggbench.hub.access import hub_cache_folder

Layout = Literal["folder", "hub", "ollama"]

SYSTEM_OLLAMA = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/models", "/var/lib/ollama")
"""Folders of Ollama as a system service: its own installer's, and those of distribution packages."""

_MAX_SETTINGS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelStore:
    """A folder where a program stores models."""

    name: str
    """The program's usual name."""
    root: Path
    layout: Layout
    """`hub`: Hugging Face's `models--org--name/snapshots`; `ollama`: manifests that refer to blobs; else plain folders.
    """
    finds_repos: bool = False
    """Whether MODEL `org/name` finds the models in this store."""


class _LmStudioSettings(msgspec.Struct, rename="camel"):
    downloads_folder: str = ""


def find_model_stores(
    environment: Mapping[str, str] | None = None, platform: str = sys.platform
) -> tuple[ModelStore, ...]:
    """Return the stores that exist or may exist, once per layout; the arguments default to this process's own."""
    environment = os.environ if environment is None else environment
    home = Path(environment.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - pathlib's raises without one
    found: dict[tuple[Path, Layout], ModelStore] = {}
    for store in _candidates(environment, home, platform):
        if store.root.is_absolute() and _may_exist(store.root):
            found.setdefault((store.root, store.layout), store)
    return tuple(found.values())


def _candidates(environment: Mapping[str, str], home: Path, platform: str) -> Iterator[ModelStore]:
    yield ModelStore("ggbench twins", paths.twins_dir(), "folder")
    yield ModelStore("Hugging Face", hub_cache_folder(environment), "hub", finds_repos=True)
    llama_cache = _folder(environment, "LLAMA_CACHE", home)
    if llama_cache is not None:
        # Newer llama.cpp uses Hugging Face's layout for this variable.
        yield ModelStore("llama.cpp", llama_cache, "hub")
    yield ModelStore("llama.cpp", llama_cache or _user_cache(environment, home, platform) / "llama.cpp", "folder")
    for root in _lm_studio_folders(home):
        yield ModelStore("LM Studio", root, "folder")
    ollama = _folder(environment, "OLLAMA_MODELS", home)
    if ollama is not None:
        yield ModelStore("Ollama", ollama, "ollama")
    for root in (home / ".ollama/models", *map(Path, SYSTEM_OLLAMA)):
        yield ModelStore("Ollama", root, "ollama")


def _user_cache(environment: Mapping[str, str], home: Path, platform: str) -> Path:
    """Return the folder that contains llama.cpp's cache. Source: fs_get_cache_directory in its common.cpp."""
    if platform == "darwin":
        return home / "Library/Caches"
    return _folder(environment, "XDG_CACHE_HOME", home) or home / ".cache"


def _lm_studio_folders(home: Path) -> Iterator[Path]:
    """Yield the folders in LM Studio's settings, and its defaults. Source: findLMStudioHome of lmstudio.js."""
    pointed = _text(home / ".lmstudio-home-pointer").strip()
    for lm_studio in (*([Path(pointed)] if pointed else []), home / ".lmstudio", home / ".cache/lm-studio"):
        with suppress(msgspec.DecodeError, RecursionError):
            yield Path(msgspec.json.decode(_text(lm_studio / "settings.json"), type=_LmStudioSettings).downloads_folder)
        yield lm_studio / "models"


def _folder(environment: Mapping[str, str], name: str, home: Path) -> Path | None:
    text = os.path.expandvars(environment.get(name, ""))
    if not text:
        return None
    return home / text[2:] if text.startswith("~/") else Path(text).absolute()


def _text(file: Path) -> str:
    """Return the content of a small text file; empty where it cannot be read."""
    try:
        with file.open("rb") as source:
            return source.read(_MAX_SETTINGS_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def _may_exist(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
