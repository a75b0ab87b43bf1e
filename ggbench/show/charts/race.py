"""Runs generating against the clock: tokens over time, and which run overtakes which.

A quant with the smaller B leads at first; one with the larger W may pass it as the context grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggbench.show.plot.curves import Curve, Figure, Floats, Line, PlottedRun, fitted_line
from ggbench.show.plot.palette import letter
from ggbench.stats.samples import split_repetitions
from ggbench.stats.window_fit import DecodeWindow
from ggbench.units import format_count, format_duration

_POINTS = 240
"""Of a curve: it bends slowly."""
_BEHIND, _AHEAD = 0.02, 0.005
"""By which part of the time a run has to be behind before it can overtake, and ahead at the end: less is noise."""
_FIRST = 64
"""Tokens after which a lead counts."""
_FARTHEST = 131_072
"""Tokens up to which fits are compared, the longest context that models are commonly trained to."""
_SECONDS_FROM_MS = 100_000.0
"""A race longer than this has its axis in seconds."""


def race(runs: Sequence[PlottedRun]) -> Figure:
    """Return tokens generated over time; of a run that is not one decode, pass one without steps.

    Each curve is the first repetition of its run; that of an imported run, which has no steps, comes from its fit.
    """
    clocks = [_clock_ms(run) for run in runs]
    longest = max((float(clock[-1]) for clock in clocks if len(clock)), default=0.0)
    unit, per_unit = ("s", 1e3) if longest > _SECONDS_FROM_MS else ("ms", 1.0)
    curves = tuple(
        _curve(run, clock, per_unit, _overtakes(index, runs, clocks))
        for index, (run, clock) in enumerate(zip(runs, clocks, strict=True))
    )
    if sum(len(clock) > 0 for clock in clocks) < 2:
        curves = ()
    return Figure("race", "race: tokens generated", "", "time", unit, curves, y_low=0.0)


def _clock_ms(run: PlottedRun) -> Floats:
    """Milliseconds from the start until each token is there; empty where nothing is known."""
    if len(run.positions):
        return np.cumsum(split_repetitions(run.positions, run.step_ns)[0].step_ms)
    line = fitted_line(run.fit)
    windows = [each for each in run.observations if isinstance(each, DecodeWindow)]
    if line is None or not windows:
        return np.empty(0)
    return np.cumsum(line.ms(np.arange(1, max(each.n_depth + each.n_gen for each in windows) + 1)))


def _curve(run: PlottedRun, clock_ms: Floats, per_unit: float, overtakes: Sequence[str]) -> Curve:
    n_tokens = len(clock_ms)
    if not n_tokens:
        return Curve(run.name, np.empty(0, np.int64), np.empty(0))
    tokens = np.unique(np.linspace(1, n_tokens, min(n_tokens, _POINTS)).astype(np.int64))
    x = np.rint(clock_ms[tokens - 1] / per_unit).astype(np.int64)
    by_fit = "" if len(run.positions) else ", by its fit"
    note = f"{format_count(n_tokens)} tokens in {format_duration(float(clock_ms[-1]) / 1e3)}{by_fit}"
    return Curve(run.name, x, tokens.astype(np.float64), np.zeros(len(x)), note="; ".join([note, *overtakes]))


def _overtakes(index: int, runs: Sequence[PlottedRun], clocks: Sequence[Floats]) -> list[str]:
    """Whom a run passes, and at which token: in the samples, else by fits whose W surely differ."""
    found = []
    for other, rival in enumerate(clocks):
        if other == index or not len(rival) or not len(clocks[index]):
            continue
        at = _passed_at(clocks[index], rival)
        if at is not None:
            found.append(f"overtakes {letter(other)} at token {format_count(at)}")
        elif (at := _would_pass_at(runs[index], runs[other])) and at > min(len(rival), len(clocks[index])):
            found.append(f"by the fits, would overtake {letter(other)} near token {format_count(round(at, -2))}")
    return found


def _passed_at(own_ms: Floats, rival_ms: Floats) -> int | None:
    """The token from which on a run stays ahead of one that had led it; None where it does not."""
    n_common = min(len(own_ms), len(rival_ms))
    behind = own_ms[:n_common] - rival_ms[:n_common]
    lags = np.flatnonzero(behind[_FIRST:] > _BEHIND * rival_ms[_FIRST:n_common])
    last_behind = np.flatnonzero(behind >= 0)
    if not len(lags) or -behind[-1] < _AHEAD * rival_ms[n_common - 1]:
        return None
    return int(last_behind[-1]) + 2


def _would_pass_at(own: PlottedRun, rival: PlottedRun) -> int | None:
    """The token at which the sums of two fitted lines meet; None where they do not, or W may be the same.

    With t(k) = k B + (n0 - 1) k / W + k² / (2 W) after k tokens from position n0 on, they meet at
    k = 2 (dB / d(1/W) - (n0 - 1)).
    """
    lines = fitted_line(own.fit), fitted_line(rival.fit)
    if not all(isinstance(line, Line) for line in lines) or own.fit is None or rival.fit is None:
        return None
    own_ci, rival_ci = own.fit.w_ci95, rival.fit.w_ci95
    own_w, rival_w = own.fit.w_tokens_per_ms, rival.fit.w_tokens_per_ms
    if not (own_ci and rival_ci and own_w and rival_w) or own_ci[0] is None or rival_ci[1] is None:
        return None
    if own_ci[0] <= rival_ci[1] or own.fit.b_ms is None or rival.fit.b_ms is None or own.fit.b_ms <= rival.fit.b_ms:
        return None
    first = int(own.positions[0]) if len(own.positions) else 1
    at = 2 * ((own.fit.b_ms - rival.fit.b_ms) / (1 / rival_w - 1 / own_w) - (first - 1))
    return round(at) if 0 < at <= _FARTHEST else None
