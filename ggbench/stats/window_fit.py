"""W, B and speed from windows of steps that another tool timed together, such as llama-bench's tg128 at several depths.

A window's time is the sum over its steps, and the line is straight: its mean latency is the line's value at its middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggbench.stats.decode_timing import DecodeWindow, LatencySummary, LineFit
from ggbench.stats.linefit import Moments, theil_sen
from ggbench.stats.samples import t_95
from ggbench.stats.speed import prompt_speed

FEWEST = 3
"""Timings; two define a line, and nothing that says how far it may be off."""


def fit_windows(windows: Sequence[DecodeWindow]) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B by least squares; None for fewer than 3 timings, or one depth alone.

    The 95 % intervals are the textbook's, of independent timings about a straight line, Student's t with two degrees of
    freedom fewer than timings: what the stairs of 256 cells and a drift add is unknown. As of `fit_line`, W is None
    where its interval includes zero, and B without W or where its interval does.
    """
    x = np.array([window.mean_position - 1 for window in windows], np.float64)
    y = np.array([window.step_ms for window in windows], np.float64)
    line = Moments.of(x, y)
    if len(windows) < FEWEST or line.sxx <= 0:
        return None
    freedom = len(windows) - 2
    residuals = y - line.intercept - line.slope * x
    noise_ms = t_95(freedom) * math.sqrt(float(residuals @ residuals) / freedom)
    slope_error = noise_ms / math.sqrt(line.sxx)
    low, high = line.slope - slope_error, max(line.slope, 0.0) + slope_error
    w_is_known = low > 0
    b_error = noise_ms * math.sqrt(1 / line.count + line.mean_x**2 / line.sxx)
    b_low_ms, b_high_ms = max(0.0, line.intercept - b_error), max(0.0, line.intercept + b_error)
    robust = theil_sen(x, y)
    return LineFit(
        n_samples=len(windows),
        w_tokens_per_ms=1 / line.slope if w_is_known else None,
        w_ci95=(1 / high, 1 / low if w_is_known else None) if high > 0 else None,
        b_ms=line.intercept if w_is_known and b_low_ms > 0 else None,
        b_ci95=(b_low_ms, b_high_ms),
        r2=line.r2,
        robust_w_tokens_per_ms=1 / robust if robust is not None and robust > 0 else None,
    )


def window_speed(windows: Sequence[DecodeWindow]) -> LatencySummary:
    """Return tokens per second over all windows, at least one, without percentiles, which take single steps.

    Its interval is that of the repetitions' whole times; None where they are fewer than 3, or not as many everywhere.
    """
    n_tokens, elapsed_ns = sum(each.n_gen for each in windows), sum(each.elapsed_ns for each in windows)
    by_depth: dict[int, list[DecodeWindow]] = {}
    for window in windows:
        by_depth.setdefault(window.n_depth, []).append(window)
    interval = None
    if len({len(each) for each in by_depth.values()}) == 1 and all(window.repeat == 1 for window in windows):
        rounds = list(zip(*by_depth.values(), strict=True))
        n_each = sum(window.n_gen for window in rounds[0])
        interval = prompt_speed(n_each, [round(sum(each.elapsed_ns for each in one)) for one in rounds]).tok_s_ci95
    return LatencySummary(None, None, None, n_tokens * 1e9 / elapsed_ns, None, interval)
