"""The latency of a step at any position, as far as one run shows it: of a decode, of cases, of a forecast."""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.forecast.record import ForecastResult
from ggbench.experiments.speed.record import SpeedResult
from ggbench.runs.run import Run
from ggbench.stats.known_speed import Known, inverse, measured_steps


@dataclass(frozen=True, slots=True)
class StepCurve:
    """Latency of a step [ms] by position, of one sequence."""

    step_ms: Known
    """At least two points."""
    reach: int
    """The last position that was measured, or forecast; beyond it the line continues."""


def decode_curve(run: Run) -> StepCurve | None:
    """Return the line of a decode with its interval; None of another run, and where its steps show no line."""
    found, settings = run.result, run.head.settings
    if not isinstance(found, DecodeResult) or not isinstance(settings, DecodeSettings) or found.latency is None:
        return None
    n_gen = min(settings.n_gen, found.n_gen)
    middle = found.n_prompt + (n_gen + 1) // 2
    return _curve(measured_steps([(middle, found.latency)], found.fit, found.limit), found.n_prompt + n_gen)


def speed_curve(run: Run) -> StepCurve | None:
    """Return latencies of the cases of one sequence; None as of a decode."""
    if not isinstance(run.result, SpeedResult):
        return None
    line = next((each for each in run.result.lines if each.n_seqs == 1), None)
    cases = [
        (each.case, each.latency)
        for each in run.result.cases
        if each.case.n_seqs == 1 and each.latency is not None and each.seconds is not None
    ]
    if line is None or not cases:
        return None
    latencies = [(case.n_input + (case.n_gen + 1) // 2, latency) for case, latency in cases]
    reach = max(case.n_input + case.n_gen for case, _ in cases)
    return _curve(measured_steps(latencies, line.fit, line.limit), reach)


def forecast_curve(run: Run) -> StepCurve | None:
    """Return the latencies that a forecast gives; None of another run, and where it has fewer than two."""
    if not isinstance(run.result, ForecastResult) or len(run.result.tok_s) < 2:
        return None
    steps = tuple((n, inverse(tok_s)) for n, tok_s in sorted(run.result.tok_s))
    return StepCurve(steps, steps[-1][0])


def _curve(steps: Known, reach: int) -> StepCurve | None:
    return StepCurve(steps, reach) if len(steps) > 1 else None
