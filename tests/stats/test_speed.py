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
    summary = summarize(range(26, 127), step_ns, sampler_ns=[10_000, 30_000, 20_000])
    assert summary is not None
    assert (summary.p50_ms, summary.p95_ms, summary.p99_ms) == pytest.approx((51, 96, 100))
    assert summary.tok_s == pytest.approx(101 / 5.151)
    assert summary.sample_p50_ms == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("n", "phi", "w"), [(64, 0.6, 2064.0), (300, 0.0, 57.0), (300, 0.9, 2064.0), (2000, 0.6, 57.0)]
)
def test_interval_covers_the_rate_on_stairs_and_ramps_with_correlated_noise(n: int, phi: float, w: float) -> None:
    position = positions(n)
    noise_ms = B * correlated(np.random.default_rng(n), n, 400, phi)
    climbs = (ramp(position, w), stairs(position, w), (ramp(position, w) + stairs(position, w)) / 2)
    covered = [
        rate_covers(climb + noise_ms[index], position, float(climb.mean()))
        for index in range(len(noise_ms))
        for climb in (climbs[index % 3],)
    ]
    assert np.mean(covered) >= 0.92


def test_interval_covers_what_repetitions_at_different_levels_have_in_common() -> None:
    rng = np.random.default_rng(11)
    position = positions(600)
    for n_repetitions in (3, 5):
        covered = []
        for _ in range(100):
            level = 1 + 0.03 * rng.standard_normal((n_repetitions, 1))
            step_ms = level * ramp(position) + B * correlated(rng, 600, n_repetitions, 0.6)
            truth_ms = float(ramp(position).mean())
            covered.append(rate_covers(step_ms.ravel(), np.tile(position, n_repetitions), truth_ms))
        assert np.mean(covered) >= 0.9


def test_interval_of_a_prompt_covers_its_speed() -> None:
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(400):
        found = prompt_speed(512, [round(each) for each in 2e9 * rng.normal(1, 0.03, 3)])
        assert found.tok_s_ci95 is not None and found.tok_s_ci95[1] is not None
        assert found.tok_s_ci95[0] <= found.tok_s <= found.tok_s_ci95[1]
        covered.append(found.tok_s_ci95[0] <= 256 <= found.tok_s_ci95[1])
    assert np.mean(covered) >= 0.93
    assert prompt_speed(25, [10_000_000, 12_000_000]).tok_s_ci95 is None
    assert prompt_speed(25, [10_000_000] * 2).tok_s == pytest.approx(2500)


@settings(deadline=None)
@given(
    first=st.integers(1, 1000),
    step_ns=arrays(
        np.float64, st.integers(0, 400), elements=st.floats(0, 1e15) | st.just(math.nan) | st.just(math.inf)
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


@pytest.mark.parametrize("position", [positions(1000), np.concatenate([positions(1000), positions(400)])])
def test_a_climb_is_no_noise(position: Floats) -> None:
    """Nor is a repetition that was cut short, and so ends where latency is lower."""
    found = summarize(position, ramp(position, 20.0) * 1e6)
    assert found is not None
    assert found.tok_s_ci95 == pytest.approx((found.tok_s, found.tok_s), rel=1e-6)


def test_600_noisy_tokens_determine_the_rate_within_2_percent() -> None:
    noise_ms = B * correlated(np.random.default_rng(3), 600, 50, 0.6)
    found = [summarize(positions(600), (stairs(positions(600)) + run_ms) * 1e6) for run_ms in noise_ms]
    intervals = [each.tok_s_ci95 for each in found if each and each.tok_s_ci95]
    widths = [high / low - 1 for low, high in intervals if high]
    assert len(widths) == 50
    assert np.median(widths) < 0.02


@pytest.mark.parametrize("n", [1, 15, 63])
def test_few_samples_have_a_rate_without_an_interval(n: int) -> None:
    """How far noise is correlated cannot be seen in less than a quarter of a stair."""
    found = summarize(positions(n), ramp(positions(n)) * 1e6)
    assert found is not None and found.tok_s_ci95 is None
