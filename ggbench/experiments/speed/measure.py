"""Speed by input length and batch size, as defined by the published tables."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, check_users
from ggbench.errors import UsageError
from ggbench.experiments.speed.record import BatchLimit, Case, CaseEnded, SpeedCase, SpeedResult, SpeedSettings
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.progress import ModelReady
from ggbench.runs.recording import Recording
from ggbench.runs.run import Settings
from ggbench.runs.session import RunContext
from ggbench.stats.decode_timing import DepthSpeed, ServerFound

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.run import Run
    from ggbench.runs.session import Session
    from ggbench.stats.requests import BatchSteps
    from ggbench.stats.speed_estimate import SpeedEstimate


class SpeedExperiment(Experiment):
    """Load once, then measure the cases in turn, each in its own context."""

    kind: ClassVar[str] = "speed"
    settings_type = SpeedSettings
    result_type = SpeedResult
    observed = (BatchLimit, CaseEnded)
    timeout_s: ClassVar[float | None] = 3600.0
    """Far into a long prompt, a batch may take minutes on a CPU without a message."""

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if setup.n_ctx is not None:
            raise UsageError("speed sizes the context for each case", "omit --n-ctx")
        if isinstance(settings, SpeedSettings):
            check_users(setup, max(settings.batches))

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises Unsupported for an engine that cannot create contexts, and DoesNotFit if no memory is free."""
        from ggbench.experiments.speed.case_runner import run_cases

        return (yield from run_cases(session))

    def reduce(self, recording: Recording) -> SpeedResult:
        from ggbench.experiments.speed.cases import batch_lines
        from ggbench.stats.decode_timing import serving_of

        limits = {each.n_seqs: each.limit for each in recording.of(BatchLimit)}
        serving = serving_of(recording.last(ServerFound), recording.requests)
        return SpeedResult(ended_cases(recording), batch_lines(_steps(recording), limits), serving)

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedEstimate | None:
        from ggbench.stats.speed_estimate import speed_at_depths

        if not isinstance(run.result, SpeedResult):
            return None
        line = next((each for each in run.result.lines if each.n_seqs == n_seqs), None)
        cases = [each for each in run.result.cases if each.case.n_seqs == n_seqs and each.seconds is not None]
        depths = [
            DepthSpeed(each.case.n_input, each.case.n_gen, each.latency.tok_s, 1, each.latency.tok_s_ci95)
            for each in cases
            if each.latency is not None
        ]
        is_steady = not run.unsteady
        return None if line is None else speed_at_depths(run.run_id, depths, line.fit, line.limit, is_steady=is_steady)


EXPERIMENT = SpeedExperiment()


def ended_cases(recording: Recording) -> tuple[SpeedCase, ...]:
    from ggbench.experiments.speed.cases import case_figures

    return case_figures(recording.of(CaseEnded), _steps(recording), recording.head.subject.n_ctx_train)


def _steps(recording: Recording) -> dict[Case, BatchSteps]:
    steps = {case: recording.batch_steps(case.series) for case in recording.settings(SpeedSettings).cases}
    return {case: found for case, found in steps.items() if found is not None}


def run_within(context: RunContext, jobs: Sequence[Job]) -> Generator[Progress]:
    """Run the jobs in turn, dividing the time in their settings among those left.

    Anything before the load of a model, such as a download, does not count.
    """
    spent_s = 0.0
    for index, job in enumerate(jobs):
        if context.cancel.is_set():
            return
        settings, began = job.settings, 0.0
        assert isinstance(settings, SpeedSettings)
        if settings.within_s is not None and len(jobs) > 1:
            left_s = max(0.0, settings.within_s - spent_s) / (len(jobs) - index)
            job = replace(job, settings=replace(settings, within_s=round(left_s, 1)))
        with contextlib.closing(run_job(context, job, index, len(jobs))) as progress:
            for record in progress:
                if isinstance(record, ModelReady):
                    began = began or time.monotonic()
                yield record
        spent_s += time.monotonic() - began if began else 0.0
