"""Curves over each other as an SVG to open in a browser: every sample counts, as in the plot on the screen.

Drawn here and not exported from the terminal: an exported screen is braille in a font that a browser has to fetch.
It asks for nothing from outside, and every name in it is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from ggbench.plain import plain
from ggbench.tui.comparison import letter
from ggbench.tui.plotting import Floats, PlotSeries, latency_range, line_ms, min_max_columns
from ggbench.units import format_count, format_fixed, format_ms, format_number

_WIDTH, _PLOT_HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _X_AXIS, _LEGEND_LINE = 70, 40, 30, 56, 22
_COLORS = ("#0b6e99", "#b35c00", "#8a2b8a", "#2e7d32", "#b3261e", "#4646b4")
"""Dark enough on white for lines and letters."""
_X_TICKS, _Y_TICKS = 8, 6
_STYLE = """text { font: 13px system-ui, sans-serif; fill: #222; }
.tick { font-size: 12px; fill: #555; }
.letter { font-weight: bold; }
.grid { stroke: #e4e4e4; }
.axis { stroke: #888; }
"""


class _Axes(NamedTuple):
    """From positions and milliseconds to pixels."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, position: float) -> float:
        """Pixels from the left."""
        share = (position - self.x_low) / (self.x_high - self.x_low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, ms: float) -> float:
        """Pixels from the top; what lies beyond counts as the edge."""
        share = (min(max(ms, self.y_low), self.y_high) - self.y_low) / (self.y_high - self.y_low)
        return _TOP + (1 - share) * _PLOT_HEIGHT


def curves_as_svg(series: Sequence[PlotSeries]) -> str:
    """Latency [ms] against position: a band from the least to the largest sample of every pixel, the fit dashed.

    The machine's limit is dotted. Letters name the curves, with W and B below. Raises ValueError without a sample.
    """
    sampled = [one for one in series if len(one.positions)]
    if not sampled:
        raise ValueError("no samples to draw")
    x_low = min(float(one.positions.min()) for one in sampled)
    x_high = max(max(float(one.positions.max()) for one in sampled), x_low + 1)
    axes = _Axes(x_low, x_high, *latency_range(sampled, x_low, x_high))
    height = _TOP + _PLOT_HEIGHT + _X_AXIS + _LEGEND_LINE * len(series) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f"<title>{_text(', '.join(one.name for one in series))}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_grid(axes),
    ]
    for index, one in enumerate(series):
        parts += _samples(axes, one, _color(index))
    for index, one in enumerate(series):
        parts += _lines(axes, one, index)
    for index, one in enumerate(series):
        parts.append(_legend(one, index))
    return "\n".join([*parts, "</svg>\n"])


def _grid(axes: _Axes) -> list[str]:
    bottom, right = _TOP + _PLOT_HEIGHT, _WIDTH - _RIGHT
    parts = []
    ticks, decimals = _ticks(axes.y_low, axes.y_high, _Y_TICKS)
    for tick in ticks:
        y = axes.y(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        label = format_fixed(tick, decimals)
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    ticks, _ = _ticks(axes.x_low, axes.x_high, _X_TICKS)
    for tick in (tick for tick in ticks if tick == round(tick)):
        x = axes.x(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v5"/>')
        label = format_count(round(tick))
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{label}</text>')
    parts.append(f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 12}">latency of one token [ms]</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle:.0f}" y="{bottom + 42}" text-anchor="middle">position [tokens]</text>')
    return parts


def _samples(axes: _Axes, one: PlotSeries, color: str) -> list[str]:
    n_columns = _WIDTH - _LEFT - _RIGHT
    columns = min_max_columns(one.positions, one.latency_ms, n_columns, axes.x_low, axes.x_high)
    if not len(columns.column):
        return []
    across = [_LEFT + int(column) + 0.5 for column in columns.column]
    upper = [f"{x:.1f} {axes.y(float(ms)):.1f}" for x, ms in zip(across, columns.largest_ms, strict=True)]
    lower = [f"{x:.1f} {axes.y(float(ms)):.1f}" for x, ms in zip(across, columns.least_ms, strict=True)]
    outline = "L".join([*upper, *reversed(lower)])
    parts = [
        f'<path d="M{outline}Z" fill="{color}" fill-opacity="0.35" stroke="{color}" stroke-opacity="0.6"'
        ' stroke-width="0.8" stroke-linejoin="round"/>'
    ]
    slower: Floats = np.asarray(across)[columns.largest_ms > axes.y_high]
    parts += [f'<path d="M{x:.1f} {_TOP - 7}l4 7h-8z" fill="{color}"/>' for x in slower.tolist()]
    return parts


def _lines(axes: _Axes, one: PlotSeries, index: int) -> list[str]:
    if not len(one.positions):
        return []
    color, parts = _color(index), []
    first, last = float(one.positions.min()), float(one.positions.max())
    for line, look in (
        (one.limit, 'stroke-dasharray="1 5" stroke-linecap="round"'),
        (one.fit, 'stroke-dasharray="9 5"'),
    ):
        if line is None:
            continue
        ends = [(axes.x(position), axes.y(float(line_ms(line, position)))) for position in (first, last)]
        (x_from, y_from), (x_to, y_to) = ends
        path = f"M{x_from:.1f} {y_from:.1f}L{x_to:.1f} {y_to:.1f}"
        parts.append(f'<path d="{path}" stroke="{color}" stroke-width="2" {look}/>')
    at_end = float(line_ms(one.fit, last)) if one.fit is not None else float(one.latency_ms[-1])
    place = f'x="{axes.x(last) + 6:.1f}" y="{axes.y(at_end) + 4:.1f}"'
    parts.append(f'<text class="letter" {place} style="fill: {color}">{letter(index)}</text>')
    return parts


def _legend(one: PlotSeries, index: int) -> str:
    told = [one.name]
    for what, line in (("fit", one.fit), ("limit", one.limit)):
        if line is not None:
            w, b = line
            flat = "no slope" if w is None else f"W {format_number(w)} tokens/ms"
            told.append(f"{what} {flat}, B {format_ms(b)} ms")
    if not len(one.positions):
        told.append("no samples")
    y = _TOP + _PLOT_HEIGHT + _X_AXIS + _LEGEND_LINE * (index + 1) - 6
    name = f'<tspan class="letter" style="fill: {_color(index)}">{letter(index)}</tspan>'
    return f'<text x="{_LEFT}" y="{y}" xml:space="preserve">{name}  {_text("   ".join(told))}</text>'


def _ticks(low: float, high: float, count: int) -> tuple[list[float], int]:
    """Round numbers within a range, about `count` of them, and the decimals that they need."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [index * step for index in range(first, last + 1)], decimals


def _color(index: int) -> str:
    return _COLORS[index % len(_COLORS)]


def _text(text: str) -> str:
    return escape(plain(text))
