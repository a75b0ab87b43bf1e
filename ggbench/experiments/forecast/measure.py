"""Forecast: the speed of a model that need not be here, from twins of a few of its layers."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.decisions.known import known_speeds
from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, UsageError
from ggbench.experiments.forecast.record import (
    PROMPTS,
    ForecastModel,
    ForecastPlacement,
    ForecastResult,
    ForecastSettings,
    ForecastTwin,
    TwinTiming,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.targets import Target
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording
from ggbench.runs.run import Run, RunHead, Settings
from ggbench.runs.session import subject_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import POSITIONS, SpeedEstimate, inverse, prefill_ms_at, step_ms_at, tok_s_at
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session
    from ggbench.stats.speed_estimate import RunSpeed


class ForecastExperiment(Experiment):
    """Measure twins of few layers by turns, then count."""

    kind: ClassVar[str] = "forecast"
    settings_type = ForecastSettings
    result_type = ForecastResult
    needs_file: ClassVar[str] = "twins are made of the header of a file"
    needs_gguf: ClassVar[str] = "its twins are timed with llama.cpp"
    observed = (ForecastModel, ForecastPlacement, ForecastTwin, TwinTiming)

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if setup.n_ctx is not None:
            raise UsageError("a forecast is for every length at once", "omit --n-ctx")

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises Unsupported for a model whose steps cannot be counted from its header."""
        from ggbench.experiments.forecast.twin_timer import time_twins

        return (yield from time_twins(session))

    def reduce(self, recording: Recording) -> ForecastResult | None:
        from ggbench.experiments.forecast.step_forecast import step_forecast

        model, twins = recording.last(ForecastModel), sorted(recording.of(ForecastTwin), key=lambda each: each.number)
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

    def speed_of(self, run: Run) -> RunSpeed | None:
        from ggbench.stats.speed_estimate import RunSpeed, inverse, rates_of_line

        found = run.result
        if not isinstance(found, ForecastResult) or len(found.tok_s) < 2:
            return None
        steps, rates = tuple((n, inverse(tok_s)) for n, tok_s in sorted(found.tok_s)), None
        if found.limit is not None and found.b_ms is not None:
            w = found.w_tokens_per_ms
            rates = rates_of_line(found.limit, found.b_ms.value, None if w is None else w.value)
        return RunSpeed("forecast", found.basis, steps, found.prefill_ms, reach=steps[-1][0], rates=rates)


EXPERIMENT = ForecastExperiment()


def known_forecasts(store: Store | None, targets: Sequence[Target], setup: LlamaConfig, budget: Budget) -> list[Run]:
    """Return what is known of each target; a run with the reason if nothing is, or its header cannot be read.

    Raises StoreError, and the header's error if there is only one target.
    """
    files: list[ModelFile | None] = []
    reasons = []
    for target in targets:
        try:
            files.append(target.header())
            reasons.append("nothing is known of it without measuring")
        except GgbenchError as error:
            if len(targets) == 1:
                raise
            files.append(None)
            reasons.append(error.message)
    runs = []
    known = known_speeds(store, files, setup, budget)
    for target, file, speed, reason in zip(targets, files, known, reasons, strict=True):
        head = RunHead(
            kind=EXPERIMENT.kind,
            subject=subject_of(target, file, setup),
            setup=setup,
            settings=ForecastSettings(),
            command=f"{EXPERIMENT.command(Job(EXPERIMENT, target, setup, ForecastSettings()))} --no-measure",
        )
        result = None if speed is None else forecast_of(speed)
        outcome = Outcome.COMPLETED if file is not None else Outcome.FAILED
        runs.append(Run(head=head, outcome=outcome, reason="" if speed is not None else reason, result=result))
    return runs


def forecast_of(known: SpeedEstimate) -> ForecastResult:
    first, last = known.step_ms[-2:]
    grown = tuple(
        (after - before) / (last[0] - first[0]) if math.isfinite(after) else math.inf
        for before, after in (
            (first[1].value, last[1].value),
            (first[1].low, last[1].low),
            (first[1].high, last[1].high),
        )
    )
    ends = sorted(grown[1:])
    slope = Expected(grown[0], max(0.0, min(ends[0], grown[0])), max(ends[1], grown[0]))
    prefills = tuple((n, ms) for n in PROMPTS if (ms := prefill_ms_at(known, n)) is not None)
    return ForecastResult(
        known.source if known.basis != "bound" else known.basis,
        step_ms_at(known, 1),
        inverse(slope, 1.0) if slope.value > 0 else None,
        tuple((n, tok_s_at(known, n)) for n in POSITIONS),
        prefills,
    )
