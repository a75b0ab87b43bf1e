"""The folders of GGUF files: ~/models, and those of Hugging Face, llama.cpp, LM Studio, Ollama and ggbench's twins.

Each program has moved its folder at least once and left files behind, so old and new locations are searched. Ollama
has a manifest for each `name:tag`, which refers to blobs by digest. Manifests are untrusted: only valid digests are
used, so no path leaves the blob folder. Source: Ollama's manifest/paths.go and manifest/manifest.go. Since 0.40
manifests are in a second folder, and one may be a list of others, each stored as a blob.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ggbench import paths
from ggbench.gguf_file.quants import quant_label
from ggbench.hub.access import hub_cache_folder
from ggbench.record import Record

Layout = Literal["folder", "hub", "ollama"]

LM_STUDIO = "LM Studio"
SYSTEM_OLLAMA = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/models", "/var/lib/ollama")
"""Folders of Ollama as a system service: its own installer's, and those of distribution packages."""

_MAX_SETTINGS_BYTES = 1 << 20


class ModelStore(Record):
    """A folder where a program stores models."""

    name: str
    root: Path
    layout: Layout
    """`hub`: Hugging Face's `models--org--name/snapshots`; `ollama`: manifests that refer to blobs; else plain folders.
    """
    finds_repos: bool = False
    """Whether MODEL `org/name` finds the models in this store."""


class _LmStudioSettings(msgspec.Struct, rename="camel"):
    downloads_folder: str = ""


