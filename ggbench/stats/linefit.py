"""Fit W and B to the latency of every decoded token, and tell the context from the machine.

In a single decode position and time are one: a clock that falls looks like a longer context. So a few windows of
depths of the run are timed again after it, forwards and backwards in turns, where a drift cancels. Only with them do W
and B have an interval. It also holds that of the run's own line, which is drawn through means of blocks, unless the
windows show that the machine changed while the run lasted. A run that is too short for blocks has no line of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.stats.decode_timing import Bend, DecodeWindow, DepthSpeed, LatencySummary, LineFit
from ggbench.stats.intervals import half_width, t_95
from ggbench.stats.samples import (
    FEWEST_STAIRS,
    Floats,
    Means,
    Repetition,
    block_means,
    half_width_in_a_row,
    rates,
    split_repetitions,
    stair_means,
)
from ggbench.stats.turns import FEWEST_TURNS, ordered
from ggbench.units import KV_CELLS

_FLAT = 1e-9
"""An increase [ms per token] that counts as zero: a clock of 1 ns does not show it."""

_IN_TURNS = 1.6
"""The factor that widens the interval of slopes in turns: the order alternates, so noise that lasts makes neighbouring
turns agree. See scripts/coverage."""

_AGAIN_SHARE, _FEWEST_AGAIN = 0.1, 24
"""The windows timed again take a tenth of a run's tokens, but at least 24 tokens each."""
_TURNS_OF_SHORT = 6
"""Turns of the windows of a short run, at two depths: as many windows as for a longer one at three."""
_SMALLEST_CHANGE = 0.01
"""Smallest change of the machine that is worth a mark, as a share of the latency."""
_MIN_BENT_BLOCKS = 6


class Line(NamedTuple):
    """A least-squares line with the half-widths of Student's 95 % intervals, infinite for two points."""

    slope: float
    intercept: float
    slope_half: float
    intercept_half: float
    mean_half: float
    rest: Floats
    """What the line leaves of each value."""


def least_squares(x: Floats, y: Floats) -> Line:
    count, dx = len(x), x - x.mean()
    sxx = float(dx @ dx)
    slope = float(dx @ y) / sxx
    rest = y - y.mean() - slope * dx
    noise = t_95(count - 2) * math.sqrt(float(rest @ rest) / (count - 2)) if count > 2 else math.inf
    at_zero = math.sqrt(1 / count + float(x.mean()) ** 2 / sxx)
    intercept = float(y.mean()) - slope * float(x.mean())
    return Line(slope, intercept, noise / math.sqrt(sxx), noise * at_zero, noise / math.sqrt(count), rest)


class Turns(NamedTuple):
    """The same depths timed in several turns; a row for each turn, a column for each depth."""

    ramp: Floats
    """Mean of position - 1."""
    step_ms: Floats

    @classmethod
    def of(cls, windows: Sequence[DecodeWindow]) -> Turns | None:
        """Return the complete turns of windows; None without any of at least two depths."""
        by_depth = _by_depth(windows)
        turns = list(zip(*by_depth.values(), strict=False))
        if len(by_depth) < 2 or not turns:
            return None
        return cls(
            np.array([[window.mean_position - 1 for window in turn] for turn in turns]),
            np.array([[window.step_ms for window in turn] for turn in turns]),
        )

    def line(self) -> Line:
        """Return the mean of the turns' lines, with the interval of Student over turns; infinite for few turns."""
        lines = [least_squares(*turn) for turn in zip(self.ramp, self.step_ms, strict=True)]
        slopes, intercepts = [each.slope for each in lines], [each.intercept for each in lines]
        factor = _IN_TURNS if len(lines) >= FEWEST_TURNS else math.inf
        slope_half, b_half = (factor * (half_width(each) or _FLAT) for each in (slopes, intercepts))
        none = np.zeros(0)
        return Line(
            math.fsum(slopes) / len(slopes), math.fsum(intercepts) / len(lines), slope_half, b_half, 0.0, none
        )


