"""Forecast the steps of a model from twins of a few of its layers.

t(n) = embedding and output + layers + KV cache. Two twins of different depth give the cost of a layer; a long context
gives the cost of a KV byte. Both scale with the bytes read, so layers are weighted by size. Layers on a GPU and in main
memory are timed separately, then multiplied by their numbers. Each round of measurements yields one forecast; their
spread is the statistical error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from ggbench.decisions.known_speeds import KnownSpeeds
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import (
    PROMPTS,
    ForecastPlacement,
    ForecastResult,
    ForecastSettings,
    ForecastTwin,
    TwinTiming,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.targets import Target
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run, RunHead
from ggbench.runs.session import subject_of
from ggbench.runs.store.database import Store
from ggbench.sizing.layer_sample import MODEL_ERROR, StepCost
from ggbench.sizing.plan_record import Budget
from ggbench.stats.intervals import Expected, t_95
from ggbench.stats.speed_estimate import POSITIONS, SpeedEstimate, inverse, prefill_ms_at, step_ms_at, tok_s_at


class _Line(msgspec.Struct, frozen=True):
    """Time of a step or of a batch as a function of the bytes it reads [ms, ms per byte]."""

    outside_ms: float
    """Time outside the layers; of everything if one twin has all layers."""
    per_layer_byte: float
    per_kv_byte: float


class _Part(msgspec.Struct, frozen=True):
    """The result of one round for the layers in one memory."""

    cost: StepCost
    """Cost of the model's layers with this placement."""
    step: _Line
    batch: _Line | None
    """Cost at the start of a prompt; None if not timed."""


class _Round(msgspec.Struct, frozen=True):
    """The result of one round of measurements for the model."""

    parts: tuple[_Part, ...]
    """One for each placement; the first includes the tensors outside the layers."""
    n_batch: int

    @property
    def has_batch(self) -> bool:
        return all(part.batch is not None for part in self.parts)

    @property
    def growth_ms(self) -> float:
        """Time added to a step by each position beyond any window."""
        return sum(part.step.per_kv_byte * part.cost.full_kv_bytes for part in self.parts)

    def latency_ms(self, n: int) -> float:
        return _total([(part.cost, part.step) for part in self.parts], n)

    def prefill_ms(self, n_prompt: int) -> float:
        lines = [(part.cost, part.batch) for part in self.parts if part.batch is not None]
        whole, rest = divmod(n_prompt, self.n_batch)
        shares = [*([1.0] * whole), rest / self.n_batch]
        return sum(share * _total(lines, index * self.n_batch) for index, share in enumerate(shares) if share)


def _total(lines: Sequence[tuple[StepCost, _Line]], n: int) -> float:
    return lines[0][1].outside_ms + sum(
        line.per_layer_byte * cost.layer_bytes + line.per_kv_byte * cost.kv_bytes(n) for cost, line in lines
    )


class StepForecast(msgspec.Struct, frozen=True):
    """All rounds; empty if none was complete."""

    rounds: tuple[_Round, ...]

    @property
    def b_ms(self) -> Expected | None:
        return self._expected(lambda each: each.latency_ms(1))

    @property
    def w_tokens_per_ms(self) -> Expected | None:
        """Tokens of context that add 1 ms to a step, beyond any window; None if latency does not grow, or by less than
        the noise.
        """
        growth = self._expected(lambda each: each.growth_ms)
        return _inverse(growth, 1.0)

    @property
    def tok_s(self) -> tuple[tuple[int, Expected], ...]:
        found = ((n, _inverse(self._expected(lambda each, n=n: each.latency_ms(n)), 1e3)) for n in POSITIONS)  # type: ignore[misc]
        return tuple((n, speed) for n, speed in found if speed is not None)

    @property
    def prefill_ms(self) -> tuple[tuple[int, Expected], ...]:
        timed = StepForecast(tuple(each for each in self.rounds if each.has_batch))
        found = ((n, timed._expected(lambda each, n=n: each.prefill_ms(n))) for n in PROMPTS)  # type: ignore[misc]
        return tuple((n, expected) for n, expected in found if expected is not None)

    def _expected(self, value: Callable[[_Round], float]) -> Expected | None:
        values = [value(each) for each in self.rounds]
        if not values:
            return None
        mean = statistics.fmean(values)
        spread = 0.0
        if len(values) > 1:
            spread = t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
        half = math.hypot(spread, MODEL_ERROR * mean)
        return Expected(mean, mean - half, mean + half)


