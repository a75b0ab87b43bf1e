"""Models that an engine loads from a format of its own instead of a GGUF file.

The engine's package defines `SCHEMES` (what MODEL begins with before the colon, each with its form for help texts),
`NOUN` and `PROGRAM` ("a checkpoint of Transformers"); its module `models` implements `EngineModels`. Its modules
`options`, `plan` and `show` serve the commands.
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
    """One model in an engine's own format."""

    @property
    def download_bytes(self) -> int: ...

    @property
    def words(self) -> tuple[str, ...]:
        """MODEL and QUANT that name it from any folder; empty if they are those of its target."""
        ...

    def header(self) -> ModelFile:
        """Return the model as it would be loaded. Raises GgbenchError."""
        ...

    def sizes(self) -> dict[str, int]:
        """Return the weight bytes of every QUANT that it can be loaded as."""
        ...

    def setup(self, given: EngineConfig) -> EngineConfig:
        """Return the config to load it with, given the user's. Raises Unsupported."""
        ...

    def check_runs(self) -> None:
        """Raise EngineFailed if this machine lacks a package to run it."""
        ...

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        """Make or download it, and return it with its path. Raises GgbenchError."""
        ...


class EngineModels(Protocol):
    """The module `models` of an engine's folder."""

    def parse(self, scheme: str, rest: str) -> ModelRef:
        """Return the model that `SCHEME:REST` names, with the engine's name in `engine`. Raises UsageError."""
        ...

    def in_folder(self, folder: Path) -> ModelRef | None:
        """Return the model in a folder; None if the folder has none for this engine."""
        ...

    def targets(self, ref: ModelRef, catalog: Catalog | None, hub: HubAccess | None) -> tuple[Target, ...]:
        """Return one target for each QUANT. Raises GgbenchError."""
        ...

    def files(self, ref: ModelRef, access: HubAccess) -> FoundVariant:
        """Return the files to download. Raises UsageError for a model that is not on the Hub, and NetworkError."""
        ...


def engine_models(engine: str) -> EngineModels:
    """Return an engine's module `models`. Raises StoreError."""
    found: EngineModels = load_plugin("ggbench.engines", engine, "models", "engine")
    return found


def own_models() -> Iterator[tuple[str, ModuleType]]:
    """Yield the name and the package of each engine with models of its own."""
    for name in plugin_names("ggbench.engines", "models"):
        yield name, importlib.import_module(f"{engines.__name__}.{name}")


def engine_of_scheme(scheme: str) -> str | None:
    """Return the engine whose models begin with this scheme; None if there is none."""
    return next((name for name, package in own_models() if scheme in package.SCHEMES), None)
