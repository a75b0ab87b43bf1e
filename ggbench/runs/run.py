"""A run: its settings, outcome, memory, and the result of its kind."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from msgspec import field

from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import UsageError
from ggbench.machine.readings import BUSY_SHARE
from ggbench.machine.records import Environment, GpuUse
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.stats.decode_timing import (
    DecodeLimit,
    DepthSpeed,
    LatencySummary,
    LineFit,
    PrefillSpeed,
    ServingFigures,
)
from ggbench.units import format_percent

_R = TypeVar("_R", bound="Result")


class Settings:
    """The settings of a kind of experiment, or the options that they are made of, each with its own frozen record."""

    __slots__ = ()

    @property
    def n_ctx_needed(self) -> int | None:
        """Maximum number of tokens in the KV cache; None if not known in advance."""
        return None

    @property
    def decodes(self) -> tuple[tuple[int, int], ...]:
        """The tokens in the cache before each decode, and the tokens that it times; empty if not known in advance."""
        return ()


class Result:
    """The result of a kind of experiment, each with its own frozen record.

    `DecodeTiming`, `PromptTimings` and `LargestContext` appear in tables of quants and in decisions based on them.
    """

    no_one_memory: ClassVar[str] = ""
    """Why the run's memory is not that of a single context, in a few words; empty if it is."""
    is_timed: ClassVar[bool] = True
    """Whether a disturbed machine spoils it; scores do not depend on time."""

    __slots__ = ()


class DecodeTiming(Result, Record):
    """A result with timed steps: latency against position, of one sequence or of several at once."""

    n_prompt: int
    n_gen: int
    """Tokens decoded and timed by one sequence, over all repetitions."""
    prefill_ms: float | None = None
    """Median time to read the prompts of all sequences."""
    fit: LineFit | None = None
    latency: LatencySummary | None = None
    limit: DecodeLimit | None = None
    """Limit by the memory of the weights; None if its bandwidth, or the bytes read per token, are unknown."""
    unsteady: str = ""
    """Reasons not to trust the samples; empty if the machine was steady."""
    serving: ServingFigures | None = None
    """How a server answered; None if an engine on this machine ran the model."""
    depths: tuple[DepthSpeed, ...] = ()
    """Speed at each requested depth; empty for one decode after its prompt."""
    n_seqs: int = 1
    """Users that each got a token in a step; `latency` is what one of them sees."""
    tok_s_together: float | None = None
    """Tokens/s of all users together, while all generate; None for a single one."""

    @property
    def w_ratio(self) -> float | None:
        """Measured W / limit of W: the share of the memory bandwidth (MBU); 1.0 is the physical limit."""
        measured, limit = self.fit and self.fit.w_tokens_per_ms, self.limit and self.limit.w_tokens_per_ms
        return measured / limit if measured and limit else None

    @property
    def b_ratio(self) -> float | None:
        """Limit of B / measured B: the share of the memory bandwidth (MBU); 1.0 is the physical limit."""
        return self.limit.b_ms / self.fit.b_ms if self.limit and self.fit and self.fit.b_ms else None

    def b_w16_ms(self, bpw: float | None) -> float | None:
        """B as if every weight had 16 bits, to compare quants (article, section 6.4)."""
        return None if self.fit is None or self.fit.b_ms is None or not bpw else self.fit.b_ms * 16 / bpw


class PromptTimings(Result, Record):
    """A result with timed prompts."""

    prefills: tuple[PrefillSpeed, ...] = ()
    """Timed prompts, in order of length."""
    serving: ServingFigures | None = None
    """How a server answered; None if an engine on this machine ran the model."""


class LargestContext(Result, Record, kw_only=True):
    """A result with the largest context that works."""

    max_n_ctx: int | None = None
    """The largest n_ctx that passed; None if none did."""
    first_fail_n_ctx: int | None = None
    """256 above `max_n_ctx`; None if the ceiling was reached instead."""
    verified_by_decode: bool = False
    """Whether a full n_ubatch and one more token were decoded at the end of `max_n_ctx`."""

    @property
    def budget_bytes(self) -> int | None:
        """Memory for weights and context; None if unknown."""
        return None


class RunHead(Record, kw_only=True):
    """The data of a run known before anything is measured."""

    kind: str
    """Name of its experiment, equal to the folder's."""
    subject: Subject
    setup: EngineConfig
    settings: Settings
    environment: Environment | None = None
    """None if no engine was ever ready, or if an older ggbench's record cannot be read."""
    command: str = ""
    """The command line that reproduces the run."""
    started_at: str = ""
    """UTC, ISO 8601; empty before the start."""


STILL_RUNNING = "still running"
"""Reason of a run in progress."""


