"""Transformers as an engine: a child process with torch, which this process never imports.

A model stays loaded while only its cache changes; another load, or a dead worker, starts a new process.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata

from msgspec.structs import replace

from ggbench.engines.contract import DEFAULT_TIMEOUT_S, EngineConfig, Source
from ggbench.engines.endings import Completed, Ending, Failed
from ggbench.engines.events import Event, Ready
from ggbench.engines.process import Transport, WorkerEngine, WorkerProcess
from ggbench.errors import EngineFailed, GgbenchError
from ggbench.extras.transformers.config import LoadCheckpoint, MakeCache, TransformersConfig

CONFIGS = {TransformersConfig.engine: TransformersConfig}

COMMAND = (sys.executable, "-P", "-m", "ggbench.extras.transformers.worker")
"""The worker's command, without the pipe's number."""


def launch(cancel: threading.Event, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> TransformersEngine:
    """Return an engine whose worker stops when `cancel` is set."""
    return TransformersEngine(lambda: WorkerProcess(cancel, timeout_s, COMMAND, TransformersConfig.program))


class TransformersEngine(WorkerEngine):
    """A worker, and its loaded checkpoint."""

    def __init__(self, start: Callable[[], Transport], check: Callable[[str], None] | None = None) -> None:
        """Start the worker with the first load; `check` raises GgbenchError if a method's packages are missing."""
        super().__init__(start)
        self._check = check or check_packages
        self._loaded: LoadCheckpoint | None = None

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Load the checkpoint and create a cache; without an n_ctx, only load the model."""
        if not isinstance(setup, TransformersConfig) or source.path is None:
            yield Failed("load", "Transformers loads only folders of checkpoints")
            return
        try:
            self._check(setup.method)
        except GgbenchError as error:
            yield Ready(None, {})
            yield Failed("load", error.message, error)
            return
        load = LoadCheckpoint(str(source.path), replace(setup, n_ctx=None, n_seq_max=1))
        ending: Ending = Completed()
        if load != self._loaded:
            self.close()
            self._worker = self._start()
            ending = yield from self._call(load)
            self._loaded = load if isinstance(ending, Completed) else None
        if isinstance(ending, Completed) and setup.n_ctx is not None:
            ending = yield from self._call(MakeCache(setup))
        yield ending

    def close(self) -> None:
        super().close()
        self._loaded = None


_BASE: Mapping[str, tuple[int, int]] = {
    "torch": (2, 6),
    "transformers": (5, 0),  # caches that know their own position, and `dtype`
    "accelerate": (1, 1),
    "safetensors": (0, 5),
}
_EXTRAS: Mapping[str, tuple[int, int]] = {"bitsandbytes": (0, 46), "gptqmodel": (2, 0)}
"""Additional packages for methods, each an extra with its name; GPTQModel replaced AutoGPTQ and AutoAWQ."""


def check_packages(method: str) -> None:
    """Raise EngineFailed, naming the method's packages that are missing or too old."""
    extra = {"int8": "bitsandbytes", "nf4": "bitsandbytes", "gptq": "gptqmodel", "awq": "gptqmodel"}.get(
        method.partition("-")[0]
    )
    needed = {**_BASE, extra: _EXTRAS[extra]} if extra else _BASE
    faults = [fault for name, oldest in needed.items() if (fault := _fault(name, oldest))]
    if faults:
        extras = ",".join(filter(None, ("transformers", extra)))
        raise EngineFailed(
            f"{method} needs packages that are missing or too old: {', '.join(faults)}",
            f"install them with pip install 'ggbench[{extras}]'; without a GPU, install torch's CPU build first",
        )


def _fault(name: str, oldest: tuple[int, int]) -> str:
    """Return `torch`, or `torch 2.1.0 (2.6 or later)`; empty if the package is suitable."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return name
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) >= oldest:
        return ""
    return f"{name} {version} ({oldest[0]}.{oldest[1]} or later)"
