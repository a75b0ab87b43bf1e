"""The interval of a ratio of two estimates."""

import math

import numpy as np
import pytest

from ggbench.stats.intervals import differing, ratio_interval, student_p, t_95


def test_the_interval_of_a_ratio_covers_it_at_its_rate() -> None:
    draws = np.random.default_rng(7).normal([100.0, 80.0], [4.0, 5.0], (4000, 2))
    held = 0
    for one, other in draws.tolist():
        low, high = ratio_interval(one, (one - 7.84, one + 7.84), other, (other - 9.8, other + 9.8))
        held += low <= 1.25 <= high
    assert held / 4000 == pytest.approx(0.95, abs=0.015)
    assert ratio_interval(10.0, (9.0, 11.0), 8.0, (7.0, 8.9))[0] > 1


@pytest.mark.parametrize(
    ("freedom", "printed"), [(0, math.inf), (1, 12.706), (4, 2.776), (5, 2.571), (7, 2.365), (30, 2.042)]
)
def test_points_are_those_of_printed_tables(freedom: int, printed: float) -> None:
    """Two-sided, as in the tables of NIST's Handbook 1.3.6.7.2."""
    assert t_95(freedom) == pytest.approx(printed, abs=6e-4)
    if freedom:
        assert student_p(-printed, freedom) == pytest.approx(0.05, abs=1e-4)


def test_the_smallest_of_many_has_to_be_smaller() -> None:
    """Holm's steps: 0.05 / 3, 0.05 / 2, 0.05; one that fails ends them."""
    assert differing({"a": 0.016, "b": 0.024, "c": 0.06}) == {"a", "b"}
    assert differing({"a": 0.017, "b": 0.024, "c": 0.01}) == {"a", "b", "c"}
    assert differing({"a": 0.017, "b": 0.024, "c": 0.02}) == set()


def test_the_ratio_of_what_may_be_zero_has_no_upper_end() -> None:
    """Intervals of B are cut off at zero; exact values have an exact ratio."""
    low, high = ratio_interval(10.0, (9.0, 11.0), 2.0, (0.0, 4.0))
    assert 2 < low < 3
    assert (high, ratio_interval(2.0, (0.0, 4.0), 10.0, (9.0, 11.0))[0]) == (math.inf, 0)
    assert ratio_interval(3.0, (3.0, 3.0), 2.0, (2.0, 2.0)) == pytest.approx((1.5, 1.5))
