"""Forecasts that run nothing: what is known of targets, in the form of runs that are not stored."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ggbench.decisions.known import known_speeds
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import PROMPTS, ForecastResult, ForecastSettings
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.targets import Target
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run, RunHead
from ggbench.runs.session import subject_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import POSITIONS, SpeedEstimate, inverse, prefill_ms_at, step_ms_at, tok_s_at


def known_forecasts(store: Store | None, targets: Sequence[Target], setup: LlamaConfig, budget: Budget) -> list[Run]:
    """Return what is known of each target; where nothing is, or its header cannot be read, a run with the reason.

    Raises StoreError, and what a header raises where it is the only one.
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
    """Return a known speed at the positions and the lengths of a forecast; W is that of the last line."""
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
