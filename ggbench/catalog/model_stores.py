"""Where programs keep GGUF files on this machine: Hugging Face, llama.cpp, LM Studio, Ollama, and ggbench's own twins.

Each program has moved its folder at least once, and files stay behind in the older one, so every place is looked into.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ggbench import paths
from ggbench.hub.access import hub_cache_folder

Layout = Literal["folder", "hub", "ollama"]

SYSTEM_OLLAMA = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/models", "/var/lib/ollama")
"""Of Ollama as a service: by its own installer, and by the packages of distributions."""

_MAX_SETTINGS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelStore:
    """One folder that a program keeps models in."""

    name: str
    """The program, as people call it."""
    root: Path
    layout: Layout
    """`hub`: Hugging Face's `models--org--name/snapshots`; `ollama`: manifests that name blobs; else plain folders."""
    finds_repos: bool = False
    """Whether MODEL `org/name` finds what is here."""


def find_model_stores(
    environment: Mapping[str, str] | None = None, platform: str = sys.platform
) -> tuple[ModelStore, ...]:
    """The stores that are there, or that cannot be told to be missing; each folder once for each layout.

    `environment` and `platform` are this process's own unless told.
    """
    environment = os.environ if environment is None else environment
    home = Path(environment.get("HOME") or Path.home())
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
        yield ModelStore("llama.cpp", llama_cache, "hub")  # what a newer llama.cpp makes of the same variable
    yield ModelStore("llama.cpp", llama_cache or _user_cache(environment, home, platform) / "llama.cpp", "folder")
    for root in _lm_studio_folders(home):
        yield ModelStore("LM Studio", root, "folder")
    ollama = _folder(environment, "OLLAMA_MODELS", home)
    if ollama is not None:
        yield ModelStore("Ollama", ollama, "ollama")
    for root in (home / ".ollama/models", *map(Path, SYSTEM_OLLAMA)):
        yield ModelStore("Ollama", root, "ollama")


def _user_cache(environment: Mapping[str, str], home: Path, platform: str) -> Path:
    """Where llama.cpp puts its folder. Source: fs_get_cache_directory of its common.cpp."""
    if platform == "darwin":
        return home / "Library/Caches"
    if platform == "win32":
        return _folder(environment, "LOCALAPPDATA", home) or home / "AppData/Local"
    return _folder(environment, "XDG_CACHE_HOME", home) or home / ".cache"


def _lm_studio_folders(home: Path) -> Iterator[Path]:
    """The folder that the settings name, of the home that a pointer names, and the usual ones of old and new.

    Source: findLMStudioHome of lmstudio.js, and `downloadsFolder` in LM Studio's settings.json.
    """
    pointed = _text(home / ".lmstudio-home-pointer").strip()
    homes = [home / ".lmstudio", home / ".cache/lm-studio"]
    if pointed and "\0" not in pointed:
        homes.insert(0, Path(pointed))
    for lm_studio in homes:
        try:
            settings = json.loads(_text(lm_studio / "settings.json"))
        except (ValueError, RecursionError):
            settings = None
        folder = settings.get("downloadsFolder") if isinstance(settings, dict) else None
        if isinstance(folder, str) and folder and "\0" not in folder:
            yield Path(folder)
        yield lm_studio / "models"


def _folder(environment: Mapping[str, str], name: str, home: Path) -> Path | None:
    text = os.path.expandvars(environment.get(name, ""))
    if not text:
        return None
    return home / text[2:] if text.startswith("~/") else Path(text).absolute()


def _text(file: Path) -> str:
    """A small text file; empty where there is none."""
    try:
        with file.open("rb") as source:
            return source.read(_MAX_SETTINGS_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _may_exist(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
