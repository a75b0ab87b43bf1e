"""Find the largest n_ctx that works: predicted in milliseconds, narrowed with real contexts, proven by a decode.

Any ending of a worker shows whether the n_ctx works. Only a model that does not load, or whose smallest context
does not work, is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, ProveContext, check_step
from ggbench.engines.events import Memory
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings, Probe, SearchPlan
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.recording import Recording
from ggbench.runs.run import Result, Settings
from ggbench.show.words import say
from ggbench.units import KV_CELLS

if TYPE_CHECKING:
    from ggbench.runs.progress import Measuring
    from ggbench.runs.session import Session


SEARCH_TIMEOUT_S = 3600.0
"""Longest time without a message from a worker that decodes at the end of a context, which is slow on a CPU."""


class MaxctxExperiment(Experiment):
    """Predict with a dry allocator, create real contexts, prove the largest."""

    kind = "maxctx"
    settings_type = MaxctxSettings
    result_type = MaxctxResult
    needs = (ProveContext,)
    observed = (Probe, SearchPlan)
    measures_speed = False
    caution = (
        "Without a memory limit it uses nearly all free memory: other programs may become slow or be killed."
    )
    timeout_s = SEARCH_TIMEOUT_S

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        check_step(setup, setup.n_seq_max)

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Raises DoesNotFit, EngineFailed, Unsupported, and like `materialize`."""
        from ggbench.experiments.maxctx.search import search_context

        return (yield from search_context(session))

    def reduce(self, recording: Recording) -> MaxctxResult:
        probes, plan = recording.of(Probe), recording.last(SearchPlan) or SearchPlan()
        working, first_fail = _edge([probe for probe in probes if not probe.is_dry and probe.is_answer])
        largest = max((probe.n_ctx for probe in working), default=None)
        n_streams = recording.head.setup.n_streams
        about = _about_training(largest, plan, recording.head.subject.n_ctx_train, n_streams)
        return MaxctxResult(
            plan=plan,
            max_n_ctx=largest,
            n_ctx_slot=None if largest is None else largest // n_streams,
            first_fail_n_ctx=first_fail,
            verified_by_decode=any(
                each.is_proof and not each.reason and each.n_ctx == largest for each in working
            ),
            probes=probes,
            warnings=(*plan.warnings, about) if about else plan.warnings,
        )

    def memory(self, recording: Recording, result: Result | None) -> Memory:
        largest = result.max_n_ctx if isinstance(result, MaxctxResult) else None
        found = [memory for memory in recording.of(Memory) if memory.n_ctx == largest and largest is not None]
        peak_bytes = super().memory(recording, result).peak_bytes
        return replace(found[-1], peak_bytes=peak_bytes) if found else Memory()


def _edge(probes: Sequence[Probe]) -> tuple[list[Probe], int | None]:
    """Return the probes that passed below the smallest n_ctx that failed, and that n_ctx; None if none failed.

    Contexts that were only created do not count once a decode has failed.
    """
    failed = [probe for probe in probes if not probe.passed]
    first_fail = min((probe.n_ctx for probe in failed), default=None)
    passed = [probe for probe in probes if probe.passed and (first_fail is None or probe.n_ctx < first_fail)]
    if any(probe.is_proof for probe in failed):
        passed = [probe for probe in passed if probe.is_proof]
    return passed, first_fail


def _about_training(largest: int | None, plan: SearchPlan, n_train: int | None, n_streams: int) -> str:
    """Return how the answer compares with the training context; empty if it is lower."""
    if largest is None or not n_train:
        return ""
    of_slot = largest // n_streams
    if of_slot > n_train:
        return say("maxctx.beyond_training", n_ctx=of_slot, n_train=n_train)
    is_all = largest == plan.ceiling_n_ctx and of_slot == n_train // KV_CELLS * KV_CELLS
    if is_all and (plan.planned_n_ctx or 0) > largest:
        return say("maxctx.at_training", n_train=n_train, planned=plan.planned_n_ctx)
    return ""


EXPERIMENT = MaxctxExperiment()
