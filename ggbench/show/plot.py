"""Figures in braille, eight dots to a character: the typical value as a line, every step as a faint dot behind it.

Letters distinguish the curves, as colour may be missing or invisible to the reader.
No plotting library is used: in plotext 6 curves differ only by colour, tick labels read `1.7e3`, and figures are global
and limited to the terminal's width.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggbench.record import Record
from ggbench.show import letter
from ggbench.show.axes import Axis, Columns, axes_of, columns_of, tick_decimals, tick_step
from ggbench.show.charts import FEW, Curve, Floats, Integers, LineChart
from ggbench.show.run_figures import w_text
from ggbench.stats.decode_timing import LatencyLine
from ggbench.text import sanitize
from ggbench.units import format_count, format_fixed, format_ms

_SGR = (36, 33, 35, 32, 34, 31)

DOTS_ACROSS, _DOTS_DOWN = 2, 4
_BLANK = 0x2800
# Source: Unicode block "Braille Patterns": the bit of each dot, by row and column.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_DASH_EVERY, _POINT_EVERY = 3, 2
"""Columns between two dashes or points."""
_Y_LABEL = 8
"""Columns that the numbers of the y axis take at most, as a rule."""
_LETTER_SHIFT = 6
"""Columns of dots between the letters of neighbouring curves, to keep them apart."""

Cell = tuple[int, int, str]
Dots = npt.NDArray[np.bool_]


class Frame(Record):
    """The area between two axes, in characters of two by four dots.

    The TUI draws it several times a second while a decode uses every core.
    """

    x: Axis
    y: Axis
    n_columns: int
    n_rows: int

    def columns(self, curve: Curve) -> Columns:
        """Return the values of a curve at each column of dots."""
        return columns_of(curve, self.x, self.n_columns * DOTS_ACROSS)

    def row(self, y: float) -> int:
        return int(self._dot_rows(np.clip(y, self.y.low, self.y.high))) // _DOTS_DOWN

    def values(self, curve: Curve) -> tuple[Integers | Floats, Floats]:
        """Return the values of a curve between the axes; what is above them is at their top, or cut if dimmed."""
        top = self.y.high if curve.dimmed else np.inf
        inside = (curve.x >= self.x.low) & (curve.x <= self.x.high) & (curve.y >= self.y.low) & (curve.y <= top)
        return curve.x[inside], np.minimum(curve.y[inside], self.y.high)

    def cloud(self, curve: Curve) -> list[Cell]:
        """Return a dot for each value."""
        dots, (x, y) = self._no_dots(), self.values(curve)
        rows, columns = self._dot_rows(y), self.x.bins(x, dots.shape[1])
        dots[rows, columns] = True
        if curve.has_bars:
            dots = np.logical_or.accumulate(dots)
        return _cells(dots)

    def line(self, column: Integers, values: Floats) -> list[Cell]:
        """Return the values of columns of dots, without gaps between neighbours."""
        dots = self._no_dots()
        if len(column):
            every = np.arange(column[0], column[-1] + 1)
            row = self._dot_rows(np.interp(every, column, values))
            before, rows = np.append(row[:1], row[:-1]), np.arange(dots.shape[0])[:, None]
            dots[:, every] = (rows >= np.minimum(row, before)) & (rows <= np.maximum(row, before))
        return _cells(dots)

    def line_places(self, line: LatencyLine, first: int, last: int, every: int) -> list[tuple[int, int]]:
        """Return the columns from `first` to `last` divisible by `every`, with the rows of a line inside the frame."""
        columns = np.arange(-(-first // every) * every, last + 1, every)
        x = self.x.low + (columns + 0.5) / self.n_columns * (self.x.high - self.x.low)
        y = np.array([line.ms(each) for each in x.tolist()])
        inside = (y >= self.y.low) & (y <= self.y.high)
        return [
            (column, self.row(at))
            for column, at in zip(columns[inside].tolist(), y[inside].tolist(), strict=True)
        ]

    def _dot_rows(self, y: npt.ArrayLike) -> Integers:
        """Return the rows of dots of values, 0 at the top."""
        n_dots = self.n_rows * _DOTS_DOWN
        return n_dots - 1 - self.y.dots(y, n_dots)

    def _no_dots(self) -> Dots:
        return np.zeros((self.n_rows * _DOTS_DOWN, self.n_columns * DOTS_ACROSS), bool)


def _cells(dots: Dots) -> list[Cell]:
    """Return the braille characters of all dots."""
    shape = dots.shape[0] // _DOTS_DOWN, _DOTS_DOWN, dots.shape[1] // DOTS_ACROSS, DOTS_ACROSS
    bits = np.einsum("rdce,de->rc", dots.reshape(shape), _BITS)
    rows, at = np.nonzero(bits)
    return [
        (column, row, chr(_BLANK + each))
        for column, row, each in zip(at.tolist(), rows.tolist(), bits[rows, at].tolist(), strict=True)
    ]


class Ink(NamedTuple):
    curve: int | None = None
    is_faint: bool = False


class _Canvas:
    def __init__(self, columns: int, rows: int) -> None:
        self.rows = [[(" ", Ink())] * columns for _ in range(rows)]

    def add(self, cells: Iterable[Cell], ink: Ink) -> None:
        """Add the dots of braille characters to those already there; a bright one takes the place of a faint one."""
        for column, row, dots in cells:
            old, below = self.rows[row][column]
            is_covered = old == " " or (below.is_faint and not ink.is_faint)
            self.rows[row][column] = (dots if is_covered else chr(ord(old) | ord(dots)), ink)

    def put(self, column: int, row: int, text: str, ink: Ink, *, where_blank: bool = False) -> None:
        for at, character in enumerate(text, min(column, len(self.rows[0]) - len(text))):
            if not where_blank or self.rows[row][at][0] == " ":
                self.rows[row][at] = (character, ink)


def plot_text(figure: LineChart, width: int, height: int, color: bool) -> str:
    """Return the drawing as lines of text, with ANSI colours if `color`, and the legend below."""
    if figure.is_empty:
        return "no samples to plot"
    rows, frame = draw(figure, max(_MIN_WIDTH, width), max(_MIN_HEIGHT, height))
    lines = ["".join(_colored(text, ink, color=color) for text, ink in row).rstrip() for row in rows]
    for index, one in enumerate(figure.curves):
        if len(one.x):
            sign = _colored(letter(index), Ink(index), color=color)
            legend = textwrap.wrap(
                "  ".join(_curve_parts(one, frame, figure.y_unit)), max(_MIN_WIDTH, width) - len("a ")
            )
            lines += [f"{' ' if number else sign} {line}" for number, line in enumerate(legend)]
    return "\n".join(lines)


def draw(figure: LineChart, width: int, height: int) -> tuple[list[list[tuple[str, Ink]]], Frame]:
    """Return rows of text with their ink.

    Values are a line with paler errors or single steps behind it, the fit is dashes, the limit points.
    Steps beyond the y axis are at its top.
    """
    n_rows = max(height - 4, 1)
    n_x_ticks, n_y_ticks = max(2, (width - _Y_LABEL) // 12), max(3, n_rows // 2)
    x, y = axes_of(figure, (n_x_ticks, n_y_ticks))
    if figure.ends is not None:
        x, y = Axis(*figure.ends[0]), Axis(*figure.ends[1])
    labels = _y_labels(y, n_y_ticks)
    margin = max(map(len, labels.values()), default=1)
    n_columns = max(width - margin - 2, 2)
    frame = Frame(x, y, n_columns, n_rows)
    canvas = _Canvas(n_columns, n_rows)
    _draw_curves(canvas, frame, figure)
    y_labels = {frame.row(tick): text for tick, text in labels.items()}
    rows = [[(figure.y_title, Ink())]]
    for row, cells in enumerate(canvas.rows):
        rule = f"{y_labels.get(row, ''):>{margin}} {'┤' if row in y_labels else '│'}"
        runs = (
            ("".join(cell[0] for cell in run), ink) for ink, run in groupby(cells, key=lambda cell: cell[1])
        )
        rows.append([(rule, Ink()), *runs])
    below = (*_x_axis_lines(frame, n_x_ticks), f" {figure.x_title}")
    return [*rows, *([(" " * (margin + 1) + line, Ink())] for line in below)], frame


def _draw_curves(canvas: _Canvas, frame: Frame, figure: LineChart) -> None:
    """Draw the dimmed curves, the others over them, then all lines and marks of curves."""
    shown = [(one, Ink(index, is_faint=one.dimmed)) for index, one in enumerate(figure.curves) if len(one.x)]
    shown.sort(key=lambda pair: not pair[0].dimmed)
    drawn = [(one, ink, frame.columns(one)) for one, ink in shown]
    for one, ink, found in drawn:
        faint = Ink(ink.curve, is_faint=not one.has_bars)
        if not one.dimmed and one.error is None:
            canvas.add(frame.cloud(one), faint)
        elif not one.dimmed:
            for end in (found.least, found.largest):
                canvas.add(frame.line(found.column, end), faint)
        canvas.add([] if one.has_bars else frame.line(found.column, found.typical), ink)
    for one, ink, found in drawn:
        if len(found.column):
            _draw_points(canvas, frame, one, ink)
            _draw_lines(canvas, frame, one, ink, found)


def _y_labels(y: Axis, n_ticks: int) -> dict[float, str]:
    decimals = tick_decimals(tick_step(y.low, y.high, n_ticks))
    return {tick: format_fixed(tick, decimals) for tick in y.ticks(n_ticks)}


def _x_axis_lines(frame: Frame, n_ticks: int) -> tuple[str, str]:
    """Return the axis with its ticks, and their numbers: positions are whole."""
    n_columns = frame.n_columns
    axis, numbers, free_from = ["─"] * n_columns, [" "] * n_columns, 0
    for tick in frame.x.ticks(n_ticks):
        column, text = int(frame.x.bins(tick, n_columns)), format_count(round(tick))
        start = max(0, min(column - len(text) // 2, n_columns - len(text)))
        if start >= free_from and tick == round(tick):
            axis[column] = "┬"
            numbers[start : start + len(text)] = text
            free_from = start + len(text) + 1
    return f"└{''.join(axis)}", f" {''.join(numbers)}"


def _draw_points(canvas: _Canvas, frame: Frame, one: Curve, ink: Ink) -> None:
    """Mark steps beyond the top, and each of a few values."""
    x, y = frame.values(one)
    if one.error is None:
        for at in x[y >= frame.y.high].tolist():
            canvas.put(int(frame.x.bins(at, frame.n_columns)), 0, "▲", ink)
    if len(one.x) <= FEW:
        for at, value in zip(x.tolist(), y.tolist(), strict=True):
            canvas.put(int(frame.x.bins(at, frame.n_columns)), frame.row(value), "•", ink)


def _draw_lines(canvas: _Canvas, frame: Frame, one: Curve, ink: Ink, values: Columns) -> None:
    """Draw the limit as points and the fit as dashes, and write the letter near the end, in a column of its own."""
    index = ink.curve or 0
    first, last = int(values.column[0]) // DOTS_ACROSS, int(values.column[-1]) // DOTS_ACROSS
    if one.limit is not None and not one.dimmed:
        for column, row in frame.line_places(one.limit, first, last, _POINT_EVERY):
            canvas.put(column, row, "·", ink, where_blank=True)
    if one.fit is not None and not one.dimmed:
        for column, row in frame.line_places(one.fit, first, last, _DASH_EVERY):
            canvas.put(column, row, "╌", ink)
    at = max(0, len(values.column) - 1 - _LETTER_SHIFT * index)
    canvas.put(int(values.column[at]) // DOTS_ACROSS, frame.row(float(values.typical[at])), letter(index), ink)


def _curve_parts(one: Curve, frame: Frame, y_unit: str) -> list[str]:
    parts = [sanitize(one.name)]
    if one.note:
        parts.append(f"{'' if one.fit is None else '╌ '}{one.note}")
    if one.limit is not None:
        parts.append(f"· limit W {w_text(one.limit)}, B {format_ms(one.limit.b_ms)}")
    slower = one.y > frame.y.high
    if one.error is None and (n_slower := int(slower.sum())):
        at = int(one.x[int(np.argmax(one.y))])
        most = f"{format_ms(float(one.y.max()))} {y_unit} at {format_count(at)}"
        parts.append(f"▲ {format_count(n_slower)} slower, up to {most}")
    return parts


def _colored(text: str, ink: Ink, *, color: bool) -> str:
    if not color or ink.curve is None:
        return text
    return f"\x1b[{'2;' * ink.is_faint}{_SGR[ink.curve % len(_SGR)]}m{text}\x1b[0m"
