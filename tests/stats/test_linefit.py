"""W and B: exact without noise, covered at the stated rate with it, and None where they cannot be determined."""

import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ggbench.stats.decode_timing import LineFit
from ggbench.stats.linefit import RunningFit, fewest_samples, fit_line
from tests.fakes.latency import B, Floats, W, correlated, positions, ramp, stairs


def holds(interval: tuple[float, float | None] | None, truth: float) -> bool:
    assert interval is not None
    low, high = interval
    return low <= truth and (high is None or truth <= high)


@pytest.mark.parametrize("phi", [0.0, 0.9])
@pytest.mark.parametrize(("n", "n_runs"), [(300, 400), (2000, 200), (10_000, 50)])
def test_intervals_cover_w_and_b_on_stairs_and_ramps_with_correlated_noise(n: int, n_runs: int, phi: float) -> None:
    position = positions(n)
    runs_ms = B * correlated(np.random.default_rng(n), n, n_runs, phi)
    runs_ms[::2] += ramp(position)
    runs_ms[1::2] += stairs(position)
    fits = [fit_line(position, step_ms * 1e6) for step_ms in runs_ms]
    assert np.mean([holds(fit.w_ci95, W) for fit in fits if fit]) >= 0.92
    assert np.mean([holds(fit.b_ci95, B) for fit in fits if fit]) >= 0.92


@pytest.mark.parametrize("n", [300, 2000])
def test_interval_covers_w_under_one_sided_spikes(n: int) -> None:
    rng = np.random.default_rng(n)
    spikes = (rng.random((400, n)) < 0.005) * rng.lognormal(0, 1, (400, n))
    noise_ms = B * (correlated(rng, n, 400, 0.6) + spikes)
    fits = [fit_line(positions(n), (stairs(positions(n)) + run_ms) * 1e6) for run_ms in noise_ms]
    assert np.mean([holds(fit.w_ci95, W) for fit in fits if fit]) >= 0.92


def test_interval_covers_what_repetitions_at_different_levels_have_in_common() -> None:
    rng = np.random.default_rng(11)
    position = positions(600)
    for n_repetitions in (3, 5):
        covered = []
        for _ in range(100):
            level = 1 + 0.03 * rng.standard_normal((n_repetitions, 1))
            step_ms = level * ramp(position) + B * correlated(rng, 600, n_repetitions, 0.6)
            fit = fit_line(np.tile(position, n_repetitions), step_ms.ravel() * 1e6)
            assert fit is not None
            covered.append(holds(fit.b_ci95, B))
        assert np.mean(covered) >= 0.9


def test_recovers_w_and_b_through_the_256_token_staircase() -> None:
    fit = fit_line(positions(10_000), stairs(positions(10_000)) * 1e6)
    assert fit is not None and fit.w_ci95 is not None and fit.w_ci95[1] is not None
    assert fit.w_tokens_per_ms == pytest.approx(W, rel=1e-3)
    assert fit.b_ms == pytest.approx(B, rel=1e-3)
    assert W * 0.995 < fit.w_ci95[0] < W < fit.w_ci95[1] < W * 1.005


@pytest.mark.parametrize("n", [290, 300, 400, 600])
@pytest.mark.parametrize("climb", [ramp, stairs])
def test_interval_of_one_or_two_stairs_admits_both_ramp_and_stairs(n: int, climb: Callable[[Floats], Floats]) -> None:
    fit = fit_line(positions(n), climb(positions(n)) * 1e6)
    assert fit is not None and fit.w_ci95 is not None
    low, high = fit.w_ci95
    assert low <= W * (1 + 1e-9)
    assert high is None or (high >= W * (1 - 1e-9) and high > 1.05 * low)


def test_line_is_the_least_squares_line_of_numpy() -> None:
    position = positions(777)
    step_ms = stairs(position, w=50) + B * correlated(np.random.default_rng(1), 777, 1, 0.6)[0]
    slope, intercept = np.polyfit(position - 1, step_ms, 1)
    fit = fit_line(position, step_ms * 1e6)
    assert fit is not None and fit.w_tokens_per_ms is not None
    assert 1 / fit.w_tokens_per_ms == pytest.approx(slope, rel=1e-9)
    assert fit.b_ms == pytest.approx(intercept, rel=1e-9)
    assert fit.r2 == pytest.approx(np.corrcoef(position, step_ms)[0, 1] ** 2, rel=1e-9)
    assert fit.n_samples == 777


def test_an_insignificant_slope_gives_a_lower_bound_of_w() -> None:
    noise_ms = B * correlated(np.random.default_rng(2), 300, 1, 0.0)[0]
    fit = fit_line(positions(300), (ramp(positions(300), w=1e5) + noise_ms) * 1e6)
    assert fit is not None and fit.w_ci95 is not None
    assert fit.w_tokens_per_ms is None
    assert fit.w_ci95[1] is None
    assert 0 < fit.w_ci95[0] < 1e5
    assert fit.b_ms is None
    assert fit.b_ci95 is not None
    assert B < fit.b_ci95[1] < 1.02 * B


@pytest.mark.parametrize("n", [1, 2, 16, 63, 64, 231, 246])
def test_too_few_samples_bound_b_from_above_and_give_nothing_else(n: int) -> None:
    step_ms = stairs(positions(n))
    fit = fit_line(positions(n), step_ms * 1e6)
    assert fit is not None
    assert (fit.w_tokens_per_ms, fit.w_ci95, fit.b_ms) == (None, None, None)
    assert fit.b_ci95 == (pytest.approx((0.0, step_ms.mean())) if n >= 64 else None)
    assert fit.n_samples == n


