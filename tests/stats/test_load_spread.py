"""The spread between loads: two runs of the same settings differ only as often as a 95 % interval may."""

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ggbench.experiments.tune.race import BASELINE, Race, block_of, drift_of, in_order, is_steady, proven, scores_of
from ggbench.experiments.tune.record import DepthTiming, TuneSegment, TuneTiming
from ggbench.stats.intervals import ratio_interval, t_95
from ggbench.stats.samples import (
    ASSUMED_FREEDOM,
    ASSUMED_SIGMA,
    FREEDOM,
    LoadSpread,
    Repeat,
    is_disturbed,
    load_spread,
)


def loads(rng: np.random.Generator, count: int, between: float, within: float, value: float = 50.0) -> list[Repeat]:
    """Runs of one setting: each load has a level of its own, and an interval that knows only the noise within it."""
    levels = rng.normal(0, math.hypot(between, within), count)
    half = t_95(FREEDOM) * within
    return [Repeat(x := value * math.exp(level), (x * math.exp(-half), x * math.exp(half))) for level in levels]


def differ(one: Repeat, other: Repeat, spread: LoadSpread) -> bool:
    assert one.ci95 is not None
    assert other.ci95 is not None
    low, high = ratio_interval(
        one.value, spread.widened(one.value, one.ci95), other.value, spread.widened(other.value, other.ci95)
    )
    return low > 1 or high < 1


def share_different(pairs: Sequence[tuple[Repeat, Repeat]], spread: LoadSpread) -> float:
    return sum(differ(one, other, spread) for one, other in pairs) / len(pairs)


@pytest.mark.parametrize("between", [0.002, 0.02, 0.06, 0.2])
def test_repeats_are_no_difference_in_19_of_20_pairs(between: float) -> None:
    """Whatever the spread between loads, once eight repeats are stored; new pairs, which it was not learned from.

    The share of 3,000 pairs is itself known to about 1 %.
    """
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(150):
        spread = load_spread([loads(rng, 5, between, 0.004), loads(rng, 5, between, 0.004, 20.0)])
        new = loads(rng, 40, between, 0.004)
        shares.append(share_different(list(zip(new[::2], new[1::2], strict=True)), spread))
    assert np.mean(shares) <= 0.06


def test_a_real_difference_is_found_among_noisy_loads() -> None:
    rng = np.random.default_rng(4)
    slow, fast = loads(rng, 10, 0.03, 0.004), loads(rng, 10, 0.03, 0.004, 50.0 * 1.25)
    pairs = list(zip(slow, fast, strict=True))
    assert share_different(pairs, load_spread([slow, fast])) == 1.0


def test_the_assumption_gives_way_to_repeats() -> None:
    assert load_spread([]) == LoadSpread(ASSUMED_SIGMA, ASSUMED_FREEDOM, 0)
    assert load_spread([[Repeat(50.0, None)]]) == LoadSpread()
    rng = np.random.default_rng(5)
    learned = load_spread([loads(rng, 200, 0.05, 0.05)])
    assert learned.n_repeats == 199
    assert learned.sigma == pytest.approx(0.05, rel=0.15)
    assert load_spread([loads(rng, 200, 0.0, 0.001)]).sigma < 0.003


def test_a_run_far_from_all_of_its_repeats_was_disturbed() -> None:
    usual = [70.1, 69.4, 72.6, 68.1]
    assert is_disturbed(28.4, usual[:2], usual[2:])
    assert is_disturbed(28.4, usual, [])
    assert not is_disturbed(66.0, usual, [])
    assert not is_disturbed(28.4, [*usual, 30.2], [])
    assert is_disturbed(28.4, [30.2, *usual], [])
    assert not is_disturbed(28.4, usual[:3], [])


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


def test_two_repeats_alone_are_never_different() -> None:
    """Their own difference is all that is known of the spread."""
    rng = np.random.default_rng(2)
    pairs = [loads(rng, 2, between, 0.002) for between in (0.01, 0.05, 0.3) for _ in range(100)]
    assert not any(differ(one, other, load_spread([[one, other]])) for one, other in pairs)


def test_more_runs_narrow_the_mean() -> None:
    spread = LoadSpread(0.02, 8)
    assert spread.half_width(4) == pytest.approx(spread.half_width() / 2)
    assert spread.widened(50.0, (49.0, math.inf))[1] == math.inf
    low, high = spread.widened(50.0, (50.0, 50.0))
    assert [math.log(50 / low), math.log(high / 50)] == pytest.approx([spread.half_width()] * 2)


def test_one_disturbed_run_does_not_widen_all_intervals() -> None:
    """Neither of two that are as far apart can be left out."""
    usual, disturbed = loads(np.random.default_rng(6), 6, 0.01, 0.002), Repeat(17.0, (16.9, 17.1))
    assert load_spread([[*usual, disturbed]]) == load_spread([usual])
    assert load_spread([[usual[0], disturbed]]).sigma > 0.5


def test_a_round_counts_up_to_a_drift_of_ten_percent_and_loads_seldom() -> None:
    assert [is_steady(drift) for drift in (1.0, 1.09, 1.11, 0.92, 0.9)] == [True, True, False, True, False]
    loads_as = ["mapped", "read", "mapped", "read"]
    assert in_order([1, 2, 3, 4], 1, loads_as) == [1, 3, 2, 4]
    assert in_order([1, 2, 3, 4], 2, loads_as) == [4, 2, 3, 1]


def test_the_slower_are_dropped_and_one_block_proves_nothing() -> None:
    race = raced(random.Random(1), {1: 0.9, 2: 1.3, 3: 1.0}, 4, 0.02)
    assert (race.alive, race.leader, race.is_decided) == ([2], 2, True)
    ratio = race.ratio(2)
    assert ratio is not None and ratio.low < ratio.value == pytest.approx(1.3, rel=0.05)
    assert proven(blocks(random.Random(1), 1.2, 1, 0.01)) is None
