"""Speed by input length and batch size, as defined by the published tables."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.errors import UsageError
from ggbench.experiments.speed.record import BatchLimit, Case, CaseEnded, SpeedCase, SpeedResult, SpeedSettings
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.progress import ModelReady
from ggbench.runs.recording import Recording
from ggbench.runs.run import Settings
from ggbench.runs.session import RunContext
from ggbench.stats.decode_timing import ServerFound

if TYPE_CHECKING:
    from ggbench.experiments.speed.cases import CaseSteps
    from ggbench.runs.progress import Progress
    from ggbench.runs.run import Run
    from ggbench.runs.session import Session
    from ggbench.stats.speed_estimate import RunSpeed


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
        if setup.n_batch is not None and isinstance(settings, SpeedSettings):
            largest = max(settings.batches)
            if setup.n_batch < largest:
                raise UsageError(
                    f"a step of {largest} sequences does not fit into an n_batch of {setup.n_batch}",
                    f"use --n-batch {largest} or more",
                )

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

    def speed_of(self, run: Run) -> RunSpeed | None:
        from ggbench.stats.speed_estimate import measured_speed, measured_steps

        if not isinstance(run.result, SpeedResult):
            return None
        line = next((each for each in run.result.lines if each.n_seqs == 1), None)
        alone = [each for each in run.result.cases if each.case.n_seqs == 1 and each.seconds is not None]
        cases = [(each.case, each.latency) for each in alone if each.latency is not None]
        if line is None or not cases:
            return None
        latencies = [(case.n_input + (case.n_gen + 1) // 2, latency) for case, latency in cases]
        reach = max(case.n_input + case.n_gen for case, _ in cases)
        return measured_speed(run.run_id, measured_steps(latencies, line.fit, line.limit), reach)


EXPERIMENT = SpeedExperiment()


def ended_cases(recording: Recording) -> tuple[SpeedCase, ...]:
    from ggbench.experiments.speed.cases import case_figures

    return case_figures(recording.of(CaseEnded), _steps(recording), recording.head.subject.n_ctx_train)


def _steps(recording: Recording) -> dict[Case, CaseSteps]:
    from ggbench.experiments.speed.cases import CaseSteps, ServedRequest, shared_steps

    found = {}
    timings = {each.series: each for each in recording.requests}
    for case in recording.settings(SpeedSettings).cases:
        names = recording.series_of(case.series)
        parts = zip(names, recording.timed(names), strict=True)
        requests = [ServedRequest(timings[name], steps) for name, steps in parts if name in timings]
        if requests:
            times = shared_steps(requests)
            found[case] = CaseSteps(times.position, times.step_ns, requests)
        elif names:
            times = recording.token_times(names)
            found[case] = CaseSteps(times.position, times.step_ns)
    return found


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
