"""The contract of engines: one opens a model under a setup, carries out workloads, and ends each in a value.

An engine is one folder in `ggbench.engines`, named by its setup's `engine`, whose module `engine` has a function
`launch`. It imports nothing of the experiments, and they never ask which engine they have: `unsupported` says what it
cannot do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

import msgspec

from ggbench.errors import Unsupported, UsageError
from ggbench.plugins import load_plugin

if TYPE_CHECKING:
    from ggbench.engines.endings import Ending
    from ggbench.engines.events import Event

Stage = Literal["start", "load", "context", "prefill", "decode", "score"]

DEFAULT_TIMEOUT_S = 600.0
"""Longest time without a message before a worker counts as hung: a long prompt on a slow CPU reports nothing."""


ON_OFF = {True: "on", False: "off"}


class EngineConfig:
    """How one engine loads a model. A stored setup is read as the type of its engine."""

    __slots__ = ()
    engine: ClassVar[str]
    """Name of the folder in `ggbench.engines` that runs it."""
    program: ClassVar[str]
    """What runs the model, as texts for people name it."""
    loads_file: ClassVar[bool] = True
    """Whether the engine loads a model file of this machine."""
    loads_gguf: ClassVar[bool] = False
    survives_failure: ClassVar[bool] = True
    """Whether a loaded model can be used after a decode that failed."""
    sizes_dry: ClassVar[bool] = False
    """Whether the engine can say what a context takes without making it."""
    failure_hints: ClassVar[Mapping[str, str]] = {}
    """What to do about a run that failed, by words of its reason; the first that matches counts."""
    in_words: ClassVar[frozenset[str]] = frozenset()
    """Fields that MODEL and QUANT of a command line say, so that they are no options."""

    n_ctx: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_gpu_layers: int = -1
    kv_offload: bool = True
    threads: int | None = None
    main_gpu: int | None = None
    flash_attn: str = ""
    memory_limit_bytes: int | None = None
    base_url: str = ""
    """URL of the server that is asked; empty for other engines."""

    @property
    def may_use_gpu(self) -> bool:
        return False

    @property
    def type_k(self) -> str | None:
        return None

    @property
    def type_v(self) -> str | None:
        return None

    @property
    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Pattern and buffer type of tensors that are kept elsewhere than their layer."""
        return ()

    @property
    def described(self) -> Mapping[str, str]:
        """What else says how a model is loaded, as people read it, by its name."""
        return {}

    @property
    def cache_types(self) -> tuple[str, str] | None:
        return None if self.type_k is None or self.type_v is None else (self.type_k, self.type_v)

    def speed_part(self, threads: int, n_layer: int | None, *, has_gpu: bool) -> Self | None:
        """Return the part that decides the speed of a model of `n_layer` layers, with `threads` unless it names some.

        None if runs of the engine say nothing about others.
        """
        return None

    def without_placement(self) -> Self:
        return self

    def less_memory(self, *, has_gpu: bool, has_context: bool) -> str:
        """Say what would need less memory; `has_context` means that the weights fitted."""
        return "a smaller quant needs less"

    def check(self) -> None:
        """Raise UsageError for options that do not go together, which an engine refuses only once it has loaded."""

    def check_holds(self, n_tokens: int) -> None:
        """Raise UsageError if the given n_ctx is too small for a run, or the run too long for any context."""

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with its n_ctx, else with just enough for this many tokens."""
        return self

    def as_asked(self) -> Self:
        """Return the setup without what a kind of run decides itself: its n_ctx, its sequences and its outputs."""
        return self

    def with_threads(self, threads: int) -> Self:
        return self

    def with_context(self, n_tokens: int | None, n_seqs: int = 1) -> Self:
        """Return the setup with a context for this many tokens of each sequence; None makes none."""
        return self

    def held(self, limit_bytes: int | None, *, on_gpu: bool) -> Self:
        """Return the setup with this limit of a GPU's or of main memory; None is no limit."""
        return self

    @property
    def load_part(self) -> Self:
        """The setup with what concerns the context alone at its default: equal for two that load the same."""
        return self

    @classmethod
    def of(cls, config: EngineConfig) -> Self:
        """Return the config, known to be this engine's. Raises Unsupported for another's."""
        if not isinstance(config, cls):
            raise Unsupported(f"this needs {cls.program}, and {config.program} runs the model", "name a GGUF file")
        return config


def check_given(n_ctx: int | None, n_tokens: int) -> None:
    if n_ctx is not None and n_ctx < n_tokens:
        raise UsageError(
            f"n_ctx {n_ctx} does not hold the {n_tokens} tokens of this run",
            "omit --n-ctx to use just enough, or measure fewer tokens",
        )


class Request(msgspec.Struct, frozen=True):
    stage: ClassVar[Stage]
    """What failed if it fails."""


class Workload(Request, frozen=True):
    @property
    def n_outputs(self) -> int:
        """Most tokens of one of its batches whose logits it asks for; the setup's `n_outputs_max` has to allow them."""
        return 1


class Source(msgspec.Struct, frozen=True):
    path: Path | None = None
    """The GGUF file or its first shard; None if the weights are not a file here."""


class Engine(Protocol):
    """One model at a time, in whatever process or server runs it."""

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Load the model and make a context; yield events as they come, and last, exactly once, how it ended.

        If only the setup's n_ctx differs from what is open, a loaded model may stay. An engine that `sizes_dry`
        leaves `reserve_bytes` of each GPU in use free.
        """
        ...

    def estimate_memory(self, source: Source, setup: EngineConfig) -> Iterator[Event | Ending]:
        """Yield as `open`, but only report what it would take; Failed unless the config `sizes_dry`."""
        ...

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Carry out a workload; yield events as they come, and last, exactly once, how it ended."""
        ...

    def unsupported(self, workload: type[Workload]) -> str:
        """Return why this engine cannot carry out such a workload, in one line; empty if it can."""
        ...

    def close(self) -> None:
        """End it and free its memory; may be called twice."""
        ...


class Launch(Protocol):
    def __call__(self, cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None) -> Engine:
        """Start it; setting `cancel` ends what it does, and while `hold` is set it pauses between two steps."""
        ...


class EngineModule(Protocol):
    CONFIG: type[EngineConfig]
    launch: Launch


def engine_module(name: str) -> EngineModule:
    """Return the module of an engine. Raises StoreError for one that this ggbench does not have."""
    found: EngineModule = load_plugin("ggbench.engines", name, "engine", "engine")
    return found


def config_type(engine: str) -> type[EngineConfig]:
    return engine_module(engine).CONFIG


def launch_engine(
    config: EngineConfig,
    cancel: threading.Event | None = None,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    hold: threading.Event | None = None,
) -> Engine:
    return engine_module(config.engine).launch(cancel or threading.Event(), timeout_s=timeout_s, hold=hold)
