"""From samples to the characters inside of a plot's axes: spikes stay visible, however many samples share a column.

Pure functions of arrays: the TUI draws a live plot from them several times a second, beside a decode on every core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ggbench.report.plot.axes import LEAST_RANGE_MS, Axis
from ggbench.report.plot.braille import BITS, BLANK, DOTS_ACROSS, DOTS_DOWN
from ggbench.report.plot.series import Floats, Integers, LatencySeries, Line

Cell = tuple[int, int, str]
"""Column and row from the top left, and a character."""


class Columns(NamedTuple):
    """The range of the samples of each column that has any."""

    column: Integers
    """From 0 at the left, ascending."""
    least_ms: Floats
    largest_ms: Floats


def min_max_columns(series: LatencySeries, x: Axis, n_columns: int) -> Columns:
    """Return the least and the largest sample of every column that has any; samples beyond the axis are left out.

    Positions may come in any order, as those of repetitions do.
    """
    positions, latency_ms = series.positions, series.latency_ms
    inside = (positions >= x.low) & (positions <= x.high)
    if not inside.all():
        positions, latency_ms = positions[inside], latency_ms[inside]
    if not len(positions):
        return Columns(np.empty(0, np.int64), np.empty(0), np.empty(0))
    columns = x.bins(positions, n_columns)
    if (np.diff(columns) < 0).any():
        order = np.argsort(columns, kind="stable")
        columns, latency_ms = columns[order], latency_ms[order]
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    return Columns(columns[starts], np.minimum.reduceat(latency_ms, starts), np.maximum.reduceat(latency_ms, starts))


@dataclass(frozen=True, slots=True)
class Frame:
    """The area inside of two axes, in characters, of which each has two columns of four dots."""

    x: Axis
    y: Axis
    """In ms."""
    n_columns: int
    n_rows: int

    def columns(self, series: LatencySeries) -> Columns:
        """Return the range of the samples in every column of dots."""
        return min_max_columns(series, self.x, self.n_columns * DOTS_ACROSS)

    def row(self, latency_ms: float) -> int:
        """Return the row of a latency, from the top; what lies beyond the axis counts as its edge."""
        share = (self.y.high - latency_ms) / (self.y.high - self.y.low)
        return min(max(int(share * self.n_rows), 0), self.n_rows - 1)

    def band_cells(self, columns: Columns) -> list[Cell]:
        """Return the band from the least to the largest of every column of dots, without gaps between neighbours.

        What lies outside of the axis is cut off.
        """
        if not len(columns.column):
            return []
        n_dots_down = self.n_rows * DOTS_DOWN
        first, last = int(columns.column[0]), int(columns.column[-1])
        every = np.arange(first, last + 1)
        least = np.interp(every, columns.column, columns.least_ms)
        largest = np.interp(every, columns.column, columns.largest_ms)
        scale = (n_dots_down - 1) / max(self.y.high - self.y.low, LEAST_RANGE_MS)
        # Dots count from the top, so the largest latency has the smallest number.
        top = np.rint((self.y.high - largest) * scale).astype(np.int64)
        bottom = np.rint((self.y.high - least) * scale).astype(np.int64)
        top[1:] = np.minimum(top[1:], bottom[:-1])  # a band below its neighbour reaches up to it, and one above down
        bottom[1:] = np.maximum(bottom[1:], top[:-1])
        dots = np.zeros((n_dots_down, self.n_columns * DOTS_ACROSS), bool)
        rows = np.arange(n_dots_down)[:, None]
        dots[:, every] = (rows >= top) & (rows <= bottom)
        bits = np.einsum("rdce,de->rc", dots.reshape(self.n_rows, DOTS_DOWN, self.n_columns, DOTS_ACROSS), BITS)
        rows_used, columns_used = np.nonzero(bits)
        return [
            (int(column), int(row), chr(BLANK + int(bits[row, column])))
            for row, column in zip(rows_used, columns_used, strict=True)
        ]

    def line_cells(self, line: Line, character: str, every: int, first: int = 0, last: int | None = None) -> list[Cell]:
        """Return a character in every `every`-th column from `first` to `last` along a line, where that is inside."""
        columns = np.arange(0, self.n_columns if last is None else last + 1, every)
        columns = columns[columns >= first]
        latency_ms = line.ms(self.x.low + (columns + 0.5) / self.n_columns * (self.x.high - self.x.low))
        inside = (latency_ms >= self.y.low) & (latency_ms <= self.y.high)
        return [
            (int(column), self.row(float(ms)), character)
            for column, ms in zip(columns[inside], latency_ms[inside], strict=True)
        ]

    def slow_columns(self, columns: Columns) -> list[int]:
        """Return the columns of characters with a sample beyond the top of the axis."""
        return [int(column) for column in np.unique(columns.column[columns.largest_ms > self.y.high] // DOTS_ACROSS)]
