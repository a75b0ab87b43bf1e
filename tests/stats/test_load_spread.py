"""The spread between loads: two runs of the same settings differ only as often as a 95 % interval may."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from ggbench.stats.intervals import ratio_interval, t_95
from ggbench.stats.samples import ASSUMED_FREEDOM, ASSUMED_SIGMA, FREEDOM, LoadSpread, Repeat, is_disturbed, load_spread


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
    assert load_spread([]) == LoadSpread(ASSUMED_SIGMA, ASSUMED_FREEDOM)
    assert load_spread([[Repeat(50.0, None)]]) == LoadSpread()
    rng = np.random.default_rng(5)
    learned = load_spread([loads(rng, 200, 0.05, 0.05)])
    assert learned.freedom == 199
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


def test_two_repeats_alone_are_never_different() -> None:
    """Their own difference is all that is known of the spread."""
    rng = np.random.default_rng(2)
    pairs = [loads(rng, 2, between, 0.002) for between in (0.01, 0.05, 0.3) for _ in range(100)]
    assert not any(differ(one, other, load_spread([[one, other]])) for one, other in pairs)


def test_one_disturbed_run_does_not_widen_all_intervals() -> None:
    """Neither of two that are as far apart can be left out."""
    usual, disturbed = loads(np.random.default_rng(6), 6, 0.01, 0.002), Repeat(17.0, (16.9, 17.1))
    assert load_spread([[*usual, disturbed]]) == load_spread([usual])
    assert load_spread([[usual[0], disturbed]]).sigma > 0.5
