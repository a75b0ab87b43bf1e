"""Which estimate is better, by intervals alone."""

from __future__ import annotations

import math

from ggbench.stats.intervals import Leader, better, leader


def test_only_an_interval_wholly_beyond_another_is_better() -> None:
    """An overlap marks neither, touching ends are an overlap, and the direction turns the answer."""
    assert better([(1.0, 2.0), (3.0, 4.0)], more_is_better=True) == (False, True)
    assert better([(1.0, 2.0), (3.0, 4.0)], more_is_better=False) == (True, False)
    assert better([(1.0, 2.0), (2.0, 3.0)], more_is_better=True) == (False, False)


def test_what_has_no_interval_neither_wins_nor_loses() -> None:
    """It is left out, and an end at infinity is an interval like another."""
    assert better([None, (3.0, 4.0)], more_is_better=True) == (False, False)
    assert better([None, (1.0, 2.0), (3.0, math.inf)], more_is_better=True) == (False, False, True)


def test_what_is_beaten_is_not_better_than_a_third() -> None:
    """The middle one overlaps the best and beats none; the second of a ranking beats the third and is still beaten."""
    assert better([(5.0, 7.0), (2.0, 6.0), (1.0, 3.0)], more_is_better=True) == (True, False, False)
    assert better([(7.0, 8.0), (4.0, 5.0), (1.0, 2.0)], more_is_better=True) == (True, False, False)


def test_a_leader_is_named_with_its_lead_over_the_second() -> None:
    """Unknown values do not count; equal ones lead by nothing; over zero there is no share."""
    assert leader([None, 3.0, 2.0], more_is_better=True) == Leader(1, 0.5)
    assert leader([4.0, 2.0, 8.0], more_is_better=False) == Leader(1, 0.5)
    assert leader([2.0, 2.0], more_is_better=True).share == 0  # type: ignore[union-attr]
    assert leader([1.0, None], more_is_better=True) is None
    assert leader([1.0, 0.0], more_is_better=True) is None
