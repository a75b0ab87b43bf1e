"""MODELs that an engine loads from something else than a GGUF file: what the folder of such an engine offers.

The package of its folder has `SCHEMES`, what MODEL begins with before the colon, each with its form for people, and
`NOUN` and `PROGRAM`, as in "a checkpoint of Transformers"; its module `models` is an `EngineModels`. The modules
`options`, `plan` and `show` of the folder are for the commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from ggbench import engines
from ggbench.plugins import load_plugin, plugin_names

if TYPE_CHECKING:
    from ggbench.engines.contract import EngineConfig
    from ggbench.gguf_file.model_file import ModelFile
    from ggbench.hub.access import HubAccess
    from ggbench.models.catalog import Catalog
    from ggbench.models.reference import ModelRef
    from ggbench.models.sources import FoundVariant, OnProgress
    from ggbench.models.targets import Target


class EngineModel(Protocol):
    """A model of an engine's own, as it is to be loaded."""

    @property
    def download_bytes(self) -> int:
        """Bytes to download first."""
        ...

    @property
    def words(self) -> tuple[str, ...]:
        """MODEL and QUANT that mean it from any folder; empty where they are those of its target."""
        ...

    def header(self) -> ModelFile:
        """Return the model as it would be loaded. Raises GgbenchError."""
        ...

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the weights of every QUANT that it can be loaded as."""
        ...

    def setup(self, given: EngineConfig) -> EngineConfig:
        """Return how it is to be loaded, where a person gave this config. Raises Unsupported."""
        ...

    def check_runs(self) -> None:
        """Raise EngineFailed where this machine lacks a package to run it."""
        ...

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        """Return the model with its path, made or downloaded first. Raises GgbenchError."""
        ...


class EngineModels(Protocol):
    """The module `models` of an engine's folder."""

    def parse(self, scheme: str, rest: str) -> ModelRef:
        """Return what `SCHEME:REST` means, with the engine's name in its `engine`. Raises UsageError."""
        ...

    def in_folder(self, folder: Path) -> ModelRef | None:
        """Return the model that a folder holds; None where it is none of this engine's."""
        ...

    def targets(self, ref: ModelRef, catalog: Catalog | None, hub: HubAccess | None) -> tuple[Target, ...]:
        """Return a target for each of QUANTs. Raises GgbenchError."""
        ...

    def files(self, ref: ModelRef, access: HubAccess) -> FoundVariant:
        """Return what to download. Raises UsageError for what is not on the Hub, and NetworkError."""
        ...


def engine_models(engine: str) -> EngineModels:
    """Return the module `models` of an engine's folder. Raises StoreError."""
    found: EngineModels = load_plugin("ggbench.engines", engine, "models", "engine")
    return found


def own_models() -> Iterator[tuple[str, ModuleType]]:
    """Yield each engine that has models of its own, and its package with `SCHEMES`, `NOUN` and `PROGRAM`."""
    for name in plugin_names("ggbench.engines", "models"):
        yield name, importlib.import_module(f"{engines.__name__}.{name}")


def engine_of_scheme(scheme: str) -> str | None:
    """Return the engine whose own models a scheme means; None where it is of none."""
    return next((name for name, package in own_models() if scheme in package.SCHEMES), None)
