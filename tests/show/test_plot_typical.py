"""The typical latency along a curve."""

import numpy as np
import pytest

from ggbench.show.axes import rolling_median

POSITIONS = np.arange(1, 10_001)
STAIRS = 10 + np.ceil(POSITIONS / 256)


def test_spikes_do_not_move_the_typical_latency() -> None:
    spiky = STAIRS.copy()
    spiky[::10] *= 5
    found = rolling_median(POSITIONS, spiky, POSITIONS[300:-300])
    exact = STAIRS[300:-300]
    assert np.median(np.abs(found - exact)) == 0
    off = np.flatnonzero(found != exact)
    near_an_edge = np.minimum((off + 301) % 256, -(off + 301) % 256)
    assert near_an_edge.max() <= 32


def test_repetitions_count_together_in_any_order() -> None:
    """Of three repetitions, one being slow throughout, the typical one shows; a place between positions has its
    neighbour's.
    """
    x = np.concatenate([POSITIONS[:512]] * 3)
    y = np.concatenate([np.full(512, 10.0), np.full(512, 30.0), np.full(512, 11.0)])
    assert rolling_median(x, y, [100.4, 256.0]) == pytest.approx([11, 11])
    single = np.arange(1, 8)
    assert rolling_median(single, single.astype(np.float64), [-5, 1.4, 1.6, 99]).tolist() == [1, 1, 2, 7]


def test_a_gap_is_not_averaged_over() -> None:
    x = np.concatenate([np.arange(1, 1001), np.arange(6001, 7001)])
    y = np.where(x < 5000, 10.0, 20.0).astype(np.float64)
    assert rolling_median(x, y, [1000, 6001, 3000, 4000]).tolist() == [10, 20, 10, 20]
