"""Which estimate is better, by intervals alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ggbench.stats.intervals import Leader, better, leader, ratio_interval, unbeaten


def test_only_an_interval_wholly_beyond_another_is_better() -> None:
    assert better([(1.0, 2.0), (3.0, 4.0)], more_is_better=True) == (False, True)
    assert better([(1.0, 2.0), (3.0, 4.0)], more_is_better=False) == (True, False)
    assert better([(1.0, 2.0), (2.0, 3.0)], more_is_better=True) == (False, False)


def test_what_has_no_interval_neither_wins_nor_loses() -> None:
    assert better([None, (3.0, 4.0)], more_is_better=True) == (False, False)
    assert better([None, (1.0, 2.0), (3.0, math.inf)], more_is_better=True) == (False, False, True)


def test_a_leader_is_named_with_its_lead_over_the_second() -> None:
    assert leader([None, 3.0, 2.0], more_is_better=True) == Leader(1, 0.5)
    assert leader([4.0, 2.0, 8.0], more_is_better=False) == Leader(1, 0.5)
    assert leader([2.0, 2.0], more_is_better=True).share == 0  # type: ignore[union-attr]
    assert leader([1.0, None], more_is_better=True) is None
    assert leader([1.0, 0.0], more_is_better=True) is None


def test_the_unbeaten_are_those_that_none_is_better_than() -> None:
    assert unbeaten([(10.0, 12.0), (6.0, 11.0), (5.0, 7.0), None], more_is_better=True) == (True, True, False, False)
    assert unbeaten([(1.0, 2.0), (2.0, 3.0), (9.0, 9.0)], more_is_better=False) == (True, True, False)
    assert unbeaten([(1.0, 2.0), (3.0, 4.0)], more_is_better=True) == (False, True)


def test_the_interval_of_a_ratio_covers_it_at_its_rate() -> None:
    """Of 4,000 pairs of noisy estimates, 95 % of the intervals hold the true ratio; and it excludes 1 where they lie
    apart.
    """
    draws = np.random.default_rng(7).normal([100.0, 80.0], [4.0, 5.0], (4000, 2))
    held = 0
    for one, other in draws.tolist():
        low, high = ratio_interval(one, (one - 7.84, one + 7.84), other, (other - 9.8, other + 9.8))
        held += low <= 1.25 <= high
    assert held / 4000 == pytest.approx(0.95, abs=0.015)
    assert ratio_interval(10.0, (9.0, 11.0), 8.0, (7.0, 8.9))[0] > 1
