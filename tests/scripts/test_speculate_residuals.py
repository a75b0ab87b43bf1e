"""The prediction beside an answer of llama-server is for what the server did: its length, and its mean draft."""

import pytest

from ggbench.experiments.speculate.record import SpeculationCase
from ggbench.stats.intervals import Expected
from ggbench.stats.speculation import MeasuredStep, StepTimes
from scripts.speculate_residuals import Served, _expected


def _case(k: int, step_ms: float) -> SpeculationCase:
    """A step of `step_ms`, known within 10 %, of a model that takes 10 ms for a token."""
    times = StepTimes(k, t1_ms=10.0, verify_ms=step_ms, draft_ms=0.0, reread_ms=0.0, host_ms=0.0, sampler_ms=0.0)
    even = step_ms / 10.0
    return SpeculationCase(0, MeasuredStep(times, Expected(even, even * 0.9, even * 1.1)))


def test_a_step_that_drafted_fewer_lies_between_the_measured_ones() -> None:
    runs = [(_case(1, 14.0), _case(1, 16.0)), (_case(3, 25.0), _case(3, 35.0))]  # each k before and after
    found = _expected(runs, Served(ms_per_token=0.0, mean_len=2.0, mean_drafted=2.0), off_ms=20.0)
    assert found.value == pytest.approx(20.0 * (1.5 + 3.0) / 2 / 2.0)  # the server takes twice as long as ggbench
    assert (found.low, found.high) == pytest.approx((found.value * 0.9, found.value * 1.1))
