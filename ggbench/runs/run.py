"""One run: what was measured and how, how it ended, the memory it took, and the result of its kind."""

from __future__ import annotations

import msgspec
from msgspec import field

from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.memory import Memory
from ggbench.errors import UsageError
from ggbench.machine.records import Environment, GpuUse
from ggbench.models.subject import Subject


class Settings:
    """What one kind of experiment measures. Each kind has a frozen dataclass of its own."""

    __slots__ = ()

    @property
    def n_ctx_needed(self) -> int | None:
        """Tokens that the run puts into the KV cache at most; None where that is not known before."""
        return None


class Result:
    """What one kind of experiment found. Each kind has a frozen dataclass of its own."""

    __slots__ = ()


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is known before anything is measured."""

    kind: str
    """Name of its experiment, of the module in `ggbench.experiments` and of the presenter in `ggbench.show.kinds`."""
    subject: Subject
    setup: EngineConfig
    settings: Settings
    environment: Environment | None = None
    """None where no engine was ever ready, or an older ggbench wrote what this one cannot read."""
    command: str = ""
    """The command line that reproduces the run."""
    started_at: str = ""
    """UTC, ISO 8601; empty before it began."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment on one quant, whole or as far as it came."""

    head: RunHead
    outcome: Outcome
    """`INTERRUPTED` also for a run that is still going on, as `reason` says."""
    reason: str = ""
    """Why it did not complete, in one line."""
    memory: Memory = field(default_factory=Memory)
    gpu_use: GpuUse | None = None
    """None where no GPU was used, or nothing was read of one."""
    result: Result | None = None
    """None where nothing was measured."""
    finished_at: str | None = None
    """UTC, ISO 8601; None while running, and for an interrupted run, whose end is unknown."""
    run_id: int | None = None
    """In the store; None where the run is not kept."""

    @property
    def subject(self) -> Subject:
        """What was measured."""
        return self.head.subject

    @property
    def is_imported(self) -> bool:
        """Whether it was read from a file, and says nothing of this machine."""
        return self.head.environment is not None and self.head.environment.imported is not None

    @property
    def is_complete(self) -> bool:
        """Whether it ended as planned."""
        return self.outcome is Outcome.COMPLETED


def require_positive(what: str, value: int) -> None:
    """Raise UsageError for a count below 1."""
    if value < 1:
        raise UsageError(f"{what} is {value}", "it has to be at least 1")
