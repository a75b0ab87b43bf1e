"""A prefill: prompts of several lengths, each from an empty cache, after one uncounted pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.engines.contract import Prefill
from ggbench.engines.endings import Completed
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.recording import PromptTiming, Recording
from ggbench.stats.decode_timing import ServerFound

if TYPE_CHECKING:
    from ggbench.runs.progress import Measuring
    from ggbench.runs.run import Run
    from ggbench.runs.session import Session
    from ggbench.stats.speed_curve import SpeedCurve


class PrefillExperiment(Experiment):
    """Load, then time each length as often as requested."""

    kind = "prefill"
    settings_type = PrefillSettings
    result_type = PrefillResult
    keeps_n_ctx = True

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Time the lengths in the given order."""
        settings = session.settings(PrefillSettings)
        yield from session.prepare()
        ending = yield from session.open()
        for n_prompt in settings.lengths:
            if not isinstance(ending, Completed):
                break
            ending = yield from session.run(Prefill(n_prompt, settings.repeat, warmup=1))
        return ending

    def reduce(self, recording: Recording) -> PrefillResult:
        from ggbench.stats.decode_timing import serving_of
        from ggbench.stats.speed import prompt_speed

        wanted = recording.settings(PrefillSettings).lengths
        counts = {each.n_asked: each.n_prompt for each in recording.of(PromptTiming)}
        timings = sorted(recording.prompt_ns.items())
        speeds = tuple(prompt_speed(counts.get(n, n), elapsed) for n, elapsed in timings if n in wanted)
        serving = serving_of(recording.last(ServerFound), recording.requests)
        return PrefillResult(speeds, serving)

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedCurve | None:
        from ggbench.stats.speed_curve import SpeedCurve, measured_prefills

        prefills = (
            measured_prefills(run.result.prefills)
            if isinstance(run.result, PrefillResult) and n_seqs == 1
            else ()
        )
        return SpeedCurve("measured", f"run {run.run_id}", prefill_ms=prefills) if prefills else None


EXPERIMENT = PrefillExperiment()