def fit_line(
    position: npt.ArrayLike, step_ns: npt.ArrayLike, again: Sequence[DecodeWindow] = (), after: int = 0
) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B by least squares through means of blocks; None without a finite sample.

    `position` is n, 1-based; `step_ns` are the latencies in ns, ignored if not finite. Repetitions are concatenated: a
    new one starts if n does not increase. `again` are the windows of `again_windows`, timed after the run; `after` is
    the largest sliding window, beyond which latency is a line. Raises ValueError if the arrays differ in length.

    The 95 % intervals of W and B are Student's over the turns of the windows, joined with that of the run's line. If
    the windows show that the machine changed, W and B are theirs alone, as `has_changed` says. If W's interval includes
    zero, W is None and `w_ci95` is (bound, None). Without windows, W and B have no interval, and there is no W if its
    own noise hides it. A run that is not a line has a `bend` in place of W and B.

    Below 8 whole stairs of 256 cells W is that of the windows alone, and B uncertain by what lies between theirs and
    the run's.
    """
    repetitions = split_repetitions(position, step_ns)
    if not repetitions:
        return None
    n_samples = sum(len(each.position) for each in repetitions)
    blocks, turns = block_means(repetitions, after), Turns.of(again)
    if blocks is None:
        return _short_fit(n_samples, stair_means(repetitions, after), turns)
    line = least_squares(blocks.ramp, blocks.step_ms)
    has_changed = turns is not None and _has_changed(blocks, turns)
    if not has_changed and _is_bent(blocks, line):
        return LineFit(n_samples, None, None, None, None, _bend(blocks))
    lines = [line] if turns is None else [line, turns.line()]
    fit = _line_fit(n_samples, lines[has_changed:], has_interval=turns is not None)
    return replace(fit, has_changed=has_changed)


def _short_fit(n_samples: int, stairs: Means, turns: Turns | None) -> LineFit:
    """Return W of the windows, and B of the run's whole stairs, as uncertain as that of the windows and by what lies
    between the two.
    """
    if turns is None or len(turns.ramp) < FEWEST_TURNS or not len(stairs.ramp):
        return LineFit(n_samples, None, None, None, None)
    line = turns.line()
    b_ms = float((stairs.step_ms - line.slope * stairs.ramp).mean())
    b_half = line.intercept_half + abs(line.intercept - b_ms)
    line = line._replace(intercept=b_ms, intercept_half=b_half)
    return _line_fit(n_samples, [line], has_interval=True)


def fewest_samples(first_position: int, *, is_timed_again: bool) -> int:
    """Return the number of samples of one decode, from this 1-based position on, that give a line: those of one whole
    stair if depths are timed again after it, else of 8.
    """
    n_stairs = 1 if is_timed_again else FEWEST_STAIRS
    return ((first_position - 1) // KV_CELLS + n_stairs + 1) * KV_CELLS + 2 - first_position


def again_windows(first_position: int, n_gen: int, after: int = 0) -> list[tuple[int, int]]:
    """Return depth and tokens of each window to time after a decode of `n_gen` tokens, in order; none if it is short.

    They lie in the middle of its first, middle and last block or, if it is too short for blocks, of the first and the
    last stair that it reached.
    """
    position = np.arange(first_position, first_position + n_gen, dtype=np.float64)
    repetitions, n_each, n_turns = [Repetition(position, position)], _FEWEST_AGAIN, _TURNS_OF_SHORT
    blocks = block_means(repetitions, after)
    if not len(stair_means(repetitions, after).ramp):
        return []
    if blocks is not None:
        n_each = max(n_each, int(_AGAIN_SHARE * n_gen / (3 * FEWEST_TURNS)) // 2 * 2)
        middles, n_turns = blocks.ramp[[0, len(blocks.ramp) // 2, -1]], FEWEST_TURNS
    else:
        first_stair = -(-after // KV_CELLS)
        middles = np.arange((first_stair + 0.5) * KV_CELLS - 0.5, position[-1] - n_each / 2, KV_CELLS)[[0, -1]]
    depths = [round(float(middle) - (n_each - 1) / 2) for middle in middles]
    if len(set(depths)) < 2:
        return []
    return [(depth, n_each) for turn in range(n_turns) for depth in ordered(depths, turn)]


def _has_changed(blocks: Means, turns: Turns) -> bool:
    """Return whether the run lies further from the windows at one depth than at the others: outside the prediction
    interval of one more turn.
    """
    gaps = np.interp(turns.ramp, blocks.ramp, blocks.step_ms) - turns.step_ms
    apart = gaps - gaps.mean(axis=1, keepdims=True)
    width = max(half_width(of_depth.tolist()) for of_depth in apart.T) * math.sqrt(len(apart) + 1)
    limit = max(width, _SMALLEST_CHANGE * float(turns.step_ms.mean()))
    return bool(np.abs(apart.mean(axis=0)).max() > limit)


def _is_bent(blocks: Means, line: Line) -> bool:
    """Return whether a parabola fits surely better than the line, by twice Student's 95 % point."""
    if len(line.rest) < _MIN_BENT_BLOCKS:
        return False
    square = least_squares(blocks.ramp, blocks.ramp**2).rest
    energy, freedom = float(square @ square), len(square) - 3
    curve = float(square @ line.rest) / energy
    left = line.rest - curve * square
    return abs(curve) * math.sqrt(energy) > 2 * t_95(freedom) * math.sqrt(float(left @ left) / freedom) + _FLAT


