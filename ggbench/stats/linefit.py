"""Fit W and B to the latency of every decoded token, and tell the context from the machine.

In a single decode position and time are one: a clock that falls looks like a longer context. So a few windows of
depths of the run are timed again after it, forwards and backwards in turns, where a drift cancels. Only with them do W
and B have an interval. It also holds that of the run's own line, which is drawn through means of blocks, unless the
windows show that the machine changed while the run lasted. A run that is too short for blocks has no line of its own.
The line has a slope for each piece between the header's breaks, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.stats.decode_timing import Break, DecodeWindow, DepthSpeed, LatencySummary, LineFit
from ggbench.stats.intervals import half_width, t_95
from ggbench.stats.samples import (
    FEWEST_STAIRS,
    Floats,
    Means,
    Pieces,
    Samples,
    block_means,
    finite_samples,
    half_width_in_a_row,
    in_pieces,
    numbers_by_piece,
    pieces_of,
    rates,
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
_FEWEST_SPARE = 3
"""Blocks beyond those that determine a parabola, for a bend to show."""


class Line(NamedTuple):
    """A broken line by least squares, with the half-widths of Student's 95 % intervals, infinite without a value to
    spare.
    """

    values: Floats
    """The value at 0, and the slope of each piece."""
    halves: Floats
    mean_half: float
    rest: Floats
    """What the line leaves of each value."""


def least_squares(parts: Floats, y: Floats) -> Line:
    """Fit y = values[0] + parts @ values[1:]; `parts` has a row for each value of y."""
    design = np.column_stack([np.ones(len(y)), parts])
    scale, mean = design.max(axis=0), float(y.mean())
    design /= scale
    found = np.linalg.lstsq(design, y - mean, rcond=None)[0]
    rest, spare = y - mean - design @ found, len(y) - len(found)
    noise = t_95(spare) * math.sqrt(float(rest @ rest) / spare) if spare else math.inf
    halves = noise * np.sqrt(np.diag(np.linalg.pinv(design.T @ design)))
    found[0] += mean
    return Line(found / scale, halves / scale, noise / math.sqrt(len(y)), rest)


class Turns(NamedTuple):
    """The same depths timed in several turns; a row for each turn, a column for each depth."""

    parts: Floats
    """How far the middle of each window is into each piece, on a third axis."""
    step_ms: Floats

    @classmethod
    def of(cls, windows: Sequence[DecodeWindow], pieces: Pieces) -> Turns | None:
        """Return the complete turns of windows; None without any whose depths determine a line of these pieces."""
        turns = list(zip(*_by_depth(windows).values(), strict=False))
        if not turns:
            return None
        parts = in_pieces(np.array([[window.mean_position for window in turn] for turn in turns]), pieces)
        if np.linalg.matrix_rank(parts[0] - parts[0].mean(axis=0)) < parts.shape[2]:
            return None
        return cls(parts, np.array([[window.step_ms for window in turn] for turn in turns]))

    def line(self) -> Line:
        """Return the mean of the turns' lines, with the interval of Student over turns; infinite for few turns."""
        lines = [least_squares(*turn) for turn in zip(self.parts, self.step_ms, strict=True)]
        factor = _IN_TURNS if len(lines) >= FEWEST_TURNS else math.inf
        found = np.array([each.values for each in lines])
        halves = np.array([factor * (half_width(values) or _FLAT) for values in found.T.tolist()])
        return Line(found.mean(axis=0), halves, 0.0, np.zeros(0))


