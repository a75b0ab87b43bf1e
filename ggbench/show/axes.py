"""Map values to axes: ranges, ticks, and curves reduced to the resolution of columns or pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ggbench.record import Record
from ggbench.show.charts import Curve, Floats, Integers, LineChart

_QUANTILE, _ROOM_ABOVE = 0.99, 1.1
_USUAL, _OUTLIER = 0.9, 2.0
"""Steps over twice the 90th percentile are outliers, even if they are more than 1 % of a short run."""
_UNSETTLED = 0.1
"""Share of the values with an error that the range ignores, counted from the first."""
_WIDEST = 0.5
"""Share of a value up to which its error widens the range: of few chunks, an interval may be many times the value."""
_ROUNDING = 1e-9


class Axis(Record):
    """One axis. `high` is above `low`."""

    low: float
    high: float

    def share(self, value: npt.ArrayLike) -> Floats:
        """Return the place of each value as a share of the axis, 0 at `low` and 1 at `high`."""
        return (np.asarray(value, np.float64) - self.low) / (self.high - self.low)

    def dots(self, value: npt.ArrayLike, count: int) -> Integers:
        """Return the nearest of `count` dots, the first at `low` and the last at `high`."""
        return np.rint(self.share(value) * (count - 1)).astype(np.int64)

    def bins(self, value: npt.ArrayLike, count: int) -> Integers:
        """Return which of `count` equal parts of the axis each value is in; `high` is in the last."""
        bins = ((np.asarray(value) - self.low) * (count / (self.high - self.low))).astype(np.int64)
        return np.minimum(bins, count - 1)

    def ticks(self, count: int) -> list[float]:
        step = tick_step(self.low, self.high, count)
        first, last = math.ceil(self.low / step - _ROUNDING), math.floor(self.high / step + _ROUNDING)
        return [index * step for index in range(first, last + 1)]


def tick_step(low: float, high: float, count: int) -> float:
    """Return the smallest step, 1, 2 or 5 times a power of ten, that divides the range into at most `count` parts."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - _ROUNDING))


def tick_decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + _ROUNDING))


def x_axis(curves: Sequence[Curve], end: int | None) -> Axis:
    """Return the axis from the first x with a value to the last, or to `end`; its length is at least 1."""
    shown = [one for one in curves if len(one.x)]
    low = min((float(one.x.min()) for one in shown), default=1.0)
    high = float(end) if end is not None else max((float(one.x.max()) for one in shown), default=low)
    return Axis(low, max(high, low + 1))


def y_range(figure: LineChart, x: Axis) -> tuple[float, float]:
    """Return the range of y to draw, 0 to 1 without values: from the least value or limit to the largest value, or to a
    tenth above the 99th percentile, or above twice the 90th, if that is lower.

    A single step of a second among thousands of 20 ms would flatten all others: it is drawn at the top instead; bars
    are whole. Of values with an error, the first scatter most and are ignored, as are wide errors. Dimmed curves are
    cut.
    """
    shown = [one for one in figure.curves if len(one.y)]
    shown = [one for one in shown if not one.dimmed] or shown
    ranges = [_values_range(one) for one in shown]
    ranges += [(one.limit.ms(x.low), one.limit.ms(x.high)) for one in shown if one.limit is not None]
    if not ranges:
        return 0.0, 1.0
    lows = [low for low, _ in ranges] + ([] if figure.y_low is None else [figure.y_low])
    return float(min(lows)), float(max(high for _, high in ranges))


def _values_range(one: Curve) -> tuple[Any, Any]:
    if one.error is not None:
        settled = slice(int(len(one.y) * _UNSETTLED) if one.error.any() else 0, None)
        y = one.y[settled]
        error = np.minimum(one.error[settled], _WIDEST * np.abs(y))
        return (y - error).min(), (y + error).max()
    if one.has_bars:
        return one.y.min(), one.y.max()
    most, usual = (float(np.quantile(one.y, each, method="lower")) for each in (_QUANTILE, _USUAL))
    return one.y.min(), min(float(one.y.max()), min(most, _OUTLIER * usual) * _ROOM_ABOVE)


