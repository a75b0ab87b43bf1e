"""Latency against position in a plain terminal: every sample counts, however many share a column.

A column of dots reaches from the least to the greatest of its samples, so a single slow step among 10,000 stays
visible. Drawn here and not by a plotting library: in plotext 6 curves differ by colour alone, tick labels read `1.7e3`,
and a figure is global and no wider than the terminal it finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.plain import shorten
from ggbench.records import DecodeLimit, LineFit
from ggbench.report.braille import DOTS_ACROSS, DOTS_DOWN, BrailleCanvas
from ggbench.report.columns import b_text, w_text
from ggbench.units import format_count, format_fixed, format_ms, format_number

_SGR = (36, 33, 35, 32, 34, 31)
"""Cyan, yellow, magenta, green, blue, red: readable on black and on white."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_WIDTH, _MIN_HEIGHT = 40, 8
_LABEL_WIDTH = 24
_QUANTILE, _ROOM_ABOVE = 0.995, 1.1
_LEAST_RANGE_MS = 1e-3
"""Below a microsecond there is nothing to see."""
_LETTER_EVERY, _DASH_EVERY, _POINT_EVERY = 12, 3, 2
"""Columns from one letter, dash or point to the next."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatencySeries:
    """One run's samples."""

    label: str
    position: npt.ArrayLike
    """1-based; repetitions may follow each other."""
    step_ms: npt.ArrayLike
    fit: LineFit | None = None
    limit: DecodeLimit | None = None


@dataclass(frozen=True, slots=True)
class _Curve:
    """A series with what draws it."""

    series: LatencySeries
    letter: str
    sgr: int
    position: Floats
    step_ms: Floats


