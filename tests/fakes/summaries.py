"""Changes of hand-made summaries: what dataclasses.replace does, at the depth at which a test needs it."""

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.memory import Memory
from ggbench.experiments.decode.record import DecodeResult
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings, Probe
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary


def with_run(summary: QuantSummary, **changes: object) -> QuantSummary:
    return QuantSummary((replace(summary.run, **changes), *summary.runs[1:]))


def with_head(summary: QuantSummary, **changes: object) -> QuantSummary:
    return with_run(summary, head=replace(summary.run.head, **changes))


def with_subject(summary: QuantSummary, **changes: object) -> QuantSummary:
    return with_head(summary, subject=replace(summary.subject, **changes))


def with_memory(summary: QuantSummary, **changes: object) -> QuantSummary:
    return with_run(summary, memory=replace(summary.memory, **changes))


def with_decode(summary: QuantSummary, **changes: object) -> QuantSummary:
    assert isinstance(summary.run.result, DecodeResult)
    return with_run(summary, result=replace(summary.run.result, **changes))


def search_of(
    run: Run, max_n_ctx: int | None, *, proven: bool = True, outcome: Outcome = Outcome.COMPLETED, reason: str = ""
) -> Run:
    """A search for the largest context of what the run measured."""
    first_fail = None if max_n_ctx is None else max_n_ctx + 256
    probes = () if max_n_ctx is None else (Probe(max_n_ctx, "alloc", Outcome.COMPLETED, 0.3),)
    result = MaxctxResult(max_n_ctx=max_n_ctx, first_fail_n_ctx=first_fail, verified_by_decode=proven, probes=probes)
    head = replace(run.head, kind="maxctx", settings=MaxctxSettings())
    memory = replace(run.memory, n_ctx=max_n_ctx) if max_n_ctx else Memory()
    return Run(head=head, outcome=outcome, reason=reason, memory=memory, result=result)