def axes_of(figure: LineChart, n_ticks: tuple[int, int]) -> tuple[Axis, Axis]:
    """Return the axes of a figure, each from one of its ticks, of which x and y have at most these numbers.

    The ends of y are round, so that they seldom move during a run.
    """
    x = x_axis(figure.curves, figure.x_end)
    low, high = y_range(figure, x)
    step = 10.0 ** math.floor(math.log10(max(high - low, figure.least_range))) / 5
    y = Axis(math.floor(low / step) * step, (math.floor(high / step) + 1) * step)
    return from_a_tick(x, n_ticks[0]), from_a_tick(y, n_ticks[1])


def from_a_tick(axis: Axis, count: int) -> Axis:
    """Return the axis with its low end at one of its `count` ticks, so that its start is labelled."""
    while True:
        step = tick_step(axis.low, axis.high, count)
        low = math.floor(axis.low / step + _ROUNDING) * step
        if low == axis.low:
            return axis
        axis = Axis(low, axis.high)


WINDOW = 256
"""Number of positions in one median. llama.cpp reads the KV cache in steps of 256 cells (`llama_kv_cache::get_n_kv`),
so latency rises in stairs of that width: a median over one stair keeps their edges in place."""
_SHORT = 8
"""A median spans at most 1/8 of the positions, so that a short run is not a flat line."""
_LEAST_BESIDE = 16
"""Values at each side that a median takes where there are any, so that the line does not end in a few slow steps."""