def step_forecast(
    placements: Sequence[ForecastPlacement], twins: Sequence[ForecastTwin], timings: Sequence[TwinTiming]
) -> StepForecast:
    """Return the results of the rounds with all timings of every twin in every placement."""
    by_key = {(each.placement, each.round, each.twin, each.n_depth > 1): each for each in timings}
    rounds = []
    for number in sorted({each.round for each in timings}):
        parts = []
        for placement in placements:
            near = [by_key.get((placement.number, number, twin.number, False)) for twin in twins]
            far = by_key.get((placement.number, number, twins[-1].number, True))
            if far is not None and all(near):
                parts.append(_part(placement.cost, twins, [each for each in near if each is not None], far))
        if len(parts) == len(placements) and parts:
            rounds.append(_Round(tuple(parts), max(each.n_batch for each in timings)))
    return StepForecast(tuple(rounds))


def _part(cost: StepCost, twins: Sequence[ForecastTwin], near: Sequence[TwinTiming], far: TwinTiming) -> _Part:
    step = _line(twins, [_median_ms(each) for each in near], _median_ms(far), [_middle(each) for each in (*near, far)])
    batches = [each.batch_ns / 1e6 for each in (*near, far) if each.batch_ns is not None]
    batch = None
    if len(batches) == len(near) + 1:
        depths = [0.0 if each is not far else _middle(far) - _middle(near[-1]) for each in (*near, far)]
        batch = _line(twins, batches[:-1], batches[-1], depths)
    return _Part(cost, step, batch)


def _line(twins: Sequence[ForecastTwin], near_ms: Sequence[float], far_ms: float, depths: Sequence[float]) -> _Line:
    """Return a round's result from each twin's time near the start, the last one's far into the context, and all
    depths.
    """
    last = twins[-1].cost
    grown_bytes = last.kv_bytes(depths[-1]) - last.kv_bytes(depths[-2])
    per_kv_byte = max(0.0, (far_ms - near_ms[-1]) / grown_bytes) if grown_bytes else 0.0
    base = [
        ms - per_kv_byte * twin.cost.kv_bytes(depth)
        for ms, twin, depth in zip(near_ms, twins, depths[:-1], strict=True)
    ]
    if len(twins) == 1:
        return _Line(base[0], 0.0, per_kv_byte)
    per_layer_byte = (base[-1] - base[0]) / (last.layer_bytes - twins[0].cost.layer_bytes)
    return _Line(base[-1] - per_layer_byte * last.layer_bytes, per_layer_byte, per_kv_byte)


def _median_ms(timing: TwinTiming) -> float:
    return statistics.median(timing.step_ns) / 1e6


def _middle(timing: TwinTiming) -> float:
    """Position of the middle step; an untimed one comes first."""
    return timing.n_depth + 2 + (len(timing.step_ns) - 1) / 2


def _inverse(expected: Expected | None, numerator: float) -> Expected | None:
    if expected is None or expected.low <= 0:
        return None
    return Expected(numerator / expected.value, numerator / expected.high, numerator / expected.low)


def known_forecasts(store: Store | None, targets: Sequence[Target], setup: LlamaConfig, budget: Budget) -> list[Run]:
    """Return the known speeds of each target, or a run with the reason if there are none or its header cannot be read.

    Raises StoreError, and the header's error if there is only one target.
    """
    files: list[ModelFile | None] = []
    reasons = []
    for target in targets:
        try:
            files.append(target.header())
            reasons.append("no speed is known without measuring")
        except GgbenchError as error:
            if len(targets) == 1:
                raise
            files.append(None)
            reasons.append(error.message)
    runs = []
    known = KnownSpeeds(store, budget)
    for target, file, reason in zip(targets, files, reasons, strict=True):
        speed = known.of(file, setup)
        head = RunHead(
            kind=EXPERIMENT.kind,
            subject=subject_of(target, file, setup),
            setup=setup,
            settings=ForecastSettings(),
            command=f"{EXPERIMENT.command(Job(EXPERIMENT, target, setup, ForecastSettings()))} --no-measure",
        )
        result = None if speed is None or not speed.has_line else forecast_of(speed)
        outcome = Outcome.COMPLETED if file is not None else Outcome.FAILED
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