class Run(Record, kw_only=True):
    """One experiment on one quant, complete or partial."""

    head: RunHead
    outcome: Outcome
    """`INTERRUPTED` also for a run in progress, as `reason` says."""
    reason: str = ""
    """Why it did not complete, in one line."""
    memory: Memory = field(default_factory=Memory)
    gpu_use: GpuUse | None = None
    """None if no GPU was used, or none could be read."""
    result: Result | None = None
    """None if nothing was measured."""
    finished_at: str | None = None
    """UTC, ISO 8601; None while running, or for an interrupted run, whose end is unknown."""
    run_id: int | None = None
    """Number in the store; None if the run is not stored."""

    @property
    def subject(self) -> Subject:
        return self.head.subject

    @property
    def is_imported(self) -> bool:
        """Whether it was imported from a file, so it does not describe this machine."""
        return self.environment is not None and self.environment.imported is not None

    @property
    def unsteady(self) -> str:
        """Reasons not to trust the times; empty if the machine was steady. Every mark `!` is decided here."""
        if self.result is not None and not self.result.is_timed:
            return ""
        own: str = getattr(self.result, "unsteady", "")
        changes = self.environment.changes if self.environment else ()
        found = [own, *(each for each in changes if each not in own)]
        if isinstance(self.result, DecodeTiming | PromptTimings):
            found.append(others_text(self.others_share))
        return "; ".join(filter(None, found))

    @property
    def others_share(self) -> float:
        """Share of the CPUs that other programs took from the engine; 0 if unknown, or if a GPU has the weights."""
        known = self.environment.others_share if self.environment else None
        return 0.0 if known is None or self.memory.weights_on_gpu else known

    @property
    def is_complete(self) -> bool:
        return self.outcome is Outcome.COMPLETED

    def result_as(self, kind: type[_R]) -> _R | None:
        """Return the result if it is of this type."""
        return self.result if isinstance(self.result, kind) else None

    @property
    def setup(self) -> EngineConfig:
        return self.head.setup

    @property
    def environment(self) -> Environment | None:
        return self.head.environment

    @property
    def decode(self) -> DecodeTiming | None:
        return self.result_as(DecodeTiming)

    @property
    def n_gen(self) -> int | None:
        """Tokens decoded in one repetition, the longest if the run was interrupted; None without a decode."""
        if self.decode is None:
            return None
        return min(self.decode.n_gen, self.asked("n_gen") or self.decode.n_gen)

    @property
    def repeat(self) -> int | None:
        """Requested decode repetitions; None without a decode."""
        return self.asked("repeat") if self.decode else None

    @property
    def serving(self) -> ServingFigures | None:
        """How a server answered; None if an engine on this machine ran the model."""
        found = self.decode or self.result_as(PromptTimings)
        return found.serving if found else None

    @property
    def context(self) -> LargestContext | None:
        return self.result_as(LargestContext)

    @property
    def prefills(self) -> tuple[PrefillSpeed, ...]:
        found = self.result_as(PromptTimings)
        return found.prefills if found else ()

    @property
    def fit(self) -> LineFit | None:
        return self.decode.fit if self.decode else None

    @property
    def latency(self) -> LatencySummary | None:
        return self.decode.latency if self.decode else None

    @property
    def depths(self) -> tuple[DepthSpeed, ...]:
        return self.decode.depths if self.decode else ()

    @property
    def limit(self) -> DecodeLimit | None:
        return self.decode.limit if self.decode else None

    @property
    def b_w16_ms(self) -> float | None:
        """B as if every weight had 16 bits."""
        return self.decode.b_w16_ms(self.subject.bpw) if self.decode else None

    @property
    def max_n_ctx(self) -> int | None:
        """The largest context that works, from a completed search; None if none was found."""
        return self.context.max_n_ctx if self.context and self.is_complete else None

    @property
    def max_n_ctx_verified(self) -> bool | None:
        """Whether tokens were decoded at its end; None without a `max_n_ctx`."""
        return None if self.max_n_ctx is None or self.context is None else self.context.verified_by_decode

    @property
    def max_n_ctx_reason(self) -> str:
        """Why the search found none, or a caveat of its result, in one line; empty without a search."""
        context = self.context
        if context is None:
            return ""
        if not self.is_complete or context.max_n_ctx is None:
            return self.reason or self.outcome.text
        if not self.reason and context.first_fail_n_ctx is None:
            return f"none above {context.max_n_ctx:,} was tried"
        return self.reason

    def asked(self, name: str) -> int | None:
        """Return a number from the run's settings, if its kind has one with this name."""
        asked: int | None = getattr(self.head.settings, name, None)
        return asked


def others_text(*shares: float) -> str:
    """Return `other programs used 60 % of the CPU`, or `38 % to 60 %` in several runs; empty for shares that hardly
    disturb.
    """
    found = sorted(share for share in shares if share >= BUSY_SHARE)
    ends = dict.fromkeys(format_percent(share) for share in (*found[:1], *found[-1:]))
    return f"other programs used {' to '.join(ends)} of the CPU" if ends else ""


def require_positive(what: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{what} is {value}", "use at least 1")
