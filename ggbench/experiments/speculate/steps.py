"""From timed rounds to steps: of a model that is not here, from twins of some of its layers, or by a server's clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ggbench.experiments.speculate.record import AnsweredText, SpeculationRound
from ggbench.sizing.layer_sample import MODEL_ERROR, StepCost
from ggbench.stats.speculation import MeasuredStep, StepTimes, measured_step

SERVER_ERROR = 0.10
"""The share by which a server's step may differ from a measured one: nearly all of scripts/EVIDENCE.md do less."""


def measured_steps(
    rounds: Sequence[SpeculationRound], layers: Sequence[StepCost]
) -> Iterator[tuple[int, MeasuredStep]]:
    """Yield each depth with the steps of each k, over at least two undisturbed rounds in which every twin was timed.

    `layers` are those of `DraftedPair`. `MODEL_ERROR` was not measured for these ratios: the pairs of
    scripts/EVIDENCE.md are on the disk.
    """
    error = math.hypot(SERVER_ERROR, MODEL_ERROR if len(layers) > 1 else 0.0)
    timed: dict[tuple[int, int], dict[int, dict[int, StepTimes]]] = {}
    for each in rounds:
        for step in each.steps:
            timed.setdefault((each.n_depth, step.k), {}).setdefault(each.round, {})[each.twin] = step
    for (n_depth, _), of_rounds in sorted(timed.items(), key=lambda item: item[0]):
        whole = [_whole([twins[twin] for twin in sorted(twins)], layers) for twins in of_rounds.values()]
        likely = [each for each in whole if each is not None]
        if len(likely) > 1:
            yield n_depth, measured_step(likely, error)


def _whole(twins: Sequence[StepTimes], layers: Sequence[StepCost]) -> StepTimes | None:
    """Return the times of the whole model: a layer costs what the larger twin's additional ones do.

    None for a round that was cut short, or disturbed: the smaller twin took as long. The draft, sampling and the rest
    do not depend on the layers, and were timed with the largest twin.
    """
    *_, last = twins
    if not layers:
        return last
    if len(twins) < len(layers) - 1:
        return None
    (fewer, more, all_of_them), first = layers, twins[0]
    ratio = (all_of_them.layer_bytes - more.layer_bytes) / (more.layer_bytes - fewer.layer_bytes)
    large, small = last.parts, first.parts
    if not (large and small) or last.t1_ms <= first.t1_ms or large.verify_ms <= small.verify_ms:
        return None

    def whole(larger: float, smaller: float) -> float:
        return larger + ratio * (larger - smaller)

    parts = replace(large, verify_ms=whole(large.verify_ms, small.verify_ms))
    return StepTimes.of_parts(last.k, whole(last.t1_ms, first.t1_ms), parts)


def answered_steps(answers: Sequence[AnsweredText]) -> Iterator[tuple[int, MeasuredStep]]:
    """Yield the steps of a server that rejected every draft, over at least two rounds with and without drafts."""
    numbers = sorted({each.round for each in answers})
    found = [_answered_round([each for each in answers if each.round == number]) for number in numbers]
    rounds = [each for each in found if each is not None]
    if len(rounds) > 1:
        yield 0, measured_step(rounds)


def _answered_round(answers: Sequence[AnsweredText]) -> StepTimes | None:
    """Return a step of one round; None if it has no answers with drafts, or none without."""
    plain_ms = [1e3 / each.tok_s for each in answers if not each.is_drafted]
    drafted = [each for each in answers if each.is_drafted and each.answer.n_drafted]
    if not plain_ms or not drafted:
        return None
    t1_ms, k = statistics.median(plain_ms), max(_drafted_at_most(each) for each in drafted)
    return StepTimes(k, t1_ms, statistics.median(_step_ms(each, k, t1_ms) for each in drafted))


def _drafted_at_most(text: AnsweredText) -> int:
    """Return the tokens that a step drafted; some heads draft fewer than asked for, and no step more than are left."""
    n_drafted, lefts, asked = text.answer.n_drafted, range(text.answer.n_tokens - 1), text.k or 0
    return next((k for k in range(1, asked) if sum(min(k, left) for left in lefts) >= n_drafted), asked)


def _step_ms(text: AnsweredText, k: int, t1_ms: float) -> float:
    """Return the time of a step of `k` drafted tokens; the shorter ones take less in proportion."""
    return t1_ms + (1e3 / text.tok_s - t1_ms) * k * (text.answer.n_tokens - 1) / text.answer.n_drafted
