"""Figures in a plain terminal: the typical latency as a line, and every step faint behind it.

Every fourth dot from the least to the largest step of a column is drawn, so a single slow step among 10,000 stays
visible and does not hide the line. Drawn here and not by a plotting library: in plotext 6 curves differ by colour
alone, tick labels read `1.7e3`, and a figure is global and no wider than the terminal it finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ggbench.show.axes import (
    Axis,
    from_a_tick,
    tick_below,
    tick_decimals,
    tick_step,
    ticks_within,
    x_axis,
    y_range,
)
from ggbench.show.plot.braille import DOTS_DOWN, BrailleCanvas
from ggbench.show.figures import Curve, Figure, legend_lines
from ggbench.show.plot.frame import Frame
from ggbench.show.plot.palette import letter, terminal_color
from ggbench.text import plain
from ggbench.units import format_count, format_fixed, format_ms, format_number

_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_LETTER_EVERY, _DASH_EVERY, _POINT_EVERY = 12, 3, 2
"""Columns from one letter, dash or point to the next."""
_LETTER_SHIFT = 5
"""Columns between the letters of neighbouring curves, so that they do not cover each other."""


def plot_text(figure: Figure, width: int, height: int, color: bool) -> str:
    """Return lines of text: values as dots, their errors or the single steps behind them as fewer, the fitted line as
    dashes with the curve's letter, the limit as points.

    `width` and `height` are of the plot with its axes, in characters, at least 40 x 8; a legend follows below. The
    y axis ends a tenth above 99.5 % of the steps; slower ones are marked at the top and counted in the legend.
    `color` adds ANSI colours.
    """
    curves = {index: one for index, one in enumerate(figure.curves) if len(one.x)}
    if not curves:
        return "no samples to plot"
    width, rows = max(_MIN_WIDTH, width), max(_MIN_HEIGHT, height) - 4
    whole_x = x_axis(figure.curves, figure.x_end)
    low, high = y_range(list(curves.values()), whole_x, figure.y_low)
    high = max(high, low + figure.least_range)
    step = tick_step(low, high, max(2, rows // 3))
    y = Axis(min(low, tick_below(low, step)), high)
    ticks, decimals = ticks_within(y.low, y.high, step), tick_decimals(step)
    margin = max(len(format_fixed(tick, decimals)) for tick in ticks)
    n_columns = width - margin - 2
    n_ticks = max(2, n_columns // 12)
    x = from_a_tick(whole_x, n_ticks)
    frame = Frame(x, y, n_columns, rows)
    canvas = BrailleCanvas(frame.n_columns, frame.n_rows)
    for index, one in curves.items():
        for column, row, dots in frame.band_cells(one) or frame.curve_cells(one):
            canvas.add_dots(column, row, dots, terminal_color(index))
    for index, one in curves.items():
        _draw_lines(canvas, frame, one, index)
    n_dots = rows * DOTS_DOWN
    labels = {(n_dots - 1 - int(y.dots(tick, n_dots))) // DOTS_DOWN: format_fixed(tick, decimals) for tick in ticks}
    x_ticks = [tick for tick in x.ticks(n_ticks) if tick == round(tick)]
    x_places = [(int(x.bins(tick, frame.n_columns)), tick) for tick in x_ticks]
    lines = framed(canvas, labels, x_places, (figure.y_title, figure.x_title), margin, color=color)
    for index, one in curves.items():
        lines += _legend(one, index, frame, width, color=color)
    return "\n".join(lines)


def framed(
    canvas: BrailleCanvas,
    y_labels: Mapping[int, str],
    x_ticks: Sequence[tuple[int, float]],
    titles: tuple[str, str],
    margin: int,
    *,
    color: bool,
) -> list[str]:
    """Return the lines of a canvas between its axes; numbers of the x axis never overlap.

    `y_labels` are by row and at most `margin` wide, `x_ticks` columns with their values, `titles` of y and of x.
    """
    lines = [titles[0]]
    for row in range(canvas.rows):
        rule = "┤" if row in y_labels else "│"
        lines.append(f"{y_labels.get(row, ''):>{margin}} {rule}{canvas.line(row, color=color)}".rstrip())
    axis, numbers = ["─"] * canvas.columns, [" "] * canvas.columns
    free_from = 0
    for column, tick in x_ticks:
        text = format_count(round(tick))
        start = max(0, min(column - len(text) // 2, canvas.columns - len(text)))
        if start >= free_from:
            axis[column] = "┬"
            numbers[start : start + len(text)] = text
            free_from = start + len(text) + 1
    indent = " " * (margin + 1)
    return [*lines, f"{indent}└{''.join(axis)}", f"{indent} {''.join(numbers)}".rstrip(), f"{indent} {titles[1]}"]


def colored(text: str, sgr: int, *, color: bool) -> str:
    """Return the text in an ANSI colour, as it is without one."""
    return f"\x1b[{sgr}m{text}\x1b[0m" if color and sgr else text


def _draw_lines(canvas: BrailleCanvas, frame: Frame, one: Curve, index: int) -> None:
    """The limit behind the values, the fitted line over them, else a letter at their end; a mark at the top where steps
    are slower.
    """
    sgr = terminal_color(index)
    first, last = (int(end) for end in frame.x.bins([one.x.min(), one.x.max()], frame.n_columns))
    if one.limit is not None:
        for column, row, point in frame.line_cells(one.limit, "·", _POINT_EVERY, first, last):
            canvas.put_where_blank(column, row, point, sgr)
    if one.fit is not None:
        for column, row, dash in frame.line_cells(one.fit, "╌", 1, first, last):
            turn = (column + _LETTER_SHIFT * index) % _LETTER_EVERY
            if turn % _DASH_EVERY == 0:
                canvas.put(column, row, dash if turn else letter(index), sgr)
    elif one.error is not None:
        canvas.put(last, frame.row(float(one.y[-1])), letter(index), sgr)
    for column in frame.slow_columns(one):
        canvas.put(column, 0, "▲", sgr)


def _legend(one: Curve, index: int, frame: Frame, width: int, *, color: bool) -> list[str]:
    """What the letter stands for, with the fit, the limit and the steps beyond the top."""
    parts = [plain(one.name)]
    if one.note:
        parts.append(f"{'' if one.fit is None else '╌ '}{one.note}")
    if one.limit is not None:
        parts.append(f"· limit W {format_number(one.limit.w_tokens_per_ms)}, B {format_ms(one.limit.b_ms)}")
    slower = one.y > frame.y.high
    if one.error is None and (n_slower := int(slower.sum())):
        at = int(one.x[int(np.argmax(one.y))])
        most = f"{format_ms(float(one.y.max()))} ms at {format_count(at)}"
        parts.append(f"▲ {format_count(n_slower)} slower {'step' if n_slower == 1 else 'steps'}, up to {most}")
    lines = legend_lines(parts, width - len("a "), "  ")
    name = colored(letter(index), terminal_color(index), color=color)
    return [f"{name if number == 0 else ' '} {line}" for number, line in enumerate(lines)]
