"""A search for the largest context: settings, probes, and the result."""

from __future__ import annotations

from typing import Annotated, Literal

from ggbench.engines.endings import Outcome
from ggbench.fields import FLAG, SIZE_OR_NONE, Option
from ggbench.machine.records import GpuProcess
from ggbench.record import Record
from ggbench.runs.run import LargestContext, Run, Settings
from ggbench.show.words import say
from ggbench.units import format_bytes

ProbeKind = Literal["dry", "alloc", "decode"]
"""A real context, or a decode at the end of one; `dry` only in runs of an earlier ggbench."""


class MaxctxSettings(Settings, Record):
    """Settings of the search; the setup's `n_ctx` is a ceiling."""

    reserve_bytes: Annotated[
        int | None,
        Option(
            "--reserve",
            "Memory to leave free. Default: 1/4 of main memory, at most 1 GiB; with --memory-limit 64 MiB; for GPUs 0.",
            SIZE_OR_NONE,
        ),
    ] = None
    """Memory to leave free; None: a quarter, at most 1 GiB, of main memory without a limit."""
    beyond_train: Annotated[bool, Option("--beyond-train", "Search beyond the training context.", FLAG)] = False
    """Search beyond the training context, which is otherwise the ceiling."""
    prove: Annotated[
        bool, Option("--prove/--no-prove", "Try the largest context: decode at its end.", FLAG)
    ] = True


class Probe(Record):
    """A tried n_ctx, and whether it works."""

    n_ctx: int
    kind: ProbeKind
    outcome: Outcome
    seconds: float
    kv_bytes: int | None = None
    """None if the probe ended before the engine reported it."""
    compute_bytes: int | None = None
    reason: str = ""
    """Why it did not pass, in one line."""
    missing_bytes: int | None = None
    """Bytes that the first failed allocation lacked; None if unknown."""
    device: str = ""
    """Device that ran out of memory, if there are several; empty for a single memory."""

    @property
    def passed(self) -> bool:
        """Whether this n_ctx works, as far as this probe shows."""
        return self.outcome is Outcome.COMPLETED

    @property
    def is_answer(self) -> bool:
        """Whether it shows if the n_ctx works; a cancelled or timed-out probe does not."""
        return self.outcome not in (Outcome.CANCELLED, Outcome.TIMED_OUT)

    @property
    def is_dry(self) -> bool:
        return self.kind == "dry"

    @property
    def is_proof(self) -> bool:
        """Whether tokens were decoded at the end."""
        return self.kind == "decode"


class SearchPlan(Record, kw_only=True):
    """Expectations of a search before anything is allocated."""

    planned_n_ctx: int | None = None
    """The max n_ctx of `plan`: the longest context that fits with the weights, by the dry allocator."""
    theory_n_ctx: int | None = None
    """Context that fits by weights and KV cache, for an engine that cannot be run dry; None for others, or if the
    header does not determine it."""
    ceiling_n_ctx: int | None = None
    """Upper end of the search."""
    budget_bytes: int | None = None
    """Memory for weights and context, counted like in `plan`."""
    memory_bytes: int | None = None
    """The limit or free memory that contains the budget; None in runs that did not store it."""
    memory_source: str = ""
    reserve_bytes: int = 0
    """Memory excluded from the budget."""
    reserve_source: str = ""
    """Why it is excluded, for display."""
    draft: str = ""
    """Name of the draft model that is loaded with the model; empty for none."""
    gpu_processes: tuple[GpuProcess, ...] = ()
    """Programs that used GPU memory before the search; empty if none did, or for a search in main memory."""
    warnings: tuple[str, ...] = ()
    """Notes for the user, one line each, e.g. that the context exceeds the training context."""


class MaxctxResult(LargestContext, kw_only=True):
    """The largest context of one quant on this machine, and every probe that led to it."""

    no_one_memory = "searched for the largest n_ctx"

    plan: SearchPlan = SearchPlan()
    n_ctx_slot: int | None = None
    """Tokens that one slot can have of `max_n_ctx`."""
    probes: tuple[Probe, ...] = ()
    """In the order of trial."""
    warnings: tuple[str, ...] = ()
    """Notes of the plan and of the result."""

    @property
    def budget_bytes(self) -> int | None:
        """Memory for weights and context."""
        return self.plan.budget_bytes

    @property
    def n_allocations(self) -> int:
        """Number of contexts actually allocated."""
        return sum(not probe.is_dry and not probe.is_proof for probe in self.probes)

    @property
    def seconds(self) -> float:
        """Time of all probes, without loading."""
        return sum(probe.seconds for probe in self.probes)


def outcome_text(probe: Probe, program: str) -> str:
    """`loads`, `decodes at its end`, `does not load: llama.cpp refused`; `program` runs the model."""
    tried = "decode" if probe.is_proof else "load"
    if not probe.is_answer:
        return say(f"maxctx.{tried}_unknown", why=probe.outcome.text)
    if probe.passed:
        return say(f"maxctx.{tried}_passed")
    why = probe.outcome.text
    if probe.missing_bytes is not None:
        why = say("maxctx.short", n_bytes=format_bytes(probe.missing_bytes))
    elif probe.outcome in (Outcome.CRASHED, Outcome.FAILED):
        why = say(f"maxctx.{probe.outcome.value}", program=program, reason=probe.reason)
    where = f" on {probe.device}" if probe.device else ""
    return say(f"maxctx.{tried}_failed", why=f"{why}{where}")


def context_of(run: Run) -> MaxctxResult:
    return run.result if isinstance(run.result, MaxctxResult) else MaxctxResult()
