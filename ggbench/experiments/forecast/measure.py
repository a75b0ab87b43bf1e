"""The forecast experiment: the speed of a model without its file, from twins of a few of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.engines.contract import BatchAtDepth, EngineConfig
from ggbench.errors import UsageError
from ggbench.experiments.forecast.record import (
    ForecastModel,
    ForecastPlacement,
    ForecastResult,
    ForecastSettings,
    ForecastTwin,
    TwinTiming,
)
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.recording import Recording
from ggbench.runs.run import Run, Settings
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.runs.progress import Measuring
    from ggbench.runs.session import Session
    from ggbench.stats.speed_curve import SpeedCurve


class ForecastExperiment(Experiment):
    """Time twins of a few layers alternately, then extrapolate to the model."""

    kind = "forecast"
    settings_type = ForecastSettings
    result_type = ForecastResult
    needs = (BatchAtDepth,)
    needs_download = False
    observed = (ForecastModel, ForecastPlacement, ForecastTwin, TwinTiming)

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if setup.n_ctx is not None:
            raise UsageError("a forecast covers all lengths at once", "omit --n-ctx")

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Raises Unsupported if the bytes of a step cannot be computed from the model's header."""
        from ggbench.experiments.forecast.twin_timer import time_twins

        return (yield from time_twins(session))

    def reduce(self, recording: Recording) -> ForecastResult | None:
        from ggbench.experiments.forecast.step_forecast import step_forecast

        model, twins = (
            recording.last(ForecastModel),
            sorted(recording.of(ForecastTwin), key=lambda each: each.number),
        )
        placements = recording.of(ForecastPlacement)
        if model is None or not twins or not placements:
            return None
        found = step_forecast(placements, twins, recording.of(TwinTiming))
        numbers = " and ".join(str(twin.cost.n_layer) for twin in twins)
        basis = f"twins of {numbers} of {model.cost.n_layer} layers"
        if len(twins) == 1:
            basis = f"a twin of all {counted(model.cost.n_layer, 'layer')}"
        basis = ", ".join([basis, *(each.name for each in placements if each.name)])
        limit = recording.last(DecodeLimit) if len(placements) == 1 else None
        return ForecastResult(basis, found.b_ms, found.w_tokens_per_ms, found.tok_s, found.prefill_ms, limit)

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedCurve | None:
        from ggbench.stats.speed_curve import SpeedCurve, inverse, rates_of_line

        found = run.result
        if not isinstance(found, ForecastResult) or len(found.tok_s) < 2 or n_seqs > 1:
            return None
        steps, rates = tuple((n, inverse(tok_s)) for n, tok_s in sorted(found.tok_s)), None
        if found.limit is not None and found.b_ms is not None:
            w = found.w_tokens_per_ms
            rates = rates_of_line(found.limit, found.b_ms.value, None if w is None else w.value)
        reach, is_steady = steps[-1][0], not run.unsteady
        return SpeedCurve("forecast", found.basis, steps, found.prefill_ms, is_steady, reach=reach, rates=rates)


EXPERIMENT = ForecastExperiment()
