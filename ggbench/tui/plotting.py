"""From samples to what a plot of a few dozen columns shows of them: spikes stay visible, however many share a column.

Pure functions of arrays: a live plot is drawn from them several times a second beside a decode that uses every core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Cell = tuple[int, int, str]
"""Column and row from the top left, and a character."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Tell curves apart without colour, by the place of a series."""

DOTS_ACROSS, DOTS_DOWN = 2, 4
_BLANK = 0x2800
# Source: Unicode block "Braille Patterns": the bit of each dot, by row and column.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])

_QUANTILE, _ROOM_ABOVE = 0.995, 1.1
_LEAST_RANGE_MS = 1e-3
"""Below a microsecond there is nothing to see."""


@dataclass(frozen=True)
class PlotSeries:
    """One run's samples, with the lines that belong to them."""

    name: str
    """Printable; short enough for a legend."""
    positions: Positions
    """1-based; repetitions may follow each other."""
    latency_ms: Floats
    """As long as `positions`."""
    fit: tuple[float | None, float] | None = None
    """W [tokens/ms], None for a flat line, and B [ms]."""
    limit: tuple[float | None, float] | None = None
    """The same of the machine's limit."""
    dimmed: bool = False
    """Drawn behind the others and paler."""


class Columns(NamedTuple):
    """What each column that has samples shows of them."""

    column: Positions
    """From 0 at the left, rising."""
    least_ms: Floats
    largest_ms: Floats


def min_max_columns(
    positions: Positions, latency_ms: Floats, n_columns: int, x_low: float | None = None, x_high: float | None = None
) -> Columns:
    """The least and the largest sample of every column that has any.

    `x_low` and `x_high` (default: of the samples) are the outer edges; samples beyond them are left out. Positions may
    come in any order, as those of repetitions do.
    """
    nothing = Columns(np.empty(0, np.int64), np.empty(0), np.empty(0))
    if not len(positions):
        return nothing
    low = float(positions.min()) if x_low is None else x_low
    high = float(positions.max()) if x_high is None else x_high
    inside = (positions >= low) & (positions <= high)
    if not inside.all():
        positions, latency_ms = positions[inside], latency_ms[inside]
        if not len(positions):
            return nothing
    columns = ((positions - low) * (n_columns / max(high - low, 1.0))).astype(np.int64)
    np.minimum(columns, n_columns - 1, out=columns)  # the last sample is in the last column, not beyond it
    if (np.diff(columns) < 0).any():
        order = np.argsort(columns, kind="stable")
        columns, latency_ms = columns[order], latency_ms[order]
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    return Columns(columns[starts], np.minimum.reduceat(latency_ms, starts), np.maximum.reduceat(latency_ms, starts))


def braille_cells(columns: Columns, n_columns: int, n_rows: int, y_low: float, y_high: float) -> list[Cell]:
    """The band from the least to the largest of every column of dots, joined where it would leave gaps.

    `n_columns` and `n_rows` count characters, of which each has two columns of four dots; `columns` were made for
    twice `n_columns`. What lies outside of `y_low` to `y_high` is cut off.
    """
    if not len(columns.column):
        return []
    n_dots_down = n_rows * DOTS_DOWN
    first, last = int(columns.column[0]), int(columns.column[-1])
    every = np.arange(first, last + 1)
    least = np.interp(every, columns.column, columns.least_ms)
    largest = np.interp(every, columns.column, columns.largest_ms)
    scale = (n_dots_down - 1) / max(y_high - y_low, _LEAST_RANGE_MS)
    # Dots count from the top, so the largest latency has the smallest number.
    top = np.rint((y_high - largest) * scale).astype(np.int64)
    bottom = np.rint((y_high - least) * scale).astype(np.int64)
    top[1:] = np.minimum(top[1:], bottom[:-1])  # a band below its neighbour reaches up to it, and one above down
    bottom[1:] = np.maximum(bottom[1:], top[:-1])
    dots = np.zeros((n_dots_down, n_columns * DOTS_ACROSS), bool)
    rows = np.arange(n_dots_down)[:, None]
    dots[:, every] = (rows >= top) & (rows <= bottom)
    bits = np.einsum("rdce,de->rc", dots.reshape(n_rows, DOTS_DOWN, n_columns, DOTS_ACROSS), _BITS)
    rows_used, columns_used = np.nonzero(bits)
    return [
        (int(column), int(row), chr(_BLANK + int(bits[row, column])))
        for row, column in zip(rows_used, columns_used, strict=True)
    ]


def line_ms(line: tuple[float | None, float], position: npt.ArrayLike) -> Floats:
    """(n - 1) / W + B at these positions."""
    w_tokens_per_ms, b_ms = line
    ramp = np.asarray(position, np.float64) - 1
    return b_ms + (ramp / w_tokens_per_ms if w_tokens_per_ms else 0.0 * ramp)


def latency_range(series: Sequence[PlotSeries], x_low: float, x_high: float) -> tuple[float, float]:
    """The y axis [ms]: from the least of samples and limits to the slowest sample, or a tenth above 99.5 % of them.

    One step of a second among thousands of 20 ms would press all others into the axis; it is told by a mark instead.
    Both ends are round, so that an axis beside a run that goes on seldom moves.
    """
    lows, highs = [], []
    for one in series:
        if len(one.latency_ms):
            most = float(np.quantile(one.latency_ms, _QUANTILE, method="lower")) * _ROOM_ABOVE
            highs.append(min(float(one.latency_ms.max()), most))
            lows.append(float(one.latency_ms.min()))
        if one.limit is not None:
            lows.append(float(line_ms(one.limit, x_low)))
            highs.append(float(line_ms(one.limit, x_high)))
    if not lows:
        return 0.0, 1.0
    low, high = min(lows), max(highs)
    step = 10.0 ** math.floor(math.log10(max(high - low, _LEAST_RANGE_MS))) / 5
    return math.floor(low / step) * step, (math.floor(high / step) + 1) * step
