"""W and B: exact without noise, covered with it, told from a machine that changes, and None where they are unknown."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ggbench.stats.decode_timing import DecodeWindow, LineFit
from ggbench.stats.linefit import again_windows, fewest_samples, fit_line
from tests.fakes.latency import B, Floats, W, correlated, positions, ramp, stairs


def holds(interval: tuple[float, float | None] | None, truth: float) -> bool:
    assert interval is not None
    low, high = interval
    return low <= truth * (1 + 1e-9) and (high is None or truth <= high * (1 + 1e-9))


def timed_again(n: int, climb: Floats, noise_ms: Floats, breaks: Sequence[int] = ()) -> list[DecodeWindow]:
    """Windows after a run of n tokens on this climb, with this noise."""
    windows, at = [], 0
    for depth, n_each in again_windows(26, n, breaks):
        step_ms = climb[depth - 25 : depth - 25 + n_each] + noise_ms[at : at + n_each]
        windows.append(DecodeWindow(depth, n_each, float(step_ms.sum()) * 1e6))
        at += n_each
    return windows


def fitted(step_ms: Floats, again: list[DecodeWindow], breaks: Sequence[int] = ()) -> LineFit:
    fit = fit_line(positions(len(step_ms)), step_ms * 1e6, again, breaks)
    assert fit is not None
    return fit


@pytest.mark.parametrize("phi", [0.0, 0.9])
@pytest.mark.parametrize(("n", "n_runs"), [(2400, 100), (10_000, 40)])
def test_intervals_cover_w_and_b_on_stairs_and_ramps_with_correlated_noise(n: int, n_runs: int, phi: float) -> None:
    noise_ms = B * correlated(np.random.default_rng(n), 2 * n, n_runs, phi)
    climbs = (ramp(positions(n)), stairs(positions(n)))
    fits = [
        fitted(climb + run_ms[:n], timed_again(n, climb, run_ms[n:]))
        for index, run_ms in enumerate(noise_ms)
        for climb in (climbs[index % 2],)
    ]
    assert np.mean([holds(fit.w_ci95, W) for fit in fits]) >= 0.95
    assert np.mean([holds(fit.b_ci95, B) for fit in fits]) >= 0.95
    assert np.mean([fit.has_changed or fit.is_nothing for fit in fits]) <= 0.1


@pytest.mark.parametrize("climb", [ramp, stairs])
def test_without_noise_w_and_b_are_exact(climb: object) -> None:
    assert callable(climb)
    step_ms = climb(positions(10_000))
    fit = fitted(step_ms, timed_again(10_000, step_ms, np.zeros(10_000)))
    assert (fit.w_tokens_per_ms, fit.b_ms) == pytest.approx((W, B), rel=1e-6)
    assert fit.w_ci95 == pytest.approx((W, W), rel=1e-3)
    assert not fit.has_changed
    alone = fitted(step_ms, [])
    assert (alone.w_tokens_per_ms, alone.b_ms) == pytest.approx((W, B), rel=1e-6)
    assert (alone.w_ci95, alone.b_ci95) == (None, None)


@pytest.mark.parametrize(
    "slowing",
    [
        1 + 0.05 * np.arange(10_000) / 10_000,
        1.05 - 0.05 * np.exp(-np.arange(10_000) / 2000),
        1 + 0.5 * ((np.arange(10_000) >= 4000) & (np.arange(10_000) < 7000)),
        1 + 0.5 * (np.arange(10_000) >= 5000),
    ],
)
def test_where_the_machine_changed_w_is_that_of_the_depths_timed_again(slowing: Floats) -> None:
    """A clock that falls, a turbo that ends, and a load in the middle of the run."""
    n, climb = 10_000, stairs(positions(10_000))
    noise_ms = 0.02 * B * np.random.default_rng(1).standard_normal(2 * n)
    fit = fitted((climb + noise_ms[:n]) * slowing, timed_again(n, climb, noise_ms[n:]))
    assert fit.has_changed
    assert holds(fit.w_ci95, W) and holds(fit.b_ci95, B)


def test_a_plateau_is_neither_the_machine_nor_a_line() -> None:
    n = 10_000
    climb = np.maximum(ramp(positions(n)), ramp(np.array([4000.0]))[0])
    noise_ms = 0.02 * B * np.random.default_rng(1).standard_normal(2 * n)
    fit = fitted(climb + noise_ms[:n], timed_again(n, climb, noise_ms[n:]))
    assert fit.is_nothing and fit.b_ms is None and not fit.has_changed


def broken(position: Floats, *pieces: tuple[int, float]) -> Floats:
    """Latency with a W up to each position."""
    climb, start = np.full(len(position), B), 1
    for end, w in pieces:
        climb, start = climb + (np.clip(position, start, end) - start) / w, end
    return climb


FAR = 1 << 20


@pytest.mark.parametrize(
    ("n", "breaks", "pieces"),
    [
        (10_000, (2051,), ((2051, 271.0), (FAR, 1900.0))),
        (10_000, (1024,), ((1024, 200.0), (FAR, W))),
        (10_000, (128, 2048), ((2048, 300.0), (FAR, 1000.0))),
        (10_000, (2048, 6144), ((2048, 300.0), (6144, 800.0), (FAR, 5000.0))),
        (3000, (8192,), ((FAR, 271.0),)),
        (1000, (256,), ((FAR, W),)),
        (1700, (1024,), ((1024, 300.0), (FAR, 1000.0))),
    ],
    ids=["budget", "window", "window of a stair", "two", "not reached", "short", "too short for both"],
)
def test_without_noise_w_is_exact_before_and_after_the_breaks_of_the_header(
    n: int, breaks: tuple[int, ...], pieces: tuple[tuple[int, float], ...]
) -> None:
    climb = broken(positions(n), *pieces)
    fit = fitted(climb, timed_again(n, climb, np.zeros(n), breaks), breaks)
    measured = [each for each in breaks if 540 < each < 26 + n - 512 or each > n]
    if n == 1700:
        measured = [1024]
    assert [each.n for each in fit.breaks] == measured
    found = [each.w_tokens_per_ms for each in fit.breaks]
    if len(found) < len(pieces):
        found.append(fit.w_tokens_per_ms)
    if n == 1700:
        found[1:] = [1000.0]
        assert fit.w_tokens_per_ms is None and fit.w_ci95 is None
    assert found == pytest.approx([w for _, w in pieces], rel=1e-6)
    assert fit.b_ms == pytest.approx(B, rel=1e-6)


def test_intervals_cover_w_before_and_after_a_break() -> None:
    n, breaks = 10_000, (2048,)
    climb = broken(positions(n), (2048, 271.0), (FAR, 1900.0))
    noise_ms = B * correlated(np.random.default_rng(7), 2 * n, 40, 0.6)
    fits = [fitted(climb + each[:n], timed_again(n, climb, each[n:], breaks), breaks) for each in noise_ms]
    shown = [fit for fit in fits if not fit.is_nothing]
    assert len(shown) >= 36
    assert np.mean([holds(fit.breaks[0].w_ci95, 271.0) for fit in shown]) >= 0.95
    assert np.mean([holds(fit.w_ci95, 1900.0) for fit in shown]) >= 0.95
    assert np.mean([holds(fit.b_ci95, B) for fit in shown]) >= 0.95


def test_an_insignificant_slope_gives_a_lower_bound_of_w() -> None:
    noise_ms = B * correlated(np.random.default_rng(2), 5000, 1, 0.0)[0]
    climb = ramp(positions(2400), 1e6)
    fit = fitted(climb + noise_ms[:2400], timed_again(2400, climb, noise_ms[2400:]))
    assert fit.w_ci95 is not None and fit.b_ci95 is not None
    assert (fit.w_tokens_per_ms, fit.w_ci95[1]) == (None, None)
    assert 0 < fit.w_ci95[0] < 1e6
    assert fit.b_ci95[0] < B < fit.b_ci95[1] < 1.1 * B


@pytest.mark.parametrize("step_ns", [0, 5_000_000])
def test_equal_samples_have_no_w(step_ns: int) -> None:
    fit = fit_line(positions(3000), np.full(3000, step_ns))
    assert fit == LineFit(3000, None, None, step_ns / 1e6 or None, None)


@settings(deadline=None, max_examples=50)
@given(
    first=st.integers(1, 1000),
    step_ns=arrays(
        np.float64, st.integers(0, 3000), elements=st.floats(0, 1e15) | st.just(math.nan) | st.just(math.inf)
    ),
)
def test_any_samples_give_a_positive_w_or_none(first: int, step_ns: Floats) -> None:
    again = [DecodeWindow(depth, n, 1e6 * n) for depth, n in again_windows(first, len(step_ns))]
    fit = fit_line(np.arange(first, first + len(step_ns)), step_ns, again)
    if fit is None:
        return
    if fit.b_ms is not None:
        assert fit.b_ms > 0
    if fit.b_ms is not None and fit.b_ci95 is not None:
        assert 0 < fit.b_ci95[0] <= fit.b_ms <= fit.b_ci95[1] < math.inf
    if fit.w_ci95 is not None:
        low, high = fit.w_ci95
        assert 0 < low < math.inf
        assert (high is None) == (fit.w_tokens_per_ms is None)
        assert high is None or low <= (fit.w_tokens_per_ms or 0) <= high < math.inf


def test_repetitions_share_their_blocks_and_a_jump_back_is_no_sample() -> None:
    position = np.concatenate([positions(3000), positions(3000), positions(1000)])
    fit = fit_line(position, ramp(position) * 1e6)
    assert fit is not None
    assert (fit.n_samples, fit.w_tokens_per_ms, fit.b_ms) == pytest.approx((7000, W, B), rel=1e-9)


def test_without_a_finite_sample_or_with_samples_left_over_there_is_no_fit() -> None:
    assert fit_line([], []) is None
    assert fit_line([26, 27], [math.nan, math.inf]) is None
    with pytest.raises(ValueError, match="equally long"):
        fit_line([1, 2, 3], [1, 2])


@pytest.mark.parametrize("first_position", [1, 26, 256, 257])
def test_a_line_needs_8_whole_stairs_or_windows_after_one(first_position: int) -> None:
    enough = fewest_samples(first_position, is_timed_again=False)
    position = np.arange(first_position, first_position + enough, dtype=float)
    line, fewer = (fit_line(each, ramp(each) * 1e6) for each in (position, position[:-1]))
    assert line is not None and line.w_tokens_per_ms == pytest.approx(W)
    assert fewer is not None and fewer.is_nothing
    least = fewest_samples(first_position, is_timed_again=True)
    assert again_windows(first_position, least) and not again_windows(first_position, least - 1)


@pytest.mark.parametrize("breaks", [(), (256,)])
@pytest.mark.parametrize("climb", [ramp, stairs])
def test_a_short_run_has_w_and_b_by_its_windows(climb: object, breaks: tuple[int, ...]) -> None:
    """Without noise exact; a machine that was faster while it ran makes B uncertain and leaves W."""
    assert callable(climb)
    n, step_ms = 1000, climb(positions(1000))
    again = timed_again(n, step_ms, np.zeros(n), breaks)
    fit = fitted(step_ms, again, breaks)
    assert (fit.w_tokens_per_ms, fit.b_ms) == pytest.approx((W, B), rel=1e-6)
    assert fit.w_ci95 == pytest.approx((W, W), rel=1e-3) and not fit.has_changed
    fast = fitted(step_ms * 0.95, again, breaks)
    assert fast.w_tokens_per_ms == pytest.approx(W, rel=1e-6)
    assert fast.b_ci95 is not None and fast.b_ci95[0] < 0.9 * B and holds(fast.b_ci95, B)


@pytest.mark.parametrize("n", [500, 1000])
def test_intervals_of_a_short_run_cover_w_and_b(n: int) -> None:
    climb, noise_ms = stairs(positions(n)), B * correlated(np.random.default_rng(n), 2 * n, 100, 0.6)
    fits = [fitted(climb + run_ms[:n], timed_again(n, climb, run_ms[n:])) for run_ms in noise_ms]
    assert np.mean([holds(fit.w_ci95, W) for fit in fits]) >= 0.95
    assert np.mean([holds(fit.b_ci95, B) for fit in fits]) >= 0.95


def test_the_windows_take_a_tenth_and_go_back_and_forth() -> None:
    windows = again_windows(26, 10_000)
    first, middle, last = (depth for depth, _ in windows[:3])
    assert [depth for depth, _ in windows] == 2 * [first, middle, last] + 2 * [last, middle, first]
    assert 26 < first < middle < last < 10_026 - windows[0][1]
    assert 900 <= sum(n for _, n in windows) <= 1000


def test_ten_thousand_noisy_tokens_determine_w_within_10_percent() -> None:
    """Coverage is not bought with width."""
    climb, widths = stairs(positions(10_000)), []
    for run_ms in B * correlated(np.random.default_rng(3), 12_000, 20, 0.6):
        fit = fitted(climb + run_ms[:10_000], timed_again(10_000, climb, run_ms[10_000:]))
        if fit.w_ci95 is not None and fit.w_ci95[1] is not None:
            widths.append(fit.w_ci95[1] - fit.w_ci95[0])
    assert len(widths) > 17
    assert np.median(widths) < 0.2 * W