def rolling_median(x: Integers | Floats, y: Floats, at: npt.ArrayLike) -> Floats:
    """Return the median of the values around each x of `at`, over `WINDOW` positions or an eighth of all.

    `x` may be unordered and contain duplicates, as with repetitions. Near an end or a gap in `x`, the window narrows to
    stay centred, down to a few values. Empty without values.
    """
    places = np.asarray(at, np.float64)
    if not len(x):
        return np.empty(0)
    if (np.diff(x) < 0).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    steps = np.diff(x)
    n_positions = int(np.count_nonzero(steps)) + 1
    half = min(WINDOW, n_positions // _SHORT) * len(x) // n_positions // 2
    breaks = np.flatnonzero(steps > 1) + 1
    edges = np.concatenate([[0], breaks, [len(x)]])
    middle = _nearest(x, places)
    part = np.searchsorted(breaks, middle, "right")
    reach = np.minimum(half, np.minimum(middle - edges[part], edges[part + 1] - 1 - middle))
    found = np.empty(len(middle))
    is_whole = reach == half
    windows = np.lib.stride_tricks.sliding_window_view(y, 2 * half + 1)
    found[is_whole] = np.median(windows[middle[is_whole] - half], axis=1)
    for index in np.flatnonzero(~is_whole):
        beside = max(reach[index], min(half, _LEAST_BESIDE))
        start, stop = max(middle[index] - beside, edges[part[index]]), middle[index] + beside + 1
        found[index] = np.median(y[start : min(stop, edges[part[index] + 1])])
    return found


def _nearest(x: Integers | Floats, places: Floats) -> Integers:
    above = np.clip(np.searchsorted(x, places), 1, max(len(x) - 1, 1))
    is_below = (places - x[above - 1]) <= (x[np.minimum(above, len(x) - 1)] - places)
    return np.where(is_below, above - 1, np.minimum(above, len(x) - 1)).astype(np.int64)


class Columns(NamedTuple):
    """The values of a curve in the columns of an axis that have any."""

    column: Integers
    """From 0 at the left, ascending."""
    typical: Floats
    """The typical latency of single steps, or the middle of values with an error."""
    least: Floats
    """The lower end of the band: the least step, or of the 95 % intervals."""
    largest: Floats


def columns_of(curve: Curve, x: Axis, n_columns: int) -> Columns:
    """Reduce a curve to columns; values beyond the axis are left out. Values may be unordered, as with repetitions."""
    error = np.zeros(len(curve.y)) if curve.error is None else curve.error
    inside = (curve.x >= x.low) & (curve.x <= x.high)
    columns = x.bins(curve.x[inside], n_columns)
    order = np.argsort(columns, kind="stable")
    columns, y, error = columns[order], curve.y[inside][order], error[inside][order]
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    if not len(starts):
        return Columns(columns, y, y, y)
    column = columns[starts]
    if curve.is_smoothed:
        typical = rolling_median(curve.x, curve.y, x.low + (column + 0.5) / n_columns * (x.high - x.low))
    else:
        typical = (np.minimum.reduceat(y, starts) + np.maximum.reduceat(y, starts)) / 2
    least, largest = np.minimum.reduceat(y - error, starts), np.maximum.reduceat(y + error, starts)
    return Columns(column, typical, least, largest)


BINS = 800
"""About the width of a figure in pixels; zooming in adds no detail."""
TICKS = 8, 6
_DIGITS = 5
"""Significant digits of a value in a picture, finer than a pixel."""


class CurveData(Record):
    x: Axis
    y: Axis
    bins: list[dict[str, Any]]
    """`x`, `y` and the band from `lo` to `hi`."""
    lines: list[dict[str, Any]]
    """The two ends of fits (`k` is `fit`) and limits (`limit`)."""
    slow: list[dict[str, Any]]
    """Bins with a step beyond the top: `x`, and its latency `v`."""
    ends: list[dict[str, Any]]


def curve_data(figure: LineChart) -> CurveData:
    """Reduce a non-empty figure to the points that a picture can show.

    10,000 steps exceed the pixels of a screen: each of at most `BINS` bins keeps its least and largest step, so that no
    spike is lost, and a typical one.
    """
    whole = x_axis(figure.curves, figure.x_end)
    x, y = axes_of(figure, TICKS)
    data = CurveData(x, y, [], [], [], [])
    for index, curve in enumerate(figure.curves):
        if not len(curve.x):
            continue
        rows = list(_bins(index, curve, whole))
        data.bins.extend(rows)
        if curve.error is None:
            data.slow.extend({"s": index, "x": row["x"], "v": row["hi"]} for row in rows if row["hi"] > y.high)
        for kind, line in (("fit", curve.fit), ("limit", curve.limit)):
            if line is not None:
                first, last = float(curve.x.min()), float(curve.x.max())
                breaks = (each.n for each in line.breaks if first < each.n < last)
                for end in (first, *breaks, last):
                    data.lines.append(
                        {"s": index, "k": kind, "x": round(end), "y": _short(float(line.ms(end)))}
                    )
        data.ends.append({"s": index, "x": rows[-1]["x"], "y": rows[-1]["y"]})
    return data


def _bins(index: int, curve: Curve, whole: Axis) -> Iterator[dict[str, Any]]:
    if curve.error is not None:
        for x, y, error in zip(curve.x.tolist(), curve.y.tolist(), curve.error.tolist(), strict=True):
            yield {"s": index, "x": x, "y": _short(y), "lo": _short(y - error), "hi": _short(y + error)}
        return
    n_bins = BINS if len(curve.x) > BINS else min(BINS, int(whole.high - whole.low) + 1)
    found = columns_of(curve, whole, n_bins)
    middle = whole.low + (found.column + 0.5) / n_bins * (whole.high - whole.low)
    columns = (middle, found.typical, found.least, found.largest)
    for x, y, low, high in zip(*(each.tolist() for each in columns), strict=True):
        yield {"s": index, "x": round(x), "y": _short(y), "lo": _short(low), "hi": _short(high)}


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
