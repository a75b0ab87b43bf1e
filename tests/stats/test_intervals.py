"""The interval of a ratio of two estimates."""

import numpy as np
import pytest

from ggbench.stats.intervals import ratio_interval


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
