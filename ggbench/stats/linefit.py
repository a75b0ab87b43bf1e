"""Fit W and B to the latency of every decoded token, and tell the context from the machine.

In a single decode position and time are one: a clock that falls looks like a longer context. So a few windows of the
run's first, middle and last depths are timed again after it, forwards and backwards in turns, where a drift cancels.
Only with them do W and B have an interval. It also holds that of the run's own line, which is drawn through means of
blocks, unless the windows show that the machine changed while the run lasted.
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
    MIN_STAIRS,
    Blocks,
    Floats,
    Repetition,
    block_means,
    half_width_in_a_row,
    rates,
    split_repetitions,
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
    new one starts if n does not increase. `again` are the windows of `again_depths`, timed after the run; `after` is
    the largest sliding window, beyond which latency is a line. Raises ValueError if the arrays differ in length.

    The 95 % intervals of W and B are Student's over the turns of the windows, joined with that of the run's line. If
    the windows show that the machine changed, W and B are theirs alone, as `has_changed` says. If W's interval includes
    zero, W and B are None and `w_ci95` is (bound, None). Without windows, W and B have no interval, and there is no W
    if its own noise hides it. Below 3 whole stairs of 256 cells there is nothing. A run that is not a line has a `bend`
    in place of W and B.
    """
    repetitions = split_repetitions(position, step_ns)
    if not repetitions:
        return None
    n_samples = sum(len(each.position) for each in repetitions)
    blocks, turns = block_means(repetitions, after), Turns.of(again)
    if blocks is None:
        return LineFit(n_samples, None, None, None, None, None)
    line = least_squares(blocks.ramp, blocks.step_ms)
    variance = float(blocks.step_ms.var())
    r2 = 1 - float(line.rest.var()) / variance if variance > 0 else None
    has_changed = turns is not None and _has_changed(blocks, turns)
    if not has_changed and _is_bent(blocks, line):
        return LineFit(n_samples, None, None, None, None, r2, _bend(blocks))
    lines = [line] if turns is None else [line, turns.line()]
    fit = _line_fit(n_samples, lines[has_changed:], r2, has_interval=turns is not None)
    return replace(fit, has_changed=has_changed)


def fewest_samples(first_position: int) -> int:
    """Return the number of samples of one decode, from this 1-based position on, that give a line."""
    return ((first_position - 1) // KV_CELLS + MIN_STAIRS + 1) * KV_CELLS + 2 - first_position


def again_windows(first_position: int, n_gen: int, after: int = 0) -> list[tuple[int, int]]:
    """Return depth and tokens of each window to time after a decode of `n_gen` tokens, in order; none if it is short.

    They lie in the middle of its first, middle and last block.
    """
    position = np.arange(first_position, first_position + n_gen, dtype=np.float64)
    blocks = block_means([Repetition(position, position)], after)
    if blocks is None or not blocks.are_sure:
        return []
    n_blocks = len(blocks.ramp)
    n_each = max(_FEWEST_AGAIN, int(_AGAIN_SHARE * n_gen / (3 * FEWEST_TURNS)) // 2 * 2)
    depths = [round(blocks.ramp[index] - (n_each - 1) / 2) for index in (0, n_blocks // 2, n_blocks - 1)]
    return [(depth, n_each) for turn in range(FEWEST_TURNS) for depth in ordered(depths, turn)]


def _has_changed(blocks: Blocks, turns: Turns) -> bool:
    """Return whether the run lies outside the prediction interval of one more turn, in its climb or in its middle."""
    gaps = np.interp(turns.ramp, blocks.ramp, blocks.step_ms) - turns.step_ms
    middle = gaps.shape[1] // 2
    for values in (gaps[:, -1] - gaps[:, 0], gaps[:, middle] - (gaps[:, 0] + gaps[:, -1]) / 2):
        limit = max(
            half_width(values.tolist()) * math.sqrt(len(values) + 1),
            _SMALLEST_CHANGE * float(turns.step_ms.mean()),
        )
        if abs(float(values.mean())) > limit:
            return True
    return False


def _is_bent(blocks: Blocks, line: Line) -> bool:
    """Return whether a parabola fits surely better than the line, by twice Student's 95 % point."""
    if len(line.rest) < _MIN_BENT_BLOCKS:
        return False
    square = least_squares(blocks.ramp, blocks.ramp**2).rest
    energy, freedom = float(square @ square), len(square) - 3
    curve = float(square @ line.rest) / energy
    left = line.rest - curve * square
    return abs(curve) * math.sqrt(energy) > 2 * t_95(freedom) * math.sqrt(float(left @ left) / freedom) + _FLAT


def _bend(blocks: Blocks) -> Bend:
    """Return the two lines that fit the blocks best, one before and one after a position."""

    def halves(index: int) -> list[Line]:
        parts = (slice(index), slice(index, None))
        return [least_squares(blocks.ramp[part], blocks.step_ms[part]) for part in parts]

    def energy(index: int) -> float:
        return sum(float(each.rest @ each.rest) for each in halves(index))

    best = min(range(2, len(blocks.ramp) - 1), key=energy)
    before, after = (1 / each.slope if each.slope > _FLAT else None for each in halves(best))
    return Bend(round(blocks.ramp[best - 1 : best + 1].mean()), before, after)


def _line_fit(n_samples: int, lines: Sequence[Line], r2: float | None, *, has_interval: bool) -> LineFit:
    """Return W and B of the first line with the union of the intervals of all."""
    line = lines[0]
    lowest = min(each.slope - each.slope_half for each in lines)
    highest = max(max(each.slope, 0.0) + each.slope_half for each in lines)
    b_low_ms = max(0.0, min(each.intercept - each.intercept_half for each in lines))
    b_high_ms = max(0.0, max(each.intercept + each.intercept_half for each in lines))
    w_tokens_per_ms = 1 / line.slope if lowest > _FLAT else None
    b_ms = line.intercept if w_tokens_per_ms and b_low_ms > 0 else None
    if not has_interval:
        return LineFit(n_samples, w_tokens_per_ms, None, b_ms, None, r2)
    w_high = 1 / lowest if w_tokens_per_ms else None
    w_ci95 = None if highest <= _FLAT else (1 / highest, w_high)
    return LineFit(n_samples, w_tokens_per_ms, w_ci95, b_ms, (b_low_ms, b_high_ms), r2)


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
        return _line_fit(len(windows), [line], None, has_interval=True)
    return _line_fit(
        len(windows), [line._replace(slope_half=0.0, intercept_half=0.0)], None, has_interval=False
    )


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
    return LatencySummary(None, None, None, n_tokens * 1e9 / elapsed_ns, None, interval)


def depth_speeds(windows: Sequence[DecodeWindow]) -> tuple[DepthSpeed, ...]:
    """Return the speed at each depth from windows timed as a whole."""
    speeds = ((n_depth, own, window_speed(own)) for n_depth, own in _by_depth(windows).items())
    return tuple(
        DepthSpeed(n_depth, own[0].n_gen, speed.tok_s, sum(each.repeat or 1 for each in own), speed.tok_s_ci95)
        for n_depth, own, speed in speeds
    )
