"""Map values to axes: ranges, ticks, and curves reduced to the resolution of columns or pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.show.charts import Curve, Floats, Integers, LineChart

_USUAL, _OUTLIER = 0.9, 2.0
"""Steps over twice the 90th percentile are outliers."""
_UNSETTLED = 0.1
"""Share of the values with an error that the range ignores, counted from the first."""
_ROUNDING = 1e-9


class Axis(msgspec.Struct, frozen=True):
    """One linear axis. `high` is above `low`."""

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
        """Return round numbers that divide the axis into at most `count` parts."""
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


def axes_of(figure: LineChart, n_ticks: tuple[int, int]) -> tuple[Axis, Axis]:
    """Return the axes of a figure, each from one of its ticks, of which x and y have at most these numbers.

    The ends of y are round, so that they seldom move during a run.
    """
    x = x_axis(figure.curves, figure.x_end)
    y = y_axis(figure.curves, x, figure.least_range, figure.y_low)
    return from_a_tick(x, n_ticks[0]), from_a_tick(y, n_ticks[1])


def x_axis(curves: Sequence[Curve], end: int | None = None) -> Axis:
    """Return the axis from the first x with a value to the last, or to `end`; its length is at least 1."""
    shown = [one for one in curves if len(one.x)]
    low = min((float(one.x.min()) for one in shown), default=1.0)
    high = float(end) if end is not None else max((float(one.x.max()) for one in shown), default=low)
    return Axis(low, max(high, low + 1))


def y_axis(curves: Sequence[Curve], x: Axis, least_range: float, y_low: float | None = None) -> Axis:
    """Return the axis from the least value or limit to the largest value that is no outlier, both ends rounded; 0 to 1
    without values. `y_low` is always included.

    A single step of a second among thousands of 20 ms would flatten all others: it is marked at the top instead. Of
    values with an error, the first scatter most and are ignored.
    """
    limits = [one.limit for one in curves if one.limit is not None]
    ranges = [_values_range(one) for one in curves if len(one.y)]
    ranges += [(each.ms(x.low), each.ms(x.high)) for each in limits]
    if not ranges:
        return Axis(0.0, 1.0)
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    low, high = float(min(lows if y_low is None else [*lows, y_low])), float(max(highs))
    step = 10.0 ** math.floor(math.log10(max(high - low, least_range))) / 5
    return Axis(math.floor(low / step) * step, (math.floor(high / step) + 1) * step)


def _values_range(one: Curve) -> tuple[Any, Any]:
    if one.error is None:
        return one.y.min(), one.y[one.y <= _OUTLIER * np.quantile(one.y, _USUAL)].max()
    settled = slice(int(len(one.y) * _UNSETTLED) if one.error.any() else 0, None)
    return (one.y[settled] - one.error[settled]).min(), (one.y[settled] + one.error[settled]).max()


def from_a_tick(axis: Axis, count: int) -> Axis:
    """Return the axis with its low end at one of its `count` ticks, so that its start is labelled."""
    while True:
        step = tick_step(axis.low, axis.high, count)
        low = math.floor(axis.low / step + _ROUNDING) * step
        if low == axis.low:
            return axis
        axis = Axis(low, axis.high)


class Columns(NamedTuple):
    """The values of a curve in columns: of every column that has any, from the left."""

    column: Integers
    typical: Floats
    """The median."""
    least: Floats
    """Of the ends of the 95 % intervals, as `largest`, if the values have errors."""
    largest: Floats


def columns_of(curve: Curve, x: Axis, n_columns: int) -> Columns:
    """Reduce a curve to columns of an axis; values may be unordered, as with repetitions."""
    error = 0.0 if curve.error is None else curve.error
    column = x.bins(curve.x, n_columns)
    order = np.lexsort((curve.y, column))
    column, y, low, high = column[order], curve.y[order], (curve.y - error)[order], (curve.y + error)[order]
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    if not len(starts):
        return Columns(column, y, low, high)
    last = np.append(starts[1:], len(column)) - 1
    typical = y[(starts + last) // 2]
    least, largest = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    return Columns(column[starts], typical, least, largest)


BINS = 800
"""About the width of a figure in pixels; zooming in adds no detail."""
TICKS = 8, 6
_DIGITS = 5
"""Significant digits of a value in a picture, finer than a pixel."""


class CurveData(msgspec.Struct, frozen=True):
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
    x, y = axes_of(figure, TICKS)
    data = CurveData(x, y, [], [], [], [])
    whole = x_axis(figure.curves, figure.x_end)
    for index, curve in enumerate(figure.curves):
        if not len(curve.x):
            continue
        rows = list(_bins(index, curve, whole))
        data.bins.extend(rows)
        if curve.error is None:
            data.slow.extend({"s": index, "x": row["x"], "v": row["hi"]} for row in rows if row["hi"] > y.high)
        for kind, line in (("fit", curve.fit), ("limit", curve.limit)):
            if line is not None:
                for end in (float(curve.x.min()), float(curve.x.max())):
                    data.lines.append(
                        {"s": index, "k": kind, "x": round(end), "y": _short(float(line.ms(end)))}
                    )
        data.ends.append({"s": index, "x": rows[-1]["x"], "y": rows[-1]["y"]})
    return data


def _bins(index: int, curve: Curve, whole: Axis) -> Iterator[dict[str, Any]]:
    n_bins = BINS if len(curve.x) > BINS else min(BINS, int(whole.high - whole.low) + 1)
    found = columns_of(curve, whole, n_bins)
    middle = whole.low + (found.column + 0.5) / n_bins * (whole.high - whole.low)
    columns = (middle, found.typical, found.least, found.largest)
    for x, y, low, high in zip(*(each.tolist() for each in columns), strict=True):
        yield {"s": index, "x": round(x), "y": _short(y), "lo": _short(low), "hi": _short(high)}


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
