import numpy as np
import pytest

from ggbench.stats.decode_timing import DecodeWindow
from ggbench.stats.window_fit import fit_windows, window_speed


def window(n_depth: int, step_ms: float, n_gen: int = 16) -> DecodeWindow:
    """One repetition of a window with that mean latency."""
    return DecodeWindow(n_depth, n_gen, step_ms * 1e6 * n_gen)


def on_the_line(n_depth: int, w: float = 50.0, b_ms: float = 10.0, n_gen: int = 16) -> float:
    """Mean latency over a window of latency(n) = (n - 1) / W + B."""
    return sum((n - 1) / w + b_ms for n in range(n_depth + 1, n_depth + n_gen + 1)) / n_gen


def test_windows_on_a_line_give_its_w_and_b() -> None:
    fit = fit_windows([window(depth, on_the_line(depth)) for depth in (0, 256, 512, 4096)])

    assert fit is not None
    assert fit.w_tokens_per_ms == pytest.approx(50.0)
    assert fit.b_ms == pytest.approx(10.0)
    assert fit.r2 == pytest.approx(1.0)


def test_the_intervals_hold_the_truth_at_their_rate() -> None:
    rng = np.random.default_rng(5)
    held_w = held_b = 0
    for _ in range(400):
        fit = fit_windows(
            [window(depth, on_the_line(depth) + rng.normal(0, 0.3)) for depth in (0, 256, 512) for _ in range(3)]
        )
        assert fit is not None
        assert fit.w_ci95 is not None
        assert fit.b_ci95 is not None
        held_w += fit.w_ci95[0] <= 50.0 <= (fit.w_ci95[1] or np.inf)
        held_b += fit.b_ci95[0] <= 10.0 <= fit.b_ci95[1]

    assert 365 <= held_w <= 395
    assert 365 <= held_b <= 395


def test_speed_is_tokens_over_time_with_an_interval_of_whole_repetitions() -> None:
    rounds = [
        window(depth, step_ms) for depth, base in ((0, 10.0), (512, 20.0)) for step_ms in (base, base + 1, base - 1)
    ]

    speed = window_speed(rounds)

    assert speed.tok_s == pytest.approx(1e3 / 15)
    assert speed.tok_s_ci95 is not None
    # Totals of 480, 512 and 448 ms for 32 tokens: mean 480, deviation 32, t(2) = 4.3027.
    half_ms = 4.302653 * 32 / 3**0.5
    assert speed.tok_s_ci95[0] == pytest.approx(32e3 / (480 + half_ms))
    assert window_speed(rounds[:2]).tok_s_ci95 is None
    assert window_speed([DecodeWindow(0, 16, 1e6, repeat=None)] * 3).tok_s_ci95 is None