def fit_line(
    position: npt.ArrayLike,
    step_ns: npt.ArrayLike,
    again: Sequence[DecodeWindow] = (),
    breaks: Sequence[int] = (),
) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B by least squares through means of blocks; None without a finite sample.

    `position` is n, 1-based; `step_ns` are the latencies in ns, ignored if not finite. Repetitions are concatenated: a
    new one starts if n does not increase. `again` are the windows of `again_windows`, timed after the run; `breaks` are
    the header's, in order, between which latency is a line: W is fitted before and after each that has two stairs of
    256 cells on both sides. Raises ValueError if the arrays differ in length.

    The 95 % intervals of W and B are Student's over the turns of the windows, joined with that of the run's line. If
    the windows show that the machine changed, W and B are theirs alone, as `has_changed` says. If W's interval includes
    zero, W is None and `w_ci95` is (bound, None). Without windows, W and B have no interval, and there is no W if its
    own noise hides it. A run that is not a line between its breaks has neither W nor B.

    Below 8 whole stairs of 256 cells W is that of the windows alone, and B uncertain by what lies between theirs and
    the run's.
    """
    samples = finite_samples(position, step_ns)
    n_samples = len(samples.position)
    if not n_samples:
        return None
    pieces, blocks = _blocks(samples, breaks)
    turns = Turns.of(again, pieces)
    if blocks is None:
        return _short_fit(n_samples, stair_means(samples, pieces), turns, pieces)
    line = least_squares(*blocks)
    has_changed = turns is not None and _has_changed(blocks, turns)
    if not has_changed and _is_bent(blocks, line):
        return LineFit(n_samples, None, None, None, None)
    lines = [line] if turns is None else [line, turns.line()]
    fit = _line_fit(n_samples, lines[has_changed:], pieces, has_interval=turns is not None)
    return replace(fit, has_changed=has_changed)


def _blocks(samples: Samples, breaks: Sequence[int]) -> tuple[Pieces, Means | None]:
    """Return the pieces of a run with the means of its blocks; the first piece alone if it is too short for blocks."""
    pieces = pieces_of(breaks, samples.position)
    blocks = block_means(samples, pieces)
    return (pieces if blocks else pieces[:2]), blocks


def _short_fit(n_samples: int, stairs: Means, turns: Turns | None, pieces: Pieces) -> LineFit:
    """Return W of the windows, and B of the run's whole stairs, as uncertain as that of the windows and by what lies
    between the two.
    """
    if turns is None or len(turns.step_ms) < FEWEST_TURNS or not len(stairs.step_ms):
        return LineFit(n_samples, None, None, None, None)
    line = turns.line()
    apart_ms = float((stairs.step_ms - stairs.parts @ line.values[1:]).mean()) - line.values[0]
    line.values[0] += apart_ms
    line.halves[0] += abs(apart_ms)
    return _line_fit(n_samples, [line], pieces, has_interval=True)


def fewest_samples(first_position: int, *, is_timed_again: bool) -> int:
    """Return the number of samples of one decode, from this 1-based position on, that give a line: those of one whole
    stair if depths are timed again after it, else of 8.
    """
    n_stairs = 1 if is_timed_again else FEWEST_STAIRS
    return ((first_position - 1) // KV_CELLS + n_stairs + 1) * KV_CELLS + 2 - first_position


def again_windows(first_position: int, n_gen: int, breaks: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return depth and tokens of each window to time after a decode of `n_gen` tokens, in order; none if it is short.

    They lie in the middle of its first, middle and last block and of those beside breaks or, if it is too short for
    blocks, of the first and the last stair that it reached.
    """
    if n_gen < 1:
        return []
    position = np.arange(first_position, first_position + n_gen, dtype=np.float64)
    samples, n_each, n_turns = Samples(position, position), _FEWEST_AGAIN, _TURNS_OF_SHORT
    pieces, blocks = _blocks(samples, breaks)
    if blocks is not None:
        groups = numbers_by_piece(blocks, pieces)
        numbers = np.unique([len(blocks.step_ms) // 2, *(group[end] for group in groups for end in (0, -1))])
        n_each = max(n_each, int(_AGAIN_SHARE * n_gen / (len(numbers) * FEWEST_TURNS)) // 2 * 2)
        middles, n_turns = blocks.ramp[numbers], FEWEST_TURNS
    elif len(stair_means(samples, pieces).step_ms):
        first_stair, last = math.ceil(pieces[0] / KV_CELLS), min(position[-1], pieces[-1])
        middles = np.arange((first_stair + 0.5) * KV_CELLS - 0.5, last - n_each / 2, KV_CELLS)[[0, -1]]
    else:
        return []
    depths = [round(float(middle) - (n_each - 1) / 2) for middle in middles]
    if len(set(depths)) < 2:
        return []
    return [(depth, n_each) for turn in range(n_turns) for depth in ordered(depths, turn)]


def _has_changed(blocks: Means, turns: Turns) -> bool:
    """Return whether the run lies further from the windows at one depth than at the others: outside the prediction
    interval of one more turn.
    """
    gaps = np.interp(turns.parts.sum(axis=-1), blocks.ramp, blocks.step_ms) - turns.step_ms
    apart = gaps - gaps.mean(axis=1, keepdims=True)
    width = max(half_width(of_depth.tolist()) for of_depth in apart.T) * math.sqrt(len(apart) + 1)
    limit = max(width, _SMALLEST_CHANGE * float(turns.step_ms.mean()))
    return bool(np.abs(apart.mean(axis=0)).max() > limit)


def _is_bent(blocks: Means, line: Line) -> bool:
    """Return whether a parabola fits surely better than the line, by twice Student's 95 % point."""
    freedom = len(line.rest) - len(line.values) - 1
    if freedom < _FEWEST_SPARE:
        return False
    square = least_squares(blocks.parts, blocks.ramp**2).rest
    energy = float(square @ square)
    curve = float(square @ line.rest) / energy
    left = line.rest - curve * square
    return abs(curve) * math.sqrt(energy) > 2 * t_95(freedom) * math.sqrt(float(left @ left) / freedom) + _FLAT


def _line_fit(n_samples: int, lines: Sequence[Line], pieces: Pieces, *, has_interval: bool) -> LineFit:
    """Return W of each piece, and B, of the first line with the union of the intervals of all."""
    lows = np.min([each.values - each.halves for each in lines], axis=0).tolist()
    highs = np.max([np.maximum(each.values, 0) + each.halves for each in lines], axis=0).tolist()
    (b_ms, *slopes), b_ci95 = lines[0].values.tolist(), (max(0.0, lows[0]), highs[0])
    found = [_w(*each, has_interval=has_interval) for each in zip(slopes, lows[1:], highs[1:], strict=True)]
    found.append((None, None))
    ends = (round(end) for end in pieces[1:] if math.isfinite(end))
    breaks = tuple(Break(end, *w) for end, w in zip(ends, found, strict=False))
    w, w_ci95 = found[len(breaks)]
    return LineFit(
        n_samples, w, w_ci95, b_ms if lows[0] > 0 else None, b_ci95 if has_interval else None, breaks=breaks
    )


def _w(
    slope: float, low: float, high: float, *, has_interval: bool
) -> tuple[float | None, tuple[float, float | None] | None]:
    """Return W with its interval from a slope with its own."""
    w_tokens_per_ms = 1 / slope if low > _FLAT else None
    if not has_interval or high <= _FLAT:
        return w_tokens_per_ms, None
    return w_tokens_per_ms, (1 / high, 1 / low if w_tokens_per_ms else None)


def fit_windows(
    windows: Sequence[DecodeWindow], breaks: Sequence[int] = (), *, in_turns: bool = True
) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B to windows at several depths; None if they are too few for a line of this
    number of breaks.

    The 95 % intervals are Student's over the turns, at least 4. Without turns, as of a tool that measures one depth
    after another, W and B have none.
    """
    if not windows:
        return None
    pieces = pieces_of(breaks, np.array([window.mean_position for window in windows]))
    turns = Turns.of(windows, pieces)
    if turns is None:
        return None
    line = turns.line()
    has_interval = in_turns and math.isfinite(line.halves[0])
    if not has_interval:
        line = line._replace(halves=np.zeros(len(line.values)))
    return _line_fit(len(windows), [line], pieces, has_interval=has_interval)


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