def find_model_stores() -> tuple[ModelStore, ...]:
    """Return the stores that exist or may exist, once per layout."""
    home = Path(os.environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - pathlib's raises without one
    found: dict[tuple[Path, Layout], ModelStore] = {}
    for store in _candidates(home):
        if store.root.is_absolute() and _may_exist(store.root):
            found.setdefault((store.root, store.layout), store)
    return tuple(found.values())


def _candidates(home: Path) -> Iterator[ModelStore]:
    yield ModelStore("ggbench twins", paths.twins_dir(), "folder")
    yield ModelStore("Hugging Face", hub_cache_folder(), "hub", finds_repos=True)
    llama_cache = _folder("LLAMA_CACHE")
    if llama_cache is not None:
        # Newer llama.cpp uses Hugging Face's layout for this variable.
        yield ModelStore("llama.cpp", llama_cache, "hub")
    # The default is in the user's cache. Source: fs_get_cache_directory in llama.cpp's common.cpp.
    user_cache = home / "Library/Caches" if sys.platform == "darwin" else _folder("XDG_CACHE_HOME")
    yield ModelStore("llama.cpp", llama_cache or (user_cache or home / ".cache") / "llama.cpp", "folder")
    for root in _lm_studio_folders(home):
        yield ModelStore(LM_STUDIO, root, "folder")
    ollama = _folder("OLLAMA_MODELS")
    if ollama is not None:
        yield ModelStore("Ollama", ollama, "ollama")
    for root in (home / ".ollama/models", *map(Path, SYSTEM_OLLAMA)):
        yield ModelStore("Ollama", root, "ollama")
    yield ModelStore("folder", home / "models", "folder")


def _lm_studio_folders(home: Path) -> Iterator[Path]:
    """Yield the folders in LM Studio's settings, and its defaults. Source: findLMStudioHome of lmstudio.js."""
    pointed = _text(home / ".lmstudio-home-pointer").strip()
    for lm_studio in (*([Path(pointed)] if pointed else []), home / ".lmstudio", home / ".cache/lm-studio"):
        with suppress(msgspec.DecodeError, RecursionError):
            yield Path(
                msgspec.json.decode(_text(lm_studio / "settings.json"), type=_LmStudioSettings).downloads_folder
            )
        yield lm_studio / "models"


def _folder(variable: str) -> Path | None:
    text = os.path.expandvars(os.environ.get(variable, ""))
    return Path(os.path.expanduser(text)).absolute() if text else None  # noqa: PTH111 - pathlib's raises without a home


def _text(file: Path) -> str:
    """Return the content of a small text file; empty if it cannot be read."""
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


_MANIFESTS = ("manifests-v2", "manifests")
"""newest first: the older folder is kept for downgrades"""
_PUBLIC_HOSTS = ("registry.ollama.ai", "ollama.com")
_WEIGHTS = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_MAX_BYTES = 1 << 20
"""Size limit of a manifest or a config; real ones have a few kilobytes."""
_MAX_BUILDS = 16
_MAX_MANIFESTS = 10_000

_Kind = TypeVar("_Kind")


class OllamaModel(Record):
    """One weights file named by a manifest."""

    name: str
    """Name for `ollama run`; not sanitized."""
    blob: Path | None = None
    quant: str | None = None
    """The quant in the tag or, if that has none, in the config; lower case."""
    reason: str = ""
    """Why there is no blob."""


class _Descriptor(Record, rename="camel"):
    media_type: str = ""
    digest: str = ""


class _Manifest(Record):
    config: _Descriptor | None = None
    layers: list[_Descriptor] | None = None
    manifests: list[_Descriptor] | None = None
    """For a list of manifests: the builds of one model for different runners."""


class _Config(Record):
    file_type: str = ""


def ollama_models(root: Path) -> Iterator[OllamaModel]:
    """Yield the weights named by the manifests below `root`; a broken manifest gives a reason. Raises OSError."""
    os.scandir(root).close()
    named: set[str] = set()
    for folder in _MANIFESTS:
        # Files are exactly four levels deep, host/namespace/model/tag; hidden names are left out.
        manifests = sorted((root / folder).glob("/".join(["[!.]*"] * 4)))
        files = (path for path in manifests if os.path.isfile(path))  # noqa: PTH113 - pathlib's raises for a symlink loop
        for path in islice(files, _MAX_MANIFESTS):
            name = _name(*path.parts[-4:])
            if name not in named:
                named.add(name)
                yield from _models(root, name, path)


def _models(root: Path, name: str, path: Path) -> Iterator[OllamaModel]:
    manifest = _read(path, _Manifest)
    if manifest is None:
        yield OllamaModel(name, reason="its manifest in Ollama's store cannot be read")
        return
    listed = [_read_blob(root, each.digest, _Manifest) for each in (manifest.manifests or [])[:_MAX_BUILDS]]
    builds = [manifest, *(build for build in listed if build is not None)]
    weights = [
        (build, layer) for build in builds for layer in build.layers or () if layer.media_type == _WEIGHTS
    ]
    for build, layer in weights:
        yield _model(root, name, build, layer)
    if not weights:
        yield OllamaModel(name, reason="its manifest has no weights in a single file")


def _model(root: Path, name: str, build: _Manifest, layer: _Descriptor) -> OllamaModel:
    blob = _blob(root, layer.digest)
    if blob is None:
        return OllamaModel(name, reason="its manifest has an invalid blob digest")
    quant = quant_label(name.rpartition(":")[2])
    if quant is None and build.config is not None:
        config = _read_blob(root, build.config.digest, _Config)
        quant = None if config is None else quant_label(config.file_type)
    return OllamaModel(name, blob, quant)


def _name(host: str, namespace: str, model: str, tag: str) -> str:
    host = host.replace("%3A", ":").replace("%3a", ":")
    if host not in _PUBLIC_HOSTS:
        return f"{host}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _blob(root: Path, digest: str) -> Path | None:
    match = _DIGEST.fullmatch(digest)
    return None if match is None else root / "blobs" / f"sha256-{match[1]}"


def _read_blob(root: Path, digest: str, kind: type[_Kind]) -> _Kind | None:
    blob = _blob(root, digest)
    return None if blob is None else _read(blob, kind)


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        return msgspec.json.decode(raw, type=kind) if len(raw) <= _MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