@dataclass(frozen=True, slots=True)
class _Axes:
    """From positions and milliseconds to dots."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    columns: int
    rows: int

    def dot_x(self, position: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The column of dots of each position."""
        share = (np.asarray(position, np.float64) - self.x_low) / (self.x_high - self.x_low)
        return np.rint(share * (self.columns * DOTS_ACROSS - 1)).astype(np.int64)

    def dot_y(self, ms: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The row of dots of each latency, from the top; above the plot counts as its top."""
        share = (self.y_high - np.minimum(np.asarray(ms, np.float64), self.y_high)) / (self.y_high - self.y_low)
        return np.rint(share * (self.rows * DOTS_DOWN - 1)).astype(np.int64)


def latency_plot(series: Sequence[LatencySeries], width: int, height: int, color: bool) -> str:
    """Lines of text: samples as dots, the fitted line as dashes with the series' letter, the limit's line as points.

    `width` and `height` are of the plot with its axes, in characters, at least 40 x 8; a legend follows below. The
    y axis ends a tenth above 99.5 % of the samples; slower steps are marked at the top and told below. `color` adds
    ANSI colours.
    """
    curves = [curve for index, one in enumerate(series) if len((curve := _curve(one, index)).position)]
    if not curves:
        return "no samples to plot"
    width, rows = max(_MIN_WIDTH, width), max(_MIN_HEIGHT, height) - 4
    y_low, y_high = _y_range(curves)
    ticks, decimals = _ticks(y_low, y_high, max(2, rows // 3))
    margin = max(len(format_fixed(tick, decimals)) for tick in ticks)
    x_low = min(float(curve.position.min()) for curve in curves)
    x_high = max(float(curve.position.max()) for curve in curves)
    axes = _Axes(x_low, max(x_high, x_low + 1), min(y_low, ticks[0]), y_high, width - margin - 2, rows)
    canvas = BrailleCanvas(axes.columns, axes.rows)
    for curve in curves:
        _draw_samples(canvas, axes, curve)
    for curve in curves:
        _draw_lines(canvas, axes, curve)
    labels = {int(axes.dot_y(tick)) // DOTS_DOWN: format_fixed(tick, decimals) for tick in ticks}
    lines = ["latency of one token [ms]"]
    for row in range(axes.rows):
        rule = "┤" if row in labels else "│"
        lines.append(f"{labels.get(row, ''):>{margin}} {rule}{canvas.line(row, color=color)}".rstrip())
    lines += _x_axis(axes, margin)
    for curve in curves:
        lines += _legend(curve, axes, width, color=color)
    return "\n".join(lines)


def _curve(series: LatencySeries, index: int) -> _Curve:
    position, step_ms = np.asarray(series.position, np.float64), np.asarray(series.step_ms, np.float64)
    known = np.isfinite(position) & np.isfinite(step_ms)
    letter, sgr = _LETTERS[index % len(_LETTERS)], _SGR[index % len(_SGR)]
    return _Curve(series, letter, sgr, position[known], step_ms[known])


def _y_range(curves: Sequence[_Curve]) -> tuple[float, float]:
    """From the least of samples and limits to the slowest sample, or a little above nearly all of them."""
    lows, highs = [], []
    for curve in curves:
        most = float(np.quantile(curve.step_ms, _QUANTILE, method="lower")) * _ROOM_ABOVE
        highs.append(min(float(curve.step_ms.max()), most))
        lows.append(float(curve.step_ms.min()))
        if curve.series.limit is not None:
            lows.append(_limit_ms(curve.series.limit, float(curve.position.min())))
            highs.append(_limit_ms(curve.series.limit, float(curve.position.max())))
    low, high = min(lows), max(highs)
    return low, high if high - low > _LEAST_RANGE_MS else low + _LEAST_RANGE_MS


def _fit_ms(fit: LineFit, position: float) -> float:
    return (fit.b_ms or 0.0) + ((position - 1) / fit.w_tokens_per_ms if fit.w_tokens_per_ms else 0.0)


def _limit_ms(limit: DecodeLimit, position: float) -> float:
    return limit.b_ms + ((position - 1) / limit.w_tokens_per_ms if limit.w_tokens_per_ms else 0.0)


def _ticks(low: float, high: float, count: int) -> tuple[list[float], int]:
    """Round numbers over a range, `count` of them or fewer, the first at or below `low`; and the decimals they need."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)], max(0, -math.floor(math.log10(step) + 1e-9))


def _draw_samples(canvas: BrailleCanvas, axes: _Axes, curve: _Curve) -> None:
    """For each column of dots the span of its samples, joined to the span before so that no gap is left."""
    columns = axes.dot_x(curve.position)
    order = np.argsort(columns, kind="stable")
    columns, rows = columns[order], axes.dot_y(curve.step_ms[order])
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    before: tuple[int, int, int] | None = None
    spans = zip(columns[starts], np.minimum.reduceat(rows, starts), np.maximum.reduceat(rows, starts), strict=True)
    for x, top, bottom in ((int(x), int(top), int(bottom)) for x, top, bottom in spans):
        canvas.draw_line(x, top, x, bottom, curve.sgr)
        if before is not None:
            x_before, top_before, bottom_before = before
            y = min(max((top_before + bottom_before) // 2, top), bottom)
            canvas.draw_line(x_before, min(max(y, top_before), bottom_before), x, y, curve.sgr)
        before = (x, top, bottom)


def _draw_lines(canvas: BrailleCanvas, axes: _Axes, curve: _Curve) -> None:
    """The limit's line behind the samples, the fitted line over them, a mark at the top where steps are slower."""
    fit, limit = curve.series.fit, curve.series.limit
    first, last = (int(dot) // DOTS_ACROSS for dot in axes.dot_x([curve.position.min(), curve.position.max()]))
    for column in range(first, last + 1):
        share = column * DOTS_ACROSS / (axes.columns * DOTS_ACROSS - 1)
        position = axes.x_low + share * (axes.x_high - axes.x_low)
        if limit is not None and column % _POINT_EVERY == 0:
            canvas.put_where_blank(column, int(axes.dot_y(_limit_ms(limit, position))) // DOTS_DOWN, "·", curve.sgr)
        turn = (column + 5 * _SGR.index(curve.sgr)) % _LETTER_EVERY
        if fit is not None and fit.b_ms is not None and turn % _DASH_EVERY == 0:
            row = int(axes.dot_y(_fit_ms(fit, position))) // DOTS_DOWN
            canvas.put(column, row, "╌" if turn else curve.letter, curve.sgr)
    for column in {int(dot) // DOTS_ACROSS for dot in axes.dot_x(curve.position[curve.step_ms > axes.y_high])}:
        canvas.put(column, 0, "▲", curve.sgr)


def _x_axis(axes: _Axes, margin: int) -> list[str]:
    """The line with its ticks, and their numbers."""
    ticks, _ = _ticks(axes.x_low, axes.x_high, max(2, axes.columns // 12))
    rule, numbers = ["─"] * axes.columns, [" "] * axes.columns
    free_from = 0
    for tick in ticks:
        if tick < axes.x_low:
            continue
        column, text = int(axes.dot_x(tick)) // DOTS_ACROSS, format_count(round(tick))
        start = max(0, min(column - len(text) // 2, axes.columns - len(text)))
        if start >= free_from and tick == round(tick):
            rule[column] = "┬"
            numbers[start : start + len(text)] = text
            free_from = start + len(text) + 1
    indent = " " * (margin + 1)
    return [f"{indent}└{''.join(rule)}", f"{indent} {''.join(numbers)}".rstrip(), f"{indent} position [tokens]"]


def _legend(curve: _Curve, axes: _Axes, width: int, *, color: bool) -> list[str]:
    """What the letter stands for, with the fit, the limit and the steps that are off the plot."""
    fit, limit = curve.series.fit, curve.series.limit
    parts = [shorten(curve.series.label, _LABEL_WIDTH)]
    if fit is not None:
        parts.append(f"╌ W {w_text(fit)} tokens/ms, B {b_text(fit)} ms")
    if limit is not None:
        parts.append(f"· limit W {format_number(limit.w_tokens_per_ms)}, B {format_ms(limit.b_ms)}")
    slower = curve.step_ms > axes.y_high
    if n_slower := int(slower.sum()):
        at = int(curve.position[int(np.argmax(curve.step_ms))])
        most = f"{format_ms(float(curve.step_ms.max()))} ms at {format_count(at)}"
        parts.append(f"▲ {format_count(n_slower)} slower {'step' if n_slower == 1 else 'steps'}, up to {most}")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 4 <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    letter = f"\x1b[{curve.sgr}m{curve.letter}\x1b[0m" if color else curve.letter
    return [f"{letter if number == 0 else ' '} {line}" for number, line in enumerate(lines)]
