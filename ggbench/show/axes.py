"""Axes: range, ticks, and the way from a value to a place on the axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.show.figures import Curve, Floats, Integers

_QUANTILE, _ROOM_ABOVE = 0.995, 1.1
_UNSETTLED = 0.1
"""Share of values with an error, from the first on, that do not count for the range."""
_ROUNDING = 1e-9
_ROWS_APART = 2, 7
"""Rows of a terminal from one tick to the next, at least and at most."""
_MANY_ROWS_APART, _PENALTY = 4, 1.4
"""With ticks farther apart, an axis has to be this much shorter to be worth its few labels."""
_STEPS_TRIED, _NEXT = 12, 1.01
"""Steps of 1, 2 and 5 times powers of ten, from less than a tenth of a row on; and what leads to the next."""


class Axis(msgspec.Struct, frozen=True):
    """One axis, linear or logarithmic; `high` is above `low`, and `low` above zero where it is logarithmic."""

    low: float
    high: float
    is_log: bool = False

    def share(self, value: npt.ArrayLike) -> Floats:
        """Return the place of each value as a share of the axis, 0 at `low` and 1 at `high`."""
        if self.is_log:
            return np.log(np.asarray(value, np.float64) / self.low) / math.log(self.high / self.low)
        return (np.asarray(value, np.float64) - self.low) / (self.high - self.low)

    def dots(self, value: npt.ArrayLike, count: int) -> Integers:
        """Return the nearest of `count` dots, the first of which is at `low` and the last at `high`."""
        return np.rint(self.share(value) * (count - 1)).astype(np.int64)

    def bins(self, value: npt.ArrayLike, count: int) -> Integers:
        """Return which of `count` equal parts of a linear axis each value is in; `high` is in the last."""
        bins = ((np.asarray(value) - self.low) * (count / (self.high - self.low))).astype(np.int64)
        return np.minimum(bins, count - 1)

    def ticks(self, count: int) -> list[float]:
        """Return round numbers within the axis, about `count` of them."""
        if not self.is_log:
            return ticks_within(self.low, self.high, tick_step(self.low, self.high, count))
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        few = len(decades) > count
        steps = (1,) if few else (1, 3) if 2 * len(decades) > count else (1, 2, 5)
        return [
            step * 10.0**decade for decade in decades for step in steps if self.low <= step * 10.0**decade <= self.high
        ]


def tick_step(low: float, high: float, count: int) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that divides the range into at most `count` steps."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - _ROUNDING))


def ticks_within(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of `step` from `low` to `high`."""
    first, last = math.ceil(low / step - _ROUNDING), math.floor(high / step + _ROUNDING)
    return [index * step for index in range(first, last + 1)]


def tick_below(value: float, step: float) -> float:
    """Return the largest multiple of `step` that is not above `value`."""
    return math.floor(value / step + _ROUNDING) * step


def tick_decimals(step: float) -> int:
    """Return how many decimals the multiples of `step` need."""
    return max(0, -math.floor(math.log10(step) + _ROUNDING))


def x_axis(curves: Sequence[Curve], end: int | None = None) -> Axis:
    """Return the axis from the first x with a value to the last, or to `end`; at least 1 long."""
    shown = [one for one in curves if len(one.x)]
    low = min((float(one.x.min()) for one in shown), default=1.0)
    high = float(end) if end is not None else max((float(one.x.max()) for one in shown), default=low)
    return Axis(low, max(high, low + 1))


def y_range(curves: Sequence[Curve], x: Axis, y_low: float | None = None) -> tuple[float, float]:
    """Return the least and the largest y to draw: from the least of values and limits to the largest value, or to a
    tenth above 99.5 % of them, 0 and 1 without any.

    A single step of a second among thousands of 20 ms would flatten all others: it is marked at the top instead. Of
    values with an error, the first ones scatter far more than where they settle, and do not count. `y_low` is drawn
    whatever the values.
    """
    lows, highs = [] if y_low is None else [y_low], []
    for one in curves:
        if one.error is not None and len(one.y):
            settled = slice(int(len(one.y) * _UNSETTLED) if one.error.any() else 0, None)
            error = 0.0 if one.dimmed else one.error[settled]
            lows.append(float((one.y[settled] - error).min()))
            highs.append(float((one.y[settled] + error).max()))
        elif len(one.y):
            most = float(np.quantile(one.y, _QUANTILE, method="lower")) * _ROOM_ABOVE
            highs.append(min(float(one.y.max()), most))
            lows.append(float(one.y.min()))
        if one.limit is not None:
            lows.append(float(one.limit.ms(x.low)))
            highs.append(float(one.limit.ms(x.high)))
    return (min(lows), max(highs)) if highs else (0.0, 1.0)


def y_axis(curves: Sequence[Curve], x: Axis, least_range: float, y_low: float | None = None) -> Axis:
    """Return the axis of `y_range` with round ends, so that it seldom moves during a run; at least a fifth of
    `least_range` long.
    """
    low, high = y_range(curves, x, y_low)
    if not any(len(one.y) or one.limit is not None for one in curves):
        return Axis(low, high)
    step = 10.0 ** math.floor(math.log10(max(high - low, least_range))) / 5
    return Axis(math.floor(low / step) * step, (math.floor(high / step) + 1) * step)


def from_a_tick(axis: Axis, count: int) -> Axis:
    """Return the axis with its low end at one of its `count` ticks, so that a label says where it begins."""
    while axis.low != (low := tick_below(axis.low, tick_step(axis.low, axis.high, count))):
        axis = Axis(low, axis.high)
    return axis


def in_rows(axis: Axis, rows: int) -> tuple[Axis, float]:
    """Return an axis from a tick on, somewhat longer than this one, and the step of its ticks, which are a whole number
    of the `rows` apart.

    Ticks that are rounded to rows lie unevenly where a row is not much less than a step.
    """
    found: list[tuple[float, ...]] = []
    step = tick_step(axis.low, axis.high, max(rows, 2)) / 10
    for _ in range(_STEPS_TRIED):
        step = tick_step(0, step * _NEXT, 1)
        low = tick_below(axis.low, step)
        apart = math.floor(rows * step / (axis.high - low) + _ROUNDING)
        if _ROWS_APART[0] <= apart <= _ROWS_APART[1]:
            length = step * rows / apart
            found.append((length * (_PENALTY if apart > _MANY_ROWS_APART else 1), length, low, step))
    if not found:  # fewer rows than a label and a gap take
        return from_a_tick(axis, 1), tick_step(axis.low, axis.high, 1)
    _, length, low, step = min(found)
    return Axis(low, low + length), step
