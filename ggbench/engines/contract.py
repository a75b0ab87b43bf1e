"""What every engine is: it opens a model under a setup, carries out workloads, and ends each in a value.

An engine is one folder in `ggbench.engines`, named by its setup's `engine`, whose module `engine` has a function
`launch`. It imports nothing of the experiments, and they never ask which engine they have: what it cannot do it says
with `unsupported`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import msgspec

from ggbench.engines.config import Setup
from ggbench.plugins import load_plugin

if TYPE_CHECKING:
    from ggbench.engines.endings import Ending
    from ggbench.engines.events import Event

Stage = Literal["start", "load", "context", "prefill", "decode", "score"]

DEFAULT_TIMEOUT_S = 600.0
"""Longest time without a message that is not yet a hang: a long prompt on a slow CPU reports nothing meanwhile."""


class Workload(msgspec.Struct, frozen=True):
    """Something to do with an opened model: one module in `ggbench.engines.workloads` for each kind."""

    name: ClassVar[str]
    """Of its module."""
    stage: ClassVar[Stage]
    """What a failure of it is a failure of."""

    @property
    def n_outputs(self) -> int:
        """Most tokens of one of its batches whose logits it asks for; the setup's `n_outputs_max` has to allow them."""
        return 1


@dataclass(frozen=True, slots=True)
class Source:
    """Where an engine gets its weights from."""

    path: Path | None = None
    """The GGUF file or its first shard; None where the weights are not a file here."""
    url: str = ""
    """Of a server; empty where there is none."""


class Engine(Protocol):
    """One model at a time, in whatever process or server runs it."""

    def open(self, source: Source, setup: Setup) -> Iterator[Event | Ending]:
        """Load the model and make a context; events as they come, and last, exactly once, how it ended.

        Where only the setup's n_ctx differs from what is open, a loaded model may stay.
        """
        ...

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Carry out a workload; events as they come, and last, exactly once, how it ended."""
        ...

    def unsupported(self, workload: type[Workload]) -> str:
        """Why this engine cannot carry out such a workload, in one line; empty where it can."""
        ...

    def close(self) -> None:
        """End it and give its memory back; may be called twice."""
        ...


class Launch(Protocol):
    """Starts an engine; the function `launch` of an engine's module."""

    def __call__(self, cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None) -> Engine:
        """Start it; `cancel`, once set, ends what it does, and `hold`, while set, pauses it between two steps."""
        ...


class EngineModule(Protocol):
    """What the module `engine` of a folder in `ggbench.engines` offers."""

    SETUP: type[Setup]
    """The record that describes how it loads a model."""
    launch: Launch


def engine_module(name: str) -> EngineModule:
    """The module of an engine. Raises StoreError for one that this ggbench does not have."""
    found: EngineModule = load_plugin("ggbench.engines", name, "engine", "engine")
    return found
