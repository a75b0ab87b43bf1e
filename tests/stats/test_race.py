"""A race over times that are made up, so that it is known which candidate is best."""

import math
import random
from collections.abc import Mapping, Sequence

import pytest

from ggbench.experiments.tune.race import BASELINE, Race, block_of, drift_of, proven, scores_of
from ggbench.experiments.tune.record import DepthTiming, TuneSegment, TuneTiming


def timing(candidate: int, *times_ms: float) -> TuneTiming:
    return TuneTiming(candidate, tuple(DepthTiming(1000 * i, ms * 1e6) for i, ms in enumerate(times_ms)))


def segment(*timings: TuneTiming) -> TuneSegment:
    return TuneSegment("race", 1, timings, drift_of(timings), is_kept=True)


def raced(rng: random.Random, speed: Mapping[int, float], n_rounds: int, noise: float) -> Race:
    """The race of candidates with these speeds over the baseline's, all measured in every round."""
    race = Race()
    race.enter(speed)

    def measured(candidate: int) -> TuneTiming:
        return timing(candidate, 10 / speed.get(candidate, 1.0) * math.exp(rng.gauss(0, noise)))

    for _ in range(n_rounds):
        race.add(segment(measured(BASELINE), *map(measured, race.alive), measured(BASELINE)))
        race.look()
    return race


def test_a_steady_drift_cancels() -> None:
    timings = [timing(0, 10.0, 20.0), timing(1, 5.05, 20.2), timing(0, 10.201, 20.402)]
    ((candidate, score),) = scores_of(timings)
    assert candidate == 1
    assert [math.exp(each) for each in score] == pytest.approx([2.0, 1.0])
    assert drift_of(timings) == pytest.approx(1.0201, abs=1e-4)


def test_the_best_of_equals_is_rarely_dropped() -> None:
    n_lost = sum(
        len(raced(random.Random(seed), dict.fromkeys(range(1, 7), 1.1), 8, 0.03).alive) < 6 for seed in range(200)
    )
    assert n_lost <= 10


def test_where_nothing_is_faster_the_baseline_leads() -> None:
    race = raced(random.Random(3), {1: 0.97, 2: 0.95}, 4, 0.01)
    assert race.leader == BASELINE
    assert race.is_decided


def blocks(rng: random.Random, gain: float, n: int, noise: float) -> Sequence[tuple[float, ...]]:
    """Blocks of a proof at two depths, the second without a gain, while the machine slows down."""
    found = []
    for number in range(n):
        slow = [(1 + 0.01 * (4 * number + place)) * math.exp(rng.gauss(0, noise)) for place in range(4)]
        times = [timing(c, 10 * s / (gain if c else 1), 10 * s) for c, s in zip((0, 1, 1, 0), slow, strict=True)]
        found.append(block_of(segment(*times)))
    return found


def test_the_interval_of_a_gain_holds_the_gain_in_19_of_20() -> None:
    rng, n_held = random.Random(5), [0, 0]
    for _ in range(400):
        found = proven(blocks(rng, 1.2, 6, 0.03))
        assert found is not None
        for index, truth in enumerate((1.2, 1.0)):
            n_held[index] += found[1][index].low <= truth <= found[1][index].high
    assert all(365 <= each <= 395 for each in n_held)
