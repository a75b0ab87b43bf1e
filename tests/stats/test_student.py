"""Student's t, beside printed tables."""

import pytest

from ggbench.stats.samples import t_point


@pytest.mark.parametrize(
    ("tail", "freedom", "printed"),
    [(0.05, 1, 12.7062), (0.05, 2, 4.3027), (0.05, 4, 2.7764), (0.001, 4, 8.6103), (0.001, 7, 5.4079),
     (0.002, 7, 4.7853), (0.01, 10, 3.1693), (0.0001, 3, 28.0001), (0.05, 30, 2.0423), (0.5, 5, 0.7267), (1.0, 5, 0.0)],
)  # fmt: skip
def test_points_are_those_of_printed_tables(tail: float, freedom: int, printed: float) -> None:
    """Two-sided, as in the tables of NIST's Handbook 1.3.6.7.2, and in R's `qt` further out."""
    assert t_point(tail, freedom) == pytest.approx(printed, abs=2e-4)
