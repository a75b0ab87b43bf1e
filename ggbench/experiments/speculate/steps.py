"""From timed rounds to steps: the costs of a model that is not here follow from twins of some of its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ggbench.experiments.speculate.record import SpeculationRound
from ggbench.sizing.layer_sample import MODEL_ERROR, StepCost
from ggbench.stats.speculation import MeasuredStep, StepTimes, measured_step


def measured_steps(
    rounds: Sequence[SpeculationRound], layers: Sequence[StepCost]
) -> Iterator[tuple[int, MeasuredStep]]:
    """Yield each depth with the steps of each k, over at least two undisturbed rounds in which every twin was timed.

    `layers` are those of `DraftedPair`. `MODEL_ERROR` was not measured for these ratios: the pairs of
    scripts/EVIDENCE.md are on the disk.
    """
    n_twins = max(1, len(layers) - 1)
    timed = {(each.round, each.n_depth, each.twin, step.k): step for each in rounds for step in each.steps}
    numbers = sorted({each.round for each in rounds})
    for n_depth in sorted({each.n_depth for each in rounds}):
        for k in sorted({step.k for each in rounds for step in each.steps}):
            found = [[timed.get((number, n_depth, twin, k)) for twin in range(n_twins)] for number in numbers]
            whole = [_whole([each for each in twins if each], layers) for twins in found if all(twins)]
            if len(likely := [each for each in whole if each]) > 1:
                yield n_depth, measured_step(likely, MODEL_ERROR if len(layers) > 1 else 0.0)


def _whole(twins: Sequence[StepTimes], layers: Sequence[StepCost]) -> StepTimes | None:
    """Return the times of the whole model: a layer costs what the larger twin's additional ones do.

    None for a disturbed round, in which the smaller twin took as long. The draft, sampling and the rest do not depend
    on the layers, and were timed with the largest twin.
    """
    *_, last = twins
    if len(twins) < 2:
        return last
    (fewer, more, all_of_them), first = layers, twins[0]
    ratio = (all_of_them.layer_bytes - more.layer_bytes) / (more.layer_bytes - fewer.layer_bytes)

    def extrapolated(larger_ms: float, smaller_ms: float) -> float:
        return larger_ms + ratio * (larger_ms - smaller_ms)

    if last.t1_ms <= first.t1_ms or last.verify_ms <= first.verify_ms:
        return None
    t1_ms, verify_ms = extrapolated(last.t1_ms, first.t1_ms), extrapolated(last.verify_ms, first.verify_ms)
    repeated_ms = None
    if last.repeated_ms is not None and first.repeated_ms is not None:
        repeated_ms = extrapolated(last.repeated_ms, first.repeated_ms)
    return replace(last, t1_ms=t1_ms, verify_ms=verify_ms, repeated_ms=repeated_ms)