@pytest.mark.parametrize("step_ns", [0, 5_000_000])
def test_equal_samples_have_no_w_and_a_certain_bound_of_b(step_ns: int) -> None:
    fit = fit_line(positions(1000), np.full(1000, step_ns))
    assert fit is not None
    assert (fit.w_tokens_per_ms, fit.w_ci95, fit.r2) == (None, None, None)
    assert fit.b_ms is None
    assert fit.b_ci95 == pytest.approx((step_ns * 1e-6, step_ns * 1e-6))


@settings(deadline=None)
@given(
    first=st.integers(1, 1000),
    step_ns=arrays(
        np.float64, st.integers(0, 400), elements=st.floats(0, 1e15) | st.just(math.nan) | st.just(math.inf)
    ),
)
def test_any_samples_give_a_positive_w_or_none(first: int, step_ns: Floats) -> None:
    fit = fit_line(np.arange(first, first + len(step_ns)), step_ns)
    if fit is None:
        return
    if fit.b_ms is not None:
        assert fit.b_ci95 is not None and fit.w_tokens_per_ms is not None
        assert 0 < fit.b_ci95[0] <= fit.b_ms <= fit.b_ci95[1] < math.inf
    if fit.b_ci95 is not None:
        assert 0 <= fit.b_ci95[0] <= fit.b_ci95[1] < math.inf
    if fit.w_ci95 is not None:
        low, high = fit.w_ci95
        assert 0 < low < math.inf
        assert (high is None) == (fit.w_tokens_per_ms is None)
        assert high is None or low <= (fit.w_tokens_per_ms or 0) <= high < math.inf


def test_repetitions_narrow_the_interval_and_their_differences_widen_it() -> None:
    position = positions(1000)
    noise_ms = B * correlated(np.random.default_rng(9), 1000, 3, 0.0)

    def width(step_ms: Floats) -> float:
        fit = fit_line(np.resize(position, step_ms.size), step_ms.ravel() * 1e6)
        assert fit is not None and fit.b_ci95 is not None
        return fit.b_ci95[1] - fit.b_ci95[0]

    steady = width(ramp(position) + noise_ms)
    assert steady < statistics.mean(width(ramp(position) + run_ms) for run_ms in noise_ms)
    assert width(np.array([[0.95], [1.0], [1.05]]) * ramp(position) + noise_ms) > 5 * steady


def test_running_fit_is_that_of_the_table_and_computed_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    position = positions(3000)
    step_ns = (stairs(position, 57.0) + B * correlated(np.random.default_rng(6), 3000, 1, 0.6)[0]) * 1e6
    running = RunningFit()
    fitted: list[LineFit] = []
    for n in range(1, 3001):
        fit = running.of(position[:n], step_ns[:n])
        if fit is not None and (not fitted or fit is not fitted[-1]):
            assert fit == fit_line(position[:n], step_ns[:n])
            fitted.append(fit)
        assert fit is None or fit.n_samples > 8 * n / 9 - 1
    assert len(fitted) < 30


def test_ten_thousand_noisy_tokens_determine_w_within_5_percent() -> None:
    """Coverage is not bought with width."""
    position, widths = positions(10_000), []
    for run_ms in B * correlated(np.random.default_rng(3), 10_000, 50, 0.6):
        fit = fit_line(position, (stairs(position) + run_ms) * 1e6)
        assert fit is not None and fit.w_ci95 is not None and fit.w_ci95[1] is not None
        widths.append(fit.w_ci95[1] - fit.w_ci95[0])
    assert statistics.median(widths) < 0.1 * W


@pytest.mark.parametrize(("n", "w"), [(128, 2064.0), (300, 57.0), (1000, 2064.0)])
def test_a_bound_of_b_alone_covers_b(n: int, w: float) -> None:
    step_ms = stairs(positions(n), w) + 4 * B * correlated(np.random.default_rng(n), n, 400, 0.6)
    fits = [fit_line(positions(n), run_ms * 1e6) for run_ms in step_ms]
    bounds = [fit.b_ci95[1] for fit in fits if fit and fit.b_ci95 and fit.b_ms is None]
    assert not bounds or np.mean([bound >= B for bound in bounds]) >= 0.95
    assert all(fit.b_ms is None for fit in fits if fit and fit.w_tokens_per_ms is None)


def test_without_a_finite_sample_or_with_samples_left_over_there_is_no_fit() -> None:
    assert fit_line([], []) is None
    assert fit_line([26, 27], [math.nan, math.inf]) is None
    with pytest.raises(ValueError, match="equally long"):
        fit_line([1, 2, 3], [1, 2])


def test_the_jump_back_between_unequal_repetitions_is_no_sample() -> None:
    position = np.concatenate([positions(1000), positions(1000), positions(400)])
    fit = fit_line(position, ramp(position) * 1e6)
    assert fit is not None and fit.w_ci95 is not None and fit.w_ci95[1] is not None
    assert fit.w_tokens_per_ms == pytest.approx(W, rel=1e-9)
    assert fit.w_ci95[1] / fit.w_ci95[0] < 1.15


@pytest.mark.parametrize("first_position", [1, 26, 242, 250, 256, 257])
def test_a_line_needs_16_samples_outside_the_fullest_stair(first_position: int) -> None:
    enough = fewest_samples(first_position)
    position = np.arange(first_position, first_position + enough)
    step_ns = 1e6 * (10 + position / 100)
    line, fewer = fit_line(position, step_ns), fit_line(position[:-1], step_ns[:-1])
    assert line is not None and line.w_ci95 is not None
    assert fewer is not None and (fewer.w_tokens_per_ms, fewer.w_ci95, fewer.b_ms) == (None, None, None)
    running = RunningFit()
    assert all(running.of(position[:n], step_ns[:n]) is None for n in range(enough))
