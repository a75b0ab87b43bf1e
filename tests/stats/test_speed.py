"""Percentiles and rate, against values computed by hand; the rate's interval, against simulated noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ggbench.stats.speed import prompt_speed, summarize
from tests.fakes.latency import B, Floats, correlated, positions, ramp, stairs


def rate_covers(step_ms: Floats, position: Floats, truth_ms: float) -> bool:
    found = summarize(position, step_ms * 1e6)
    assert found is not None and found.tok_s_ci95 is not None
    low, high = found.tok_s_ci95
    return low <= 1e3 / truth_ms and (high is None or 1e3 / truth_ms <= high)


def test_percentiles_and_rate_of_known_steps() -> None:
    step_ns = np.random.default_rng(0).permutation(np.arange(1, 102)) * 1_000_000
    summary = summarize(range(26, 127), step_ns)
    assert summary is not None
    assert (summary.p50_ms, summary.p99_ms) == pytest.approx((51, 100))
    assert summary.tok_s == pytest.approx(101 / 5.151)


@pytest.mark.parametrize(("n", "phi", "w"), [(2400, 0.0, 57.0), (2400, 0.9, 2064.0), (10_000, 0.6, 57.0)])
def test_interval_covers_the_rate_on_stairs_and_ramps_with_correlated_noise(n: int, phi: float, w: float) -> None:
    position = positions(n)
    noise_ms = B * correlated(np.random.default_rng(n), n, 200, phi)
    climbs = (ramp(position, w), stairs(position, w))
    covered = [
        rate_covers(climb + noise_ms[index], position, float(climb.mean()))
        for index in range(len(noise_ms))
        for climb in (climbs[index % 2],)
    ]
    assert np.mean(covered) >= 0.92


def test_interval_covers_what_repetitions_at_different_levels_have_in_common() -> None:
    rng = np.random.default_rng(11)
    position = positions(2400)
    for n_repetitions in (3, 5):
        covered = []
        for _ in range(100):
            level = 1 + 0.03 * rng.standard_normal((n_repetitions, 1))
            step_ms = level * ramp(position) + B * correlated(rng, 2400, n_repetitions, 0.6)
            truth_ms = float(ramp(position).mean())
            covered.append(rate_covers(step_ms.ravel(), np.tile(position, n_repetitions), truth_ms))
        assert np.mean(covered) >= 0.9


def test_interval_of_a_prompt_covers_its_speed_where_each_timing_resembles_the_one_before() -> None:
    rng = np.random.default_rng(5)
    covered = []
    for noise in correlated(rng, 8, 400, 0.8):
        found = prompt_speed(512, [round(each) for each in 2e9 * (1 + noise)])
        assert found.tok_s_ci95 is not None
        low, high = found.tok_s_ci95
        assert low <= found.tok_s <= (high or np.inf)
        covered.append(low <= 256 <= (high or np.inf))
    assert np.mean(covered) >= 0.9
    assert prompt_speed(25, [10_000_000, 12_000_000] * 3).tok_s_ci95 is None
    assert prompt_speed(25, [10_000_000] * 2).tok_s == pytest.approx(2500)


@settings(deadline=None, max_examples=50)
@given(
    first=st.integers(1, 1000),
    step_ns=arrays(
        np.float64, st.integers(0, 3000), elements=st.floats(0, 1e15) | st.just(math.nan) | st.just(math.inf)
    ),
)
def test_any_samples_give_an_interval_around_the_rate_or_none(first: int, step_ns: Floats) -> None:
    found = summarize(np.arange(first, first + len(step_ns)), step_ns)
    if found is None or found.tok_s_ci95 is None:
        return
    low, high = found.tok_s_ci95
    assert 0 < low <= found.tok_s * (1 + 1e-12)
    assert high is None or found.tok_s * (1 - 1e-12) <= high


@pytest.mark.parametrize("step_ns", [[], [math.nan], [0, 0]])
def test_without_a_time_there_is_no_rate(step_ns: list[float]) -> None:
    assert summarize(range(1, 1 + len(step_ns)), step_ns) is None


def test_a_climb_is_no_noise() -> None:
    found = summarize(positions(3000), ramp(positions(3000), 20.0) * 1e6)
    assert found is not None
    assert found.tok_s_ci95 == pytest.approx((found.tok_s, found.tok_s), rel=1e-6)


@pytest.mark.parametrize("n", [1, 63, 2279])
def test_few_samples_have_a_rate_without_an_interval(n: int) -> None:
    """They may lie within one state of the machine."""
    found = summarize(positions(n), ramp(positions(n)) * 1e6)
    assert found is not None and found.tok_s_ci95 is None
