"""Find the largest n_ctx that works: predicted in milliseconds, narrowed with real contexts, proven by a decode.

Any ending of a worker shows whether the n_ctx works. Only a model that does not load, or whose smallest context
does not work, is an error.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import EngineConfig, ProveContext, check_step
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings, Probe, SearchPlan
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording
from ggbench.runs.run import Result, Settings
from ggbench.units import KV_CELLS, format_count

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session


SEARCH_TIMEOUT_S = 3600.0
"""Longest time without a message from a worker that decodes at the end of a context, which is slow on a CPU."""


class MaxctxExperiment(Experiment):
    """Predict with a dry allocator, create real contexts, prove the largest."""

    kind: ClassVar[str] = "maxctx"
    settings_type = MaxctxSettings
    result_type = MaxctxResult
    needs = (ProveContext,)
    observed = (Probe, SearchPlan)
    measures_speed: ClassVar[bool] = False
    asked_config = ("memory_limit_bytes",)
    caution: ClassVar[str] = (
        "Without a memory limit it uses nearly all free memory: other programs may become slow or be killed."
    )
    timeout_s: ClassVar[float | None] = SEARCH_TIMEOUT_S

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        check_step(setup, setup.n_seq_max)
        if isinstance(settings, MaxctxSettings) and settings.mmproj:
            LlamaConfig.of(setup)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises DoesNotFit, EngineFailed, Unsupported, and like `materialize`."""
        from ggbench.experiments.maxctx.search import search_context

        return (yield from search_context(session))

    def reduce(self, recording: Recording) -> MaxctxResult:
        probes, plan = recording.of(Probe), recording.last(SearchPlan) or SearchPlan()
        real = [probe for probe in probes if not probe.is_dry and probe.is_answer]
        first_fail = min((probe.n_ctx for probe in real if not probe.passed), default=None)
        passed = [probe for probe in real if probe.passed and (first_fail is None or probe.n_ctx < first_fail)]
        if any(
            probe.is_proof and not probe.passed for probe in real
        ):  # contexts that were only created no longer count
            passed = [probe for probe in passed if probe.is_proof]
        largest = max((probe.n_ctx for probe in passed), default=None)
        n_streams = recording.head.setup.n_streams
        about = _about_training(largest, plan, recording.head.subject.n_ctx_train, n_streams)
        return MaxctxResult(
            plan=plan,
            max_n_ctx=largest,
            n_ctx_slot=None if largest is None else largest // n_streams,
            first_fail_n_ctx=first_fail,
            verified_by_decode=any(each.is_proof and not each.reason and each.n_ctx == largest for each in passed),
            probes=probes,
            warnings=(*plan.warnings, about) if about else plan.warnings,
        )

    def memory(self, recording: Recording, result: Result | None) -> Memory:
        largest = result.max_n_ctx if isinstance(result, MaxctxResult) else None
        found = [memory for memory in recording.of(Memory) if memory.n_ctx == largest and largest is not None]
        return found[-1] if found else Memory()

    def stated(self, job: Job) -> dict[str, object]:
        settings = job.settings
        assert isinstance(settings, MaxctxSettings)
        return super().stated(job) | ({"mmproj": settings.mmproj} if settings.mmproj else {})


def _about_training(largest: int | None, plan: SearchPlan, n_train: int | None, n_streams: int) -> str:
    """Return how the answer compares with the training context; empty if it is lower."""
    if largest is None or not n_train:
        return ""
    trained = f"the {format_count(n_train)} tokens that the model was trained on"
    if largest // n_streams > n_train:
        of_slot = " of each slot" if n_streams > 1 else ""
        return f"n_ctx {format_count(largest // n_streams)}{of_slot} exceeds {trained}"
    if (
        largest == plan.ceiling_n_ctx == n_train // KV_CELLS * KV_CELLS * n_streams
        and (plan.planned_n_ctx or 0) > largest
    ):
        least = "at least " if plan.is_planned_higher else "about "
        return f"the search ended at {trained}; {least}{format_count(plan.planned_n_ctx)} would fit: --beyond-train"
    return ""


EXPERIMENT = MaxctxExperiment()
