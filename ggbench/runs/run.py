"""One run: its settings, its ending, the memory it took, and the result of its kind."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import field

from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import UsageError
from ggbench.machine.records import Environment, GpuUse
from ggbench.models.subject import Subject
from ggbench.stats.decode_timing import (
    DecodeLimit,
    DepthSpeed,
    LatencySummary,
    LineFit,
    PrefillSpeed,
    ServingFigures,
    b_ratio,
    w_ratio,
)


class Settings:
    """Settings of one kind of experiment. Each kind has its own frozen record."""

    __slots__ = ()

    @property
    def n_ctx_needed(self) -> int | None:
        """Tokens that the run puts into the KV cache at most; None if that is not known before."""
        return None


class Result:
    """Result of one kind of experiment, its own frozen record.

    A `DecodeTiming`, `PromptTimings` or `LargestContext` is in the tables of quants and in decisions made from them.
    """

    no_one_memory: ClassVar[str] = ""
    """Reason that the run's memory is not that of one context, in a few words; empty if it is."""

    __slots__ = ()


class DecodeTiming(Result, msgspec.Struct, frozen=True):
    """A result with timed steps of one sequence: latency against position."""

    n_prompt: int
    n_gen: int
    """Tokens decoded and timed, over all repetitions."""
    prefill_ms: float | None = None
    """Median time to read the prompt."""
    fit: LineFit | None = None
    latency: LatencySummary | None = None
    limit: DecodeLimit | None = None
    """Set by the memory that holds the weights; None if its bandwidth, or the bytes read for a token, are unknown."""
    unsteady: str = ""
    """Reasons not to trust the samples; empty if the machine was steady."""
    serving: ServingFigures | None = None
    """How a server answered; None if an engine on this machine ran the model."""
    depths: tuple[DepthSpeed, ...] = ()
    """Speed at each requested depth; empty for one decode after its prompt."""

    @property
    def w_ratio(self) -> float | None:
        """Measured W over the limit's; 1.0 is the physical limit."""
        return w_ratio(self.fit, self.limit)

    @property
    def b_ratio(self) -> float | None:
        """The limit's B over the measured; 1.0 is the physical limit."""
        return b_ratio(self.fit, self.limit)

    def b_w16_ms(self, bpw: float | None) -> float | None:
        """B as if every weight had 16 bits, to compare quants (article, section 6.4)."""
        return None if self.fit is None or self.fit.b_ms is None or not bpw else self.fit.b_ms * 16 / bpw


class PromptTimings(Result, msgspec.Struct, frozen=True):
    """A result with timed prompts."""

    prefills: tuple[PrefillSpeed, ...] = ()
    """Timed prompts, by rising length."""
    limit: DecodeLimit | None = None
    """A decode's limit, set by the memory that holds the weights; None if unknown."""
    serving: ServingFigures | None = None
    """How a server answered; None if an engine on this machine ran the model."""


class LargestContext(Result, msgspec.Struct, frozen=True, kw_only=True):
    """A result with the largest context that works."""

    max_n_ctx: int | None = None
    """The largest that passed; None if not one did."""
    first_fail_n_ctx: int | None = None
    """256 above `max_n_ctx`; None if the ceiling was reached instead."""
    verified_by_decode: bool = False
    """Whether a full n_ubatch and one more token were decoded at the far end of `max_n_ctx`."""

    @property
    def budget_bytes(self) -> int | None:
        """Memory for weights and context; None if unknown."""
        return None


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is known before anything is measured."""

    kind: str
    """Name of its experiment, which is that of its folder."""
    subject: Subject
    setup: EngineConfig
    settings: Settings
    environment: Environment | None = None
    """None if no engine was ever ready, or an older ggbench wrote what this one cannot read."""
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
    """Reason that it did not complete, in one line."""
    memory: Memory = field(default_factory=Memory)
    gpu_use: GpuUse | None = None
    """None if no GPU was used, or nothing was read of one."""
    result: Result | None = None
    """None if nothing was measured."""
    finished_at: str | None = None
    """UTC, ISO 8601; None while running, and for an interrupted run, whose end is unknown."""
    run_id: int | None = None
    """In the store; None if the run is not kept."""

    @property
    def subject(self) -> Subject:
        return self.head.subject

    @property
    def is_imported(self) -> bool:
        """Whether it was read from a file, and says nothing of this machine."""
        return self.head.environment is not None and self.head.environment.imported is not None

    @property
    def unsteady(self) -> str:
        """Reasons not to trust the times; empty if the machine was steady. Every mark `!` is decided here."""
        if isinstance(self.result, DecodeTiming):
            return self.result.unsteady
        if found := getattr(self.result, "unsteady", ""):
            return str(found)
        return "; ".join(self.head.environment.changes) if self.head.environment else ""

    @property
    def is_complete(self) -> bool:
        return self.outcome is Outcome.COMPLETED


def require_positive(what: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{what} is {value}", "it has to be at least 1")
