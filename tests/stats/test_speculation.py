"""The arithmetic of speculative decoding, compared with steps computed by hand and with simulated acceptance."""

import random
import statistics

import pytest

from ggbench.stats.speculation import StepTimes, acceptance_of, best_step, mean_len, measured_step

STEP = StepTimes(3, 10, 20)
"""A step takes as much as two tokens without a draft."""


def test_a_step_worked_by_hand() -> None:
    assert STEP.break_even_len == 2
    assert [STEP.speedup(n, 2) for n in (1, 2, 3, 4)] == [0.5, 1, 1.5, 2]


def test_sampling_costs_the_same_with_a_draft_and_without() -> None:
    """It moves no break-even, but lowers what can be gained."""
    slow = StepTimes(3, 10, 20, sampler_ms=10)
    assert slow.break_even_len == 2
    assert slow.speedup(2, 2) == pytest.approx(1)
    assert slow.speedup(4, 2) == pytest.approx(4 * (10 + 10) / (20 + 4 * 10))


@pytest.mark.parametrize(("acceptance", "k"), [(0.0, 3), (0.3, 1), (0.7, 5), (0.9, 8), (1.0, 4)])
def test_mean_length_agrees_with_simulated_acceptance(acceptance: float, k: int) -> None:
    rng = random.Random(41)

    def simulated() -> int:
        n_accepted = 0
        while n_accepted < k and rng.random() < acceptance:
            n_accepted += 1
        return n_accepted + 1

    lengths = [simulated() for _ in range(20_000)]
    error = statistics.pstdev(lengths) / len(lengths) ** 0.5
    assert mean_len(acceptance, k) == pytest.approx(statistics.fmean(lengths), abs=4 * error + 1e-12)
    assert acceptance_of(mean_len(acceptance, k), k) == pytest.approx(acceptance, abs=1e-9)


def test_a_step_cannot_yield_more_than_it_verifies() -> None:
    assert acceptance_of(4.01, 3) is None
    assert acceptance_of(4.0, 3) == pytest.approx(1)


def test_the_interval_covers_rounds_that_agree_on_the_ratio_although_the_machine_slows_down() -> None:
    rounds = [StepTimes(3, 10 * slow, 20 * slow) for slow in (1.0, 1.5, 2.0)]
    found = measured_step(rounds)
    even = found.break_even
    assert (even.value, even.low, even.high) == pytest.approx((2, 2, 2))
    assert found.times.t1_ms == pytest.approx(15)
    spread = measured_step([StepTimes(3, 10, 20 + extra) for extra in (-1, 0, 1)])
    assert spread.break_even.low == pytest.approx(2 - 4.303 * 0.1 / 3**0.5, abs=0.03)
    gain = spread.best_speedup
    assert gain.value == pytest.approx(2, rel=1e-3) and gain.low < 2 < gain.high
    assert gain.low == pytest.approx(4 / spread.break_even.high)


def test_the_fastest_k_grows_with_acceptance() -> None:
    """Drafting costs 2 ms a token, verifying 0.5 ms: nothing pays at 10 %, and long drafts only near certainty."""
    steps = [measured_step([StepTimes(k, 10, 10 + 0.5 * k + 2 * k + 1)] * 2) for k in (1, 2, 4, 8, 16)]
    fastest = [best_step(steps, acceptance) for acceptance in (0.1, 0.6, 0.8, 0.99)]
    assert [each.times.k for each in fastest] == [1, 2, 4, 16]
    assert fastest[0].speedup(mean_len(0.1, 1)).value < 1 < fastest[1].speedup(mean_len(0.6, 2)).value
