"""The prediction beside an answer of llama-server is for the length that the server's random numbers gave."""

import pytest

from ggbench.experiments.speculate.record import SpeculationCase
from ggbench.stats.intervals import Expected
from ggbench.stats.speculation import MeasuredStep, StepTimes
from scripts.speculate_residuals import Served, _expected


def _case(k: int, step_ms: float) -> SpeculationCase:
    """A step of `step_ms`, known within 10 %, of a model that takes 10 ms for a token."""
    times = StepTimes(k, t1_ms=10.0, step_ms=step_ms)
    even = step_ms / 10.0
    return SpeculationCase(0, MeasuredStep(times, Expected(even, even * 0.9, even * 1.1)))


def test_the_prediction_is_for_the_length_and_the_speed_of_the_server() -> None:
    runs = [_case(3, 28.0), _case(3, 32.0)]  # before and after
    found = _expected(runs, Served(ms_per_token=0.0, off_ms=20.0, mean_len=2.0))
    assert found.value == pytest.approx(20.0 * 3.0 / 2.0, rel=0.01)  # the server takes twice as long as ggbench
    assert (found.low, found.high) == pytest.approx((found.value * 0.9, found.value * 1.1))
