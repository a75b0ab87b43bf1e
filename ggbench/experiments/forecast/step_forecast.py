"""Forecast the steps of a model from twins of a few of its layers.

t(n) = embedding and output + layers + KV cache. Two twins of different depth give the cost of a layer; a long context
gives the cost of a KV byte. Both scale with the bytes read, so layers are weighted by size. Layers on a GPU and in main
memory are timed separately, then multiplied by their numbers. Each round of measurements yields one forecast; their
spread is the statistical error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ggbench.experiments.forecast.record import (
    PROMPTS,
    ForecastPlacement,
    ForecastTwin,
    TwinTiming,
)
from ggbench.record import Record
from ggbench.sizing.layer_sample import MODEL_ERROR, StepCost
from ggbench.stats.intervals import Estimate, half_width
from ggbench.stats.speed_curve import POSITIONS, inverse


class _Line(Record):
    """Time of a step or of a batch as a function of the bytes it reads [ms, ms per byte]."""

    outside_ms: float
    """Time outside the layers; of everything if one twin has all layers."""
    per_layer_byte: float
    per_kv_byte: float


class _Part(Record):
    """The result of one round for the layers in one memory."""

    cost: StepCost
    """Cost of the model's layers with this placement."""
    step: _Line
    batch: _Line | None
    """Cost at the start of a prompt; None if not timed."""


class _Round(Record):
    """The result of one round of measurements for the model."""

    parts: tuple[_Part, ...]
    """One for each placement; the first includes the tensors outside the layers."""
    n_batch: int

    @property
    def has_batch(self) -> bool:
        return all(part.batch is not None for part in self.parts)

    @property
    def growth_ms(self) -> float:
        """Time added to a step by each position beyond all breaks."""
        return sum(part.step.per_kv_byte * part.cost.kv.read_growth() for part in self.parts)

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


class StepForecast(Record):
    """All rounds; empty if none was complete."""

    rounds: tuple[_Round, ...]

    @property
    def b_ms(self) -> Estimate | None:
        return _expected([each.latency_ms(1) for each in self.rounds])

    @property
    def w_tokens_per_ms(self) -> Estimate | None:
        """Tokens of context that add 1 ms to a step, beyond all breaks; None if latency does not grow, or by less than
        the noise.
        """
        return _inverse(_expected([each.growth_ms for each in self.rounds]), 1.0)

    @property
    def tok_s(self) -> tuple[tuple[int, Estimate], ...]:
        found = ((n, _inverse(_expected([each.latency_ms(n) for each in self.rounds]), 1e3)) for n in POSITIONS)
        return tuple((n, speed) for n, speed in found if speed is not None)

    @property
    def prefill_ms(self) -> tuple[tuple[int, Estimate], ...]:
        timed = [each for each in self.rounds if each.has_batch]
        found = ((n, _expected([each.prefill_ms(n) for each in timed])) for n in PROMPTS)
        return tuple((n, expected) for n, expected in found if expected is not None)


def _expected(values: Sequence[float]) -> Estimate | None:
    """Return the mean over rounds, with the spread between them and the model's error; None without a round."""
    if not values:
        return None
    mean, spread = statistics.fmean(values), half_width(values) if len(values) > 1 else 0.0
    half = math.hypot(spread, MODEL_ERROR * mean)
    return Estimate(mean, mean - half, mean + half)


def step_forecast(
    placements: Sequence[ForecastPlacement], twins: Sequence[ForecastTwin], timings: Sequence[TwinTiming]
) -> StepForecast:
    """Return the results of the rounds with all timings of every twin in every placement."""
    by_round: dict[int, dict[tuple[int, int, bool], TwinTiming]] = {}
    for each in timings:
        by_round.setdefault(each.round, {})[each.placement, each.twin, each.n_depth > 1] = each
    places = [*((twin.number, False) for twin in twins), (twins[-1].number, True)]
    rounds = []
    for _, found in sorted(by_round.items()):
        if all((placement.number, *place) in found for placement in placements for place in places):
            timed = [[found[placement.number, *place] for place in places] for placement in placements]
            parts = (_part(each.cost, twins, of) for each, of in zip(placements, timed, strict=True))
            rounds.append(_Round(tuple(parts), max(each.n_batch for each in timings)))
    return StepForecast(tuple(rounds))


def _part(cost: StepCost, twins: Sequence[ForecastTwin], timings: Sequence[TwinTiming]) -> _Part:
    """Return a round's result from each twin's timing near the start, and the last one's far into the context."""
    *near, far = timings
    step = _line(
        twins, [statistics.median(each.step_ns) / 1e6 for each in timings], [_middle(each) for each in timings]
    )
    batches = [each.batch_ns / 1e6 for each in timings if each.batch_ns is not None]
    batch = None
    if len(batches) == len(timings):
        batch = _line(twins, batches, [*([0.0] * len(near)), _middle(far) - _middle(near[-1])])
    return _Part(cost, step, batch)


def _line(twins: Sequence[ForecastTwin], times_ms: Sequence[float], depths: Sequence[float]) -> _Line:
    """Return a round's result from its times and their depths."""
    *near_ms, far_ms = times_ms
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


def _middle(timing: TwinTiming) -> float:
    """Position of the middle step; an untimed one comes first."""
    return timing.n_depth + 2 + (len(timing.step_ns) - 1) / 2


def _inverse(expected: Estimate | None, numerator: float) -> Estimate | None:
    return None if expected is None or expected.low <= 0 else inverse(expected, numerator)
