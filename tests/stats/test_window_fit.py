"""Lines fitted to decodes that were timed as a whole, or in chunks."""

import numpy as np
import pytest

from ggbench.stats.decode_timing import DecodeWindow, TimedSeries, TokenChunks, TokenTimes
from ggbench.stats.linefit import fit_windows, window_speed
from ggbench.stats.speed import summarize_tokens


def window(n_depth: int, step_ms: float, n_gen: int = 16) -> DecodeWindow:
    return DecodeWindow(n_depth, n_gen, step_ms * 1e6 * n_gen)


def on_the_line(n_depth: int, w: float = 50.0, b_ms: float = 10.0, n_gen: int = 16) -> float:
    """Mean latency over a window of latency(n) = (n - 1) / W + B."""
    return sum((n - 1) / w + b_ms for n in range(n_depth + 1, n_depth + n_gen + 1)) / n_gen


def test_windows_on_a_line_give_its_w_and_b() -> None:
    fit = fit_windows([window(depth, on_the_line(depth)) for depth in (0, 4096)])
    assert fit is not None
    assert (fit.w_tokens_per_ms, fit.b_ms) == pytest.approx((50.0, 10.0))
    assert (fit.w_ci95, fit.b_ci95) == (None, None), "one turn does not tell the context from the machine"
    assert fit_windows([window(0, 1.0)] * 5) is None


def test_windows_on_both_sides_of_a_break_give_w_before_and_after() -> None:
    def step_ms(position: float) -> float:
        return 10.0 + min(position - 1, 2047) / 50 + max(position - 2048, 0) / 400

    windows = [window(depth, step_ms(depth + 8.5)) for depth in (0, 1024, 4096, 8192)]
    fit = fit_windows(windows, [2048])
    assert fit is not None and fit.breaks[0].n == 2048
    assert (fit.breaks[0].w_tokens_per_ms, fit.w_tokens_per_ms, fit.b_ms) == pytest.approx((50.0, 400.0, 10.0))
    assert fit_windows(windows[::3], [2048]) is None, "two depths do not show two slopes"


def test_the_intervals_of_turns_hold_the_truth_at_their_rate() -> None:
    rng = np.random.default_rng(5)
    held_w = held_b = 0
    for _ in range(400):
        windows = [window(depth, on_the_line(depth) + rng.normal(0, 0.3)) for depth in (0, 256, 512) for _ in range(4)]
        fit = fit_windows(windows)
        assert fit is not None and fit.w_ci95 is not None and fit.b_ci95 is not None
        held_w += fit.w_ci95[0] <= 50.0 <= (fit.w_ci95[1] or np.inf)
        held_b += fit.b_ci95[0] <= 10.0 <= fit.b_ci95[1]
        one_after_another = fit_windows(windows, in_turns=False)
        assert one_after_another is not None and one_after_another.w_ci95 is None
    assert held_w >= 380
    assert held_b >= 380


def test_speed_is_tokens_over_time_with_an_interval_of_whole_repetitions() -> None:
    rounds = [
        window(depth, step_ms)
        for depth, base in ((0, 10.0), (512, 20.0))
        for step_ms in (base, base + 1, base - 1, base) * 2
    ]
    speed = window_speed(rounds)
    assert speed.tok_s == pytest.approx(1e3 / 15)
    assert speed.tok_s_ci95 is not None
    # Totals of 480, 512, 448 and 480 ms, each twice, for 32 tokens: t(7) = 2.3646.
    half_ms = 3.2 * 2.364624 * (4 * 32**2 / 7) ** 0.5 / 8**0.5
    assert speed.tok_s_ci95[0] == pytest.approx(32e3 / (480 + half_ms), rel=1e-4)
    assert window_speed(rounds[:7]).tok_s_ci95 is None
    assert window_speed([DecodeWindow(0, 16, 1e6, repeat=None)] * 8).tok_s_ci95 is None


B_NS, NS_PER_TOKEN = 10_000_000, 5_000
"""The line below: B 10 ms, W 200 tokens/ms."""


def _latency_ns(position: int) -> int:
    return B_NS + (position - 1) * NS_PER_TOKEN


def _chunked(sizes: list[int]) -> TimedSeries:
    """A decode on the line, whose tokens come in chunks of these sizes after a prompt of 25."""
    position, step_ns, chunks, at = [], [], [], 26
    for size in sizes:
        elapsed_ns = sum(map(_latency_ns, range(at, at + size)))
        if size == 1:
            position.append(at)
            step_ns.append(elapsed_ns)
        else:
            chunks.append(TokenChunks((at,), (size,), (elapsed_ns,)))
        at += size
    return TimedSeries(position, step_ns, chunks=tuple(chunks))


def test_rare_chunks_count_for_the_speed_alone() -> None:
    times = TokenTimes.of([_chunked([1] * 60 + [2] + [1] * 60)])
    assert times.is_single
    assert len(times.step_ns) == 120
    assert (times.n_tokens, times.n_together) == (122, 2)
    assert times.elapsed_ns == sum(map(_latency_ns, range(26, 26 + 122)))


def test_a_flat_line_is_a_bound() -> None:
    levels = ((10.0, 10.2, 9.9, 10.1), (10.1, 9.9, 10.2, 10.0))
    fit = fit_windows([window(256 * index, step_ms) for index, own in enumerate(levels) for step_ms in own])
    assert fit is not None and fit.w_ci95 is not None
    assert (fit.w_tokens_per_ms, fit.w_ci95[1]) == (None, None)
    assert fit.b_ms == pytest.approx(10.05)


def test_of_common_chunks_only_the_speed_is_known() -> None:
    """What came alone are the steps without a draft, and slow."""
    times = TokenTimes.of([_chunked([1, 3] * 400)])
    assert not times.is_single and times.n_tokens == 1600
    found = summarize_tokens(times)
    assert found is not None and found.tok_s == pytest.approx(1600e9 / sum(map(_latency_ns, range(26, 1626))))
    assert (found.p50_ms, found.tok_s_ci95) == (None, None)
