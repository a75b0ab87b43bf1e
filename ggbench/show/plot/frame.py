"""From values to the characters inside of a plot's axes: the typical latency as a line, spikes faint behind it.

Pure functions of arrays: the TUI draws a live plot from them several times a second, beside a decode on every core.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.show.axes import Axis
from ggbench.show.plot.braille import BITS, BLANK, DOTS_ACROSS, DOTS_DOWN
from ggbench.show.figures import Curve, Floats, Integers, Line
from ggbench.show.plot.typical import rolling_median

Cell = tuple[int, int, str]
"""Column and row from the top left, and a character."""


class Columns(NamedTuple):
    """The range of the values of each column that has any."""

    column: Integers
    """From 0 at the left, ascending."""
    least: Floats
    largest: Floats


def typical_columns(curve: Curve, x: Axis, n_columns: int) -> Columns:
    """Return the typical latency of single steps in the middle of every column that has any, without a range."""
    column = min_max_columns(curve, x, n_columns).column
    middle = x.low + (column + 0.5) / n_columns * (x.high - x.low)
    typical = rolling_median(curve.x, curve.y, middle)
    return Columns(column, typical, typical)


def min_max_columns(curve: Curve, x: Axis, n_columns: int, *, is_band: bool = False) -> Columns:
    """Return the least and the largest value of every column that has any, for `is_band` by a standard error less and
    more; values beyond the axis are left out.

    They may come in any order, as those of repetitions do.
    """
    at = curve.x
    error = curve.error if is_band and curve.error is not None else 0.0
    low, high = curve.y - error, curve.y + error
    inside = (at >= x.low) & (at <= x.high)
    if not inside.all():
        at, low, high = at[inside], low[inside], high[inside]
    if not len(at):
        return Columns(np.empty(0, np.int64), np.empty(0), np.empty(0))
    columns = x.bins(at, n_columns)
    if (np.diff(columns) < 0).any():
        order = np.argsort(columns, kind="stable")
        columns, low, high = columns[order], low[order], high[order]
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    return Columns(columns[starts], np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts))


class Frame(msgspec.Struct, frozen=True):
    """The area inside of two axes, in characters, of which each has two columns of four dots."""

    x: Axis
    y: Axis
    n_columns: int
    n_rows: int

    def columns(self, curve: Curve) -> Columns:
        """Return what the line of a curve is in every column of dots: the range of values that have an error, the
        typical latency of single steps.
        """
        of_curve = typical_columns if curve.error is None else min_max_columns
        return of_curve(curve, self.x, self.n_columns * DOTS_ACROSS)

    def band(self, curve: Curve) -> Columns:
        """Return the band around the line: of the errors, or from the least to the largest step."""
        return min_max_columns(curve, self.x, self.n_columns * DOTS_ACROSS, is_band=True)

    def row(self, y: float) -> int:
        """Return the row of a value, from the top; what lies beyond the axis counts as its edge."""
        share = (self.y.high - y) / (self.y.high - self.y.low)
        return min(max(int(share * self.n_rows), 0), self.n_rows - 1)

    def curve_cells(self, curve: Curve) -> list[Cell]:
        """Return the dots of the curve."""
        return self._cells(self._dots(self.columns(curve)))

    def band_cells(self, curve: Curve) -> list[Cell]:
        """Return every fourth dot of the band around a curve that is not dimmed, with the dots of the curve itself."""
        if curve.dimmed:
            return []
        band = self._dots(self.band(curve)) & self._every_fourth()
        return self._cells(band | self._dots(self.columns(curve)))

    def _cells(self, dots: npt.NDArray[np.bool_]) -> list[Cell]:
        bits = np.einsum("rdce,de->rc", dots.reshape(self.n_rows, DOTS_DOWN, self.n_columns, DOTS_ACROSS), BITS)
        rows_used, columns_used = np.nonzero(bits)
        return [
            (int(column), int(row), chr(BLANK + int(bits[row, column])))
            for row, column in zip(rows_used, columns_used, strict=True)
        ]

    def _dots(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """The dots from the least to the largest of every column, without gaps between neighbours; what lies outside
        of the axis is cut off.
        """
        n_dots_down = self.n_rows * DOTS_DOWN
        dots = np.zeros((n_dots_down, self.n_columns * DOTS_ACROSS), bool)
        if not len(columns.column):
            return dots
        first, last = int(columns.column[0]), int(columns.column[-1])
        every = np.arange(first, last + 1)
        least = np.interp(every, columns.column, columns.least)
        largest = np.interp(every, columns.column, columns.largest)
        scale = (n_dots_down - 1) / (self.y.high - self.y.low)
        # Dots count from the top, so the largest value has the smallest number.
        top = np.rint((self.y.high - largest) * scale).astype(np.int64)
        bottom = np.rint((self.y.high - least) * scale).astype(np.int64)
        top[1:] = np.minimum(top[1:], bottom[:-1])  # a column below its neighbour reaches up to it, and one above down
        bottom[1:] = np.maximum(bottom[1:], top[:-1])
        rows = np.arange(n_dots_down)[:, None]
        dots[:, every] = (rows >= top) & (rows <= bottom)
        return dots

    def _every_fourth(self) -> npt.NDArray[np.bool_]:
        """A pattern that is paler than a curve, without colour too."""
        rows = np.arange(self.n_rows * DOTS_DOWN)[:, None]
        columns = np.arange(self.n_columns * DOTS_ACROSS)
        pattern: npt.NDArray[np.bool_] = (rows % 2 == 0) & ((columns + rows // 2) % 2 == 0)
        return pattern

    def line_cells(self, line: Line, character: str, every: int, first: int = 0, last: int | None = None) -> list[Cell]:
        """Return a character in every `every`-th column from `first` to `last` along a line, where that is inside."""
        columns = np.arange(0, self.n_columns if last is None else last + 1, every)
        columns = columns[columns >= first]
        y = line.ms(self.x.low + (columns + 0.5) / self.n_columns * (self.x.high - self.x.low))
        inside = (y >= self.y.low) & (y <= self.y.high)
        return [
            (int(column), self.row(float(at)), character) for column, at in zip(columns[inside], y[inside], strict=True)
        ]

    def slow_columns(self, curve: Curve) -> list[int]:
        """Return the columns of characters with a step beyond the top of the axis; none of values with an error, which
        scatter at first.
        """
        if curve.error is not None:
            return []
        columns = self.band(curve)
        return [int(column) for column in np.unique(columns.column[columns.largest > self.y.high] // DOTS_ACROSS)]
