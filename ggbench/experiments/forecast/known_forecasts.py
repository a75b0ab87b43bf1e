"""Forecasts of what is known without measuring, for `--no-measure`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ggbench.decisions.known_speeds import KnownSpeeds
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import PROMPTS, ForecastResult, ForecastSettings
from ggbench.models.targets import Target
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run, RunHead
from ggbench.runs.session import subject_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import POSITIONS, SpeedEstimate, inverse, prefill_ms_at, step_ms_at, tok_s_at


def known_forecasts(store: Store | None, targets: Sequence[Target], setup: LlamaConfig, budget: Budget) -> list[Run]:
    """Return the known speeds of each target, or a run with the reason if there are none or its header cannot be read.

    Raises StoreError, and the header's error if there is only one target.
    """
    known = KnownSpeeds(store, budget)
    runs = []
    for target in targets:
        file, outcome, reason = None, Outcome.COMPLETED, "no speed is known without measuring"
        try:
            file = target.header()
        except GgbenchError as error:
            if len(targets) == 1:
                raise
            outcome, reason = Outcome.FAILED, error.message
        speed = known.of(file, setup)
        head = RunHead(
            kind=EXPERIMENT.kind,
            subject=subject_of(target, file, setup),
            setup=setup,
            settings=ForecastSettings(),
            command=f"{EXPERIMENT.command(Job(EXPERIMENT, target, setup, ForecastSettings()))} --no-measure",
        )
        result = None if speed is None or not speed.has_line else forecast_of(speed)
        runs.append(Run(head=head, outcome=outcome, reason="" if result is not None else reason, result=result))
    return runs


def forecast_of(known: SpeedEstimate) -> ForecastResult:
    """Return a known speed at the positions and lengths of a forecast; W is from the last two positions."""
    first, last = known.step_ms[-2:]
    pairs = [(getattr(first[1], name), getattr(last[1], name)) for name in ("value", "low", "high")]
    grown, *ends = (
        (after - before) / (last[0] - first[0]) if math.isfinite(after) else math.inf for before, after in pairs
    )
    slope = Expected(grown, max(0.0, min(*ends, grown)), max(*ends, grown))
    prefills = tuple((n, ms) for n in PROMPTS if (ms := prefill_ms_at(known, n)) is not None)
    return ForecastResult(
        known.source if known.basis != "bound" else known.basis,
        step_ms_at(known, 1),
        inverse(slope, 1.0) if slope.value > 0 else None,
        tuple((n, tok_s_at(known, n)) for n in POSITIONS),
        prefills,
    )
