"""Forecast the steps of a model from those of twins of a few of its layers.

t(n) = embedding and output + layers + KV cache. Two twins of different depth show what a layer costs, a long context
what a byte of KV costs; both are proportional to the bytes that are read, so that layers of different types count by
their size. Each round of measurements makes a forecast of its own, and their spread is the statistical error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggbench.records.forecast import (
    POSITIONS,
    PROMPTS,
    Expected,
    ForecastTwin,
    StepCost,
    TwinTiming,
)
from ggbench.stats.noise import t_95

MODEL_ERROR = 0.08
"""Share by which forecasts are off besides the spread of their rounds, at a probability of 95 %; the residuals of
scripts/forecast_residuals lie within."""


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round of measurements says of the model."""

    cost: StepCost
    base_ms: float
    """Everything but the KV cache."""
    ms_per_kv_byte: float
    batch_ms: float | None
    """Of a batch at the beginning of a prompt."""
    batch_ms_per_kv_byte: float
    n_batch: int

    def latency_ms(self, n: int) -> float:
        return self.base_ms + self.ms_per_kv_byte * self.cost.kv_bytes(n)

    def prefill_ms(self, n_prompt: int) -> float:
        assert self.batch_ms is not None
        whole, rest = divmod(n_prompt, self.n_batch)
        parts = [(index * self.n_batch, 1.0) for index in range(whole)]
        if rest:
            parts.append((whole * self.n_batch, rest / self.n_batch))
        return sum(
            share * (self.batch_ms + self.batch_ms_per_kv_byte * self.cost.kv_bytes(before)) for before, share in parts
        )


@dataclass(frozen=True, slots=True)
class StepForecast:
    """All rounds; empty where none was whole."""

    rounds: tuple[_Round, ...]

    @property
    def b_ms(self) -> Expected | None:
        """Latency of the first token."""
        return self._expected(lambda each: each.latency_ms(1))

    @property
    def w_tokens_per_ms(self) -> Expected | None:
        """Tokens until a step takes 1 ms longer, beyond any window; None where that is never, or below the noise."""
        growth = self._expected(lambda each: each.ms_per_kv_byte * each.cost.full_kv_bytes)
        return _inverse(growth, 1.0)

    @property
    def tok_s(self) -> tuple[tuple[int, Expected], ...]:
        """Speed by position."""
        found = ((n, _inverse(self._expected(lambda each, n=n: each.latency_ms(n)), 1e3)) for n in POSITIONS)  # type: ignore[misc]
        return tuple((n, speed) for n, speed in found if speed is not None)

    @property
    def prefill_ms(self) -> tuple[tuple[int, Expected], ...]:
        """Time by the length of the prompt."""
        timed = StepForecast(tuple(each for each in self.rounds if each.batch_ms is not None))
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


def step_forecast(model: StepCost, twins: Sequence[ForecastTwin], timings: Sequence[TwinTiming]) -> StepForecast:
    """Return what the rounds say that have timings of every twin, near the beginning and far into the context."""
    by_key = {(each.twin, each.round, each.n_depth > 1): each for each in timings}
    rounds = [_round(model, twins, by_key, number) for number in sorted({each.round for each in timings})]
    return StepForecast(tuple(each for each in rounds if each is not None))


def _round(
    model: StepCost, twins: Sequence[ForecastTwin], by_key: dict[tuple[int, int, bool], TwinTiming], number: int
) -> _Round | None:
    near = [by_key.get((twin.number, number, False)) for twin in twins]
    far = by_key.get((twins[-1].number, number, True)) if twins else None
    if far is None or not all(near):
        return None
    known = [each for each in near if each is not None]
    deepest = twins[-1].cost
    grown_bytes = deepest.kv_bytes(_middle(far)) - deepest.kv_bytes(_middle(known[-1]))
    ms_per_kv_byte = max(0.0, (_median_ms(far) - _median_ms(known[-1])) / grown_bytes) if grown_bytes else 0.0
    base = [
        _median_ms(each) - ms_per_kv_byte * twin.cost.kv_bytes(_middle(each))
        for twin, each in zip(twins, known, strict=True)
    ]
    batches = [each.batch_ns / 1e6 for each in known if each.batch_ns is not None]
    batch_ms, batch_growth = None, 0.0
    if len(batches) == len(twins) and far.batch_ns is not None:
        batch_ms = _extrapolated(model, twins, batches)
        batch_growth = max(0.0, (far.batch_ns / 1e6 - batches[-1]) / grown_bytes) if grown_bytes else 0.0
    return _Round(model, _extrapolated(model, twins, base), ms_per_kv_byte, batch_ms, batch_growth, known[-1].n_batch)


def _extrapolated(model: StepCost, twins: Sequence[ForecastTwin], values: Sequence[float]) -> float:
    """The value of a model with all layers; one twin has them all."""
    if len(twins) == 1:
        return values[0]
    first, last = twins[0].cost.layer_bytes, twins[-1].cost.layer_bytes
    rate = (values[-1] - values[0]) / (last - first)
    return values[-1] + rate * (model.layer_bytes - last)


def _median_ms(timing: TwinTiming) -> float:
    return statistics.median(timing.step_ns) / 1e6


def _middle(timing: TwinTiming) -> float:
    """Position of the middle step; an untimed one comes first."""
    return timing.n_depth + 2 + (len(timing.step_ns) - 1) / 2


def _inverse(expected: Expected | None, numerator: float) -> Expected | None:
    """None where the value may be zero."""
    if expected is None or expected.low <= 0:
        return None
    return Expected(numerator / expected.value, numerator / expected.high, numerator / expected.low)
