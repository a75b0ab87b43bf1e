"""Runs of one quant joined, for tables, comparisons and picks. Never stored."""

from __future__ import annotations

from typing import TypeVar

from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.machine.records import Environment, GpuUse
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.runs.run import DecodeTiming, LargestContext, PromptTimings, Result, Run
from ggbench.stats.decode_timing import (
    DecodeLimit,
    DepthSpeed,
    LatencySummary,
    LineFit,
    PrefillSpeed,
    ServingFigures,
)

_R = TypeVar("_R", bound=Result)


class QuantSummary(Record):
    """A run as tables and comparisons see it, whatever its kind."""

    run: Run

    def result(self, kind: type[_R]) -> _R | None:
        """Return the result if it is of this type."""
        return self.run.result if isinstance(self.run.result, kind) else None

    @property
    def subject(self) -> Subject:
        return self.run.subject

    @property
    def setup(self) -> EngineConfig:
        return self.run.head.setup

    @property
    def memory(self) -> Memory:
        return self.run.memory

    @property
    def outcome(self) -> Outcome:
        return self.run.outcome

    @property
    def environment(self) -> Environment | None:
        return self.run.head.environment

    @property
    def gpu_use(self) -> GpuUse | None:
        return self.run.gpu_use

    @property
    def decode(self) -> DecodeTiming | None:
        return self.result(DecodeTiming)

    @property
    def unsteady(self) -> str:
        """Reasons not to trust the times; empty if the machine was steady."""
        return self.run.unsteady

    @property
    def others_share(self) -> float:
        """Share of the CPUs that other programs took from the engine; 0 if unknown."""
        return self.run.others_share

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
        found = self.decode or self.result(PromptTimings)
        return found.serving if found else None

    @property
    def context(self) -> LargestContext | None:
        return self.result(LargestContext)

    @property
    def prefills(self) -> tuple[PrefillSpeed, ...]:
        found = self.result(PromptTimings)
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
        return self.context.max_n_ctx if self.context and self.run.is_complete else None

    @property
    def max_n_ctx_verified(self) -> bool | None:
        """Whether tokens were decoded at its end; None without a `max_n_ctx`."""
        return None if self.max_n_ctx is None or self.context is None else self.context.verified_by_decode

    @property
    def max_n_ctx_reason(self) -> str:
        """Why the search found none, or a caveat of its result, in one line; empty without a search."""
        run, context = self.run, self.context
        if context is None:
            return ""
        if not run.is_complete or context.max_n_ctx is None:
            return run.reason or run.outcome.text
        if not run.reason and context.first_fail_n_ctx is None:
            return f"none above {context.max_n_ctx:,} was tried"
        return run.reason

    def asked(self, name: str) -> int | None:
        """Return a number from the run's settings, if its kind has one with this name."""
        asked: int | None = getattr(self.run.head.settings, name, None)
        return asked
