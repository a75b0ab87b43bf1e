"""Tune: the settings that beat the defaults on this machine, with the gain and its interval."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.tune.record import (
    TuneCandidate,
    TuneDropped,
    TuneFailed,
    TuneNoise,
    TuneResult,
    TuneSegment,
    TuneSettings,
)
from ggbench.models.command_line import named, reproduce, stated_bandwidth
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording
from ggbench.stats.decode_timing import Bandwidth

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session

_DEFAULTS = TuneSettings()


class TuneExperiment(Experiment):
    """Race settings against the defaults, then measure the gain of the best again."""

    kind: ClassVar[str] = "tune"
    settings_type = TuneSettings
    result_type = TuneResult
    needs_file: ClassVar[str] = "a server took its settings when it started"
    needs_gguf: ClassVar[str] = "its settings are llama.cpp's"
    observed = (TuneCandidate, TuneSegment, TuneDropped, TuneFailed, TuneNoise)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises Unsupported for an engine without such settings, DoesNotFit and UsageError for too little time."""
        from ggbench.experiments.tune.search import search

        return (yield from search(session))

    def reduce(self, recording: Recording) -> TuneResult | None:
        """The table of all candidates, and the gain of the finalist as far as it was measured."""
        from ggbench.experiments.tune.tuning import tune_result

        return tune_result(
            recording.settings(TuneSettings).objective,
            recording.of(TuneCandidate),
            recording.of(TuneSegment),
            recording.of(TuneDropped),
            recording.of(TuneFailed),
            recording.last(TuneNoise),
        )

    def command(self, job: Job, bandwidth: Bandwidth | None = None) -> str:
        """`ggbench tune MODEL QUANT` with every option that is not the default."""
        settings = job.settings
        assert isinstance(settings, TuneSettings)
        options: dict[str, object] = {}
        if settings.depths != _DEFAULTS.depths:
            options["depth"] = ",".join(map(str, settings.depths))
        if settings.objective != _DEFAULTS.objective:
            options["for"] = settings.objective
        if settings.within_s != _DEFAULTS.within_s:
            options["within"] = f"{settings.within_s:g}s"
        if settings.kv_types:
            options["allow-kv"] = ",".join(settings.kv_types)
        if settings.n_prompt != _DEFAULTS.n_prompt:
            options["n-prompt"] = settings.n_prompt
        return reproduce("tune", named(job.target), job.setup, options | stated_bandwidth(bandwidth))


EXPERIMENT = TuneExperiment()
