"""Figures in braille, eight dots to a character: the typical value as a line, every step faint behind it.

Every fourth dot from the least to the largest step of a column is drawn, so a single slow step among 10,000 stays
visible and does not hide the line. Letters distinguish the curves, as colour may be missing or invisible to the reader.
No plotting library is used: in plotext 6 curves differ only by colour, tick labels read `1.7e3`, and figures are global
and limited to the terminal's width.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.show import letter
from ggbench.show.axes import Axis, Columns, axes_of, columns_of, tick_decimals, tick_step
from ggbench.show.charts import FEW, Curve, Floats, Integers, LatencyLine, LineChart
from ggbench.text import sanitize
from ggbench.units import format_count, format_fixed, format_ms, format_number

_SGR = (36, 33, 35, 32, 34, 31)

DOTS_ACROSS, _DOTS_DOWN = 2, 4
_BLANK = 0x2800
# Source: Unicode block "Braille Patterns": the bit of each dot, by row and column.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_LETTER_EVERY, _DASH_EVERY, _POINT_EVERY = 12, 3, 2
"""Columns between two letters, dashes or points."""
_Y_LABEL = 8
"""Columns that the numbers of the y axis take at most, as a rule."""
_LETTER_SHIFT = 5
"""Columns between the letters of neighbouring curves, to keep them apart."""

Cell = tuple[int, int, str]


class Frame(msgspec.Struct, frozen=True):
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
        n_dots = self.n_rows * _DOTS_DOWN
        dot = min(max(int(self.y.dots(y, n_dots)), 0), n_dots - 1)
        return (n_dots - 1 - dot) // _DOTS_DOWN

    def cells(
        self, column: Integers, least: Floats, largest: Floats, *, every_fourth: bool = False
    ) -> list[Cell]:
        """Return the dots from the least to the largest of every column, or every fourth, which looks paler."""
        dots = self._dots(column, least, largest)
        if every_fourth:
            down, across = np.ogrid[: dots.shape[0], : dots.shape[1]]
            dots &= (down % 2 == 0) & ((across + down // 2) % 2 == 0)
        bits = np.einsum(
            "rdce,de->rc", dots.reshape(self.n_rows, _DOTS_DOWN, self.n_columns, DOTS_ACROSS), _BITS
        )
        rows, at = np.nonzero(bits)
        return [
            (column, row, chr(_BLANK + each))
            for column, row, each in zip(at.tolist(), rows.tolist(), bits[rows, at].tolist(), strict=True)
        ]

    def line_places(self, line: LatencyLine, first: int, last: int, every: int = 1) -> list[tuple[int, int]]:
        """Return the columns from `first` to `last` divisible by `every`, with the rows of a line inside the frame."""
        columns = np.arange(-(-first // every) * every, last + 1, every)
        y = line.ms(self.x.low + (columns + 0.5) / self.n_columns * (self.x.high - self.x.low))
        inside = (y >= self.y.low) & (y <= self.y.high)
        return [
            (column, self.row(at))
            for column, at in zip(columns[inside].tolist(), y[inside].tolist(), strict=True)
        ]

    def _dots(self, column: Integers, least: Floats, largest: Floats) -> npt.NDArray[np.bool_]:
        """Return the dots from the least to the largest of every column, without gaps between neighbours."""
        n_dots_down = self.n_rows * _DOTS_DOWN
        dots = np.zeros((n_dots_down, self.n_columns * DOTS_ACROSS), bool)
        if not len(column):
            return dots
        every = np.arange(column[0], column[-1] + 1)
        # dots count from the top, so the largest value has the smallest number
        top, bottom = (
            n_dots_down - 1 - self.y.dots(np.interp(every, column, values), n_dots_down)
            for values in (largest, least)
        )
        top[1:] = np.minimum(
            top[1:], bottom[:-1]
        )  # a column below its neighbour reaches up to it, and one above down
        bottom[1:] = np.maximum(bottom[1:], top[:-1])
        rows = np.arange(n_dots_down)[:, None]
        dots[:, every] = (rows >= top) & (rows <= bottom)
        return dots


class Ink(NamedTuple):
    curve: int | None = None
    is_faint: bool = False


class _Canvas:
    def __init__(self, columns: int, rows: int) -> None:
        self.rows = [[(" ", Ink())] * columns for _ in range(rows)]

    def add(self, cells: Iterable[Cell], ink: Ink) -> None:
        """Add the dots of braille characters to those already there."""
        for column, row, dots in cells:
            old = self.rows[row][column][0]
            self.rows[row][column] = (dots if old == " " else chr(ord(old) | ord(dots)), ink)

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
            legend = textwrap.wrap("  ".join(_curve_parts(one, frame)), max(_MIN_WIDTH, width) - len("a "))
            lines += [f"{' ' if number else sign} {line}" for number, line in enumerate(legend)]
    return "\n".join(lines)


def draw(figure: LineChart, width: int, height: int) -> tuple[list[list[tuple[str, Ink]]], Frame]:
    """Return rows of text with their ink.

    Values are dots with paler errors or single steps behind them, the fit is dashes with the curve's letter, the limit
    points. Steps beyond the y axis are marked at its top.
    """
    n_rows = max(height - 4, 1)
    n_x_ticks, n_y_ticks = max(2, (width - _Y_LABEL) // 12), max(3, n_rows // 3)
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
        if not one.dimmed:
            band = frame.cells(found.column, found.least, found.largest, every_fourth=True)
            canvas.add(band, Ink(ink.curve, is_faint=True))
        canvas.add(frame.cells(found.column, found.typical, found.typical), ink)
    for one, ink, found in drawn:
        if len(found.column):
            _draw_points(canvas, frame, one, ink)
            _draw_lines(canvas, frame, one, ink, found)
        if one.error is None and not one.dimmed:  # values with an error scatter at first
            for column in np.unique(found.column[found.largest > frame.y.high] // DOTS_ACROSS).tolist():
                canvas.put(column, 0, "▲", ink)


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
    """Mark each of a few values."""
    x, y = frame.x, frame.y
    if len(one.x) <= FEW:
        inside = (one.x >= x.low) & (one.x <= x.high) & (one.y >= y.low) & (one.y <= y.high)
        for at, value in zip(one.x[inside].tolist(), one.y[inside].tolist(), strict=True):
            canvas.put(int(x.bins(at, frame.n_columns)), frame.row(value), "•", ink)


def _draw_lines(canvas: _Canvas, frame: Frame, one: Curve, ink: Ink, values: Columns) -> None:
    """Draw the limit as points and the fit as dashes, and write the letter: along the fit, or at the end."""
    index = ink.curve or 0
    first, last = int(values.column[0]) // DOTS_ACROSS, int(values.column[-1]) // DOTS_ACROSS
    if one.limit is not None:
        for column, row in frame.line_places(one.limit, first, last, _POINT_EVERY):
            canvas.put(column, row, "·", ink, where_blank=True)
    if one.fit is None or one.dimmed:
        canvas.put(last, frame.row(float(values.typical[-1])), letter(index), ink)
        return
    for column, row in frame.line_places(one.fit, first, last, _DASH_EVERY):
        canvas.put(column, row, "╌", ink)
    for column, row in frame.line_places(one.fit, first, last):
        if (column + _LETTER_SHIFT * index) % _LETTER_EVERY == 0:
            canvas.put(column, row, letter(index), ink)


def _curve_parts(one: Curve, frame: Frame) -> list[str]:
    parts = [sanitize(one.name)]
    if one.note:
        parts.append(f"{'' if one.fit is None else '╌ '}{one.note}")
    if one.limit is not None:
        parts.append(f"· limit W {format_number(one.limit.w_tokens_per_ms)}, B {format_ms(one.limit.b_ms)}")
    slower = one.y > frame.y.high
    if one.error is None and (n_slower := int(slower.sum())):
        at = int(one.x[int(np.argmax(one.y))])
        most = f"{format_ms(float(one.y.max()))} ms at {format_count(at)}"
        parts.append(f"▲ {format_count(n_slower)} slower {'step' if n_slower == 1 else 'steps'}, up to {most}")
    return parts


def _colored(text: str, ink: Ink, *, color: bool) -> str:
    if not color or ink.curve is None:
        return text
    return f"\x1b[{'2;' * ink.is_faint}{_SGR[ink.curve % len(_SGR)]}m{text}\x1b[0m"
