"""The interval of a ratio of two estimates."""

import math

import numpy as np
import pytest

from ggbench.stats.intervals import ratio_interval, t_point


def test_the_interval_of_a_ratio_covers_it_at_its_rate() -> None:
    draws = np.random.default_rng(7).normal([100.0, 80.0], [4.0, 5.0], (4000, 2))
    held = 0
    for one, other in draws.tolist():
        low, high = ratio_interval(one, (one - 7.84, one + 7.84), other, (other - 9.8, other + 9.8))
        held += low <= 1.25 <= high
    assert held / 4000 == pytest.approx(0.95, abs=0.015)
    assert ratio_interval(10.0, (9.0, 11.0), 8.0, (7.0, 8.9))[0] > 1


@pytest.mark.parametrize(
    ("tail", "freedom", "printed"),
    [(0.05, 1, 12.7062), (0.05, 2, 4.3027), (0.05, 4, 2.7764), (0.001, 4, 8.6103), (0.001, 7, 5.4079),
     (0.002, 7, 4.7853), (0.01, 10, 3.1693), (0.0001, 3, 28.0001), (0.05, 30, 2.0423), (0.5, 5, 0.7267), (1.0, 5, 0.0)],
)  # fmt: skip
def test_points_are_those_of_printed_tables(tail: float, freedom: int, printed: float) -> None:
    """Two-sided, as in the tables of NIST's Handbook 1.3.6.7.2, and in R's `qt` further out."""
    assert t_point(tail, freedom) == pytest.approx(printed, abs=2e-4)


def test_the_ratio_of_what_may_be_zero_has_no_upper_end() -> None:
    """Intervals of B are cut off at zero; exact values have an exact ratio."""
    low, high = ratio_interval(10.0, (9.0, 11.0), 2.0, (0.0, 4.0))
    assert 2 < low < 3
    assert (high, ratio_interval(2.0, (0.0, 4.0), 10.0, (9.0, 11.0))[0]) == (math.inf, 0)
    assert ratio_interval(3.0, (3.0, 3.0), 2.0, (2.0, 2.0)) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize(("tail", "freedom"), [(0.0, 3), (1.5, 3), (0.05, 0)])
def test_what_is_no_probability_has_no_point(tail: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="no such point"):
        t_point(tail, freedom)
