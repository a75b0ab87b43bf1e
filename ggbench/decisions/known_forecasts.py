"""Forecasts that run nothing: what is known of targets, in the form of runs that are not stored."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.decisions.known_speeds import known_speeds
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastSettings
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.selector import Target
from ggbench.runs.experiment import Job
from ggbench.runs.outcome import Outcome
from ggbench.runs.run import Run, RunHead
from ggbench.runs.session import subject_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget
from ggbench.stats.known_speed import forecast_of


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