def _bend(blocks: Means) -> Bend:
    """Return the two lines that fit the blocks best, one before and one after a position."""

    def halves(index: int) -> list[Line]:
        parts = (slice(index), slice(index, None))
        return [least_squares(blocks.ramp[part], blocks.step_ms[part]) for part in parts]

    def energy(index: int) -> float:
        return sum(float(each.rest @ each.rest) for each in halves(index))

    best = min(range(2, len(blocks.ramp) - 1), key=energy)
    before, after = (1 / each.slope if each.slope > _FLAT else None for each in halves(best))
    return Bend(round(blocks.ramp[best - 1 : best + 1].mean()), before, after)


def _line_fit(n_samples: int, lines: Sequence[Line], *, has_interval: bool) -> LineFit:
    """Return W and B of the first line with the union of the intervals of all."""
    line = lines[0]
    lowest = min(each.slope - each.slope_half for each in lines)
    highest = max(max(each.slope, 0.0) + each.slope_half for each in lines)
    b_low_ms = max(0.0, min(each.intercept - each.intercept_half for each in lines))
    b_high_ms = max(0.0, max(each.intercept + each.intercept_half for each in lines))
    w_tokens_per_ms = 1 / line.slope if lowest > _FLAT else None
    b_ms = line.intercept if b_low_ms > 0 else None
    if not has_interval:
        return LineFit(n_samples, w_tokens_per_ms, None, b_ms, None)
    w_high = 1 / lowest if w_tokens_per_ms else None
    w_ci95 = None if highest <= _FLAT else (1 / highest, w_high)
    return LineFit(n_samples, w_tokens_per_ms, w_ci95, b_ms, (b_low_ms, b_high_ms))


def fit_windows(windows: Sequence[DecodeWindow], *, in_turns: bool = True) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B to windows at several depths; None for a single depth.

    The 95 % intervals are Student's over the turns, at least 4. Without turns, as of a tool that measures one depth
    after another, W and B have none.
    """
    turns = Turns.of(windows)
    if turns is None:
        return None
    line = turns.line()
    if in_turns and math.isfinite(line.slope_half):
        return _line_fit(len(windows), [line], has_interval=True)
    return _line_fit(len(windows), [line._replace(slope_half=0.0, intercept_half=0.0)], has_interval=False)


def _by_depth(windows: Sequence[DecodeWindow]) -> dict[int, list[DecodeWindow]]:
    found: dict[int, list[DecodeWindow]] = {}
    for window in sorted(windows, key=lambda each: each.n_depth):
        found.setdefault(window.n_depth, []).append(window)
    return found


def window_speed(windows: Sequence[DecodeWindow]) -> LatencySummary:
    """Return tokens per second over all windows, at least one, without percentiles, which need single steps.

    Its interval is that of the repetitions' total times; None below 8 repetitions, or if depths have different numbers.
    """
    n_tokens, elapsed_ns = sum(each.n_gen for each in windows), sum(each.elapsed_ns for each in windows)
    depths, interval = list(_by_depth(windows).values()), None
    if len(set(map(len, depths))) == 1 and {window.repeat for window in windows} == {1}:
        totals = [sum(each.elapsed_ns for each in one) for one in zip(*depths, strict=True)]
        half_ns, mean_ns = half_width_in_a_row(totals), elapsed_ns / len(totals)
        interval = None if half_ns is None else rates(n_tokens * 1e9 / len(totals), mean_ns, half_ns)
    return LatencySummary(None, None, n_tokens * 1e9 / elapsed_ns, interval)


def depth_speeds(windows: Sequence[DecodeWindow]) -> tuple[DepthSpeed, ...]:
    """Return the speed at each depth from windows timed as a whole."""
    return tuple(depth_speed(n_depth, own) for n_depth, own in _by_depth(windows).items())


def depth_speed(n_depth: int, windows: Sequence[DecodeWindow]) -> DepthSpeed:
    """Return the speed at a depth from its windows, at least one."""
    speed, repeat = window_speed(windows), sum(each.repeat or 1 for each in windows)
    return DepthSpeed(n_depth, windows[0].n_gen, speed.tok_s, repeat, speed.tok_s_ci95)
