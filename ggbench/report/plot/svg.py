"""Figures as an SVG for a browser: every value counts, as in the plots of the terminal and the TUI.

Drawn here and not exported from the TUI: an exported screen is braille in a font that a browser has to download.
The file loads nothing from outside, and every name in it is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from ggbench.plain import plain
from ggbench.report.plot.axes import Axis, from_a_tick, tick_decimals, tick_step, x_axis, y_axis
from ggbench.report.plot.curves import Curve, Figure, Floats, legend_lines
from ggbench.report.plot.frame import min_max_columns
from ggbench.report.plot.palette import ON_WHITE, hex_color, letter
from ggbench.units import format_count, format_fixed, format_ms, format_number

_WIDTH, _PLOT_HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _X_AXIS, _LEGEND_LINE = 70, 40, 30, 56, 22
_X_TICKS, _Y_TICKS = 8, 6
_LETTER = 18
"""Pixels from the letter of a legend to its name."""
_LETTER_HEIGHT = 13
_LEGEND_CHARACTERS = 92
"""In a line: 9 pixels for each, more than the mean of any font of 13 pixels."""
_STYLE = """text { font: 13px system-ui, sans-serif; fill: #222; }
.tick { font-size: 12px; fill: #555; }
.letter { font-weight: bold; }
.grid { stroke: #e4e4e4; }
.axis { stroke: #888; }
"""


@dataclass(frozen=True, slots=True)
class _Area:
    """From values to pixels."""

    x_axis: Axis
    y_axis: Axis

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return _LEFT + float(self.x_axis.share(value)) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top; what lies beyond the axis counts as its edge."""
        share = float(self.y_axis.share(min(max(value, self.y_axis.low), self.y_axis.high)))
        return _TOP + (1 - share) * _PLOT_HEIGHT


def figure_as_svg(figure: Figure) -> str:
    """Return an SVG of the curves: a band from the least to the largest value of every pixel, or of their errors.

    The fitted line is dashed and the limit dotted. Letters name the curves, with W and B below. Raises ValueError
    without a value.
    """
    if figure.is_empty:
        raise ValueError("no samples to draw")
    curves = figure.curves
    drawn = [one for one in curves if len(one.x)]
    x = x_axis(drawn, figure.x_end)
    area = _Area(from_a_tick(x, _X_TICKS), from_a_tick(y_axis(drawn, x, figure.least_range, figure.y_low), _Y_TICKS))
    legends = [_legend_lines(one) for one in curves]
    height = _TOP + _PLOT_HEIGHT + _X_AXIS + _LEGEND_LINE * sum(map(len, legends)) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f"<title>{_text(', '.join(one.name for one in curves))}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_grid(area, figure),
    ]
    for draw in (_values, _lines):
        for index, one in enumerate(curves):
            parts += draw(area, one, index)
    parts += _letters(area, curves)
    y = _TOP + _PLOT_HEIGHT + _X_AXIS - 6
    for index, lines in enumerate(legends):
        for number, line in enumerate(lines):
            y += _LEGEND_LINE
            parts.append(_legend(line, y, index if number == 0 else None))
    return "\n".join([*parts, "</svg>\n"])


def _grid(area: _Area, figure: Figure) -> list[str]:
    bottom, right = _TOP + _PLOT_HEIGHT, _WIDTH - _RIGHT
    parts = []
    y_axis = area.y_axis
    decimals = tick_decimals(tick_step(y_axis.low, y_axis.high, _Y_TICKS))
    for tick in y_axis.ticks(_Y_TICKS):
        y = area.y(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        label = format_fixed(tick, decimals)
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in (tick for tick in area.x_axis.ticks(_X_TICKS) if tick == round(tick)):
        x = area.x(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v5"/>')
        label = format_count(round(tick))
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{label}</text>')
    parts.append(f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 12}">{escape(figure.y_title)}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle:.0f}" y="{bottom + 42}" text-anchor="middle">{escape(figure.x_title)}</text>')
    return parts


def _values(area: _Area, one: Curve, index: int) -> list[str]:
    color, has_errors = hex_color(index, ON_WHITE), one.error is not None
    columns = min_max_columns(one, area.x_axis, _WIDTH - _LEFT - _RIGHT, is_band=True)
    if not len(columns.column):
        return []
    across = [_LEFT + int(column) + 0.5 for column in columns.column]
    upper = [f"{x:.1f} {area.y(float(y)):.1f}" for x, y in zip(across, columns.largest, strict=True)]
    lower = [f"{x:.1f} {area.y(float(y)):.1f}" for x, y in zip(across, columns.least, strict=True)]
    outline = "L".join([*upper, *reversed(lower)])
    opacity, edge = (0.15, 0.0) if has_errors else (0.35, 0.6)
    parts = [
        f'<path d="M{outline}Z" fill="{color}" fill-opacity="{opacity}" stroke="{color}" stroke-opacity="{edge}"'
        ' stroke-width="0.8" stroke-linejoin="round"/>'
    ]
    if has_errors:
        middle = "L".join(f"{area.x(float(x)):.1f} {area.y(float(y)):.1f}" for x, y in zip(one.x, one.y, strict=True))
        return [*parts, f'<path d="M{middle}" fill="none" stroke="{color}" stroke-width="1.5"/>']
    slower: Floats = np.asarray(across)[columns.largest > area.y_axis.high]
    parts += [f'<path d="M{x:.1f} {_TOP - 7}l4 7h-8z" fill="{color}"/>' for x in slower.tolist()]
    return parts


def _lines(area: _Area, one: Curve, index: int) -> list[str]:
    if not len(one.x):
        return []
    color, parts = hex_color(index, ON_WHITE), []
    first, last = float(one.x.min()), float(one.x.max())
    looks = 'stroke-dasharray="1 5" stroke-linecap="round"', 'stroke-dasharray="9 5"'
    for line, look in zip((one.limit, one.fit), looks, strict=True):
        if line is not None:
            ends = [f"{area.x(position):.1f} {area.y(float(line.ms(position))):.1f}" for position in (first, last)]
            parts.append(f'<path d="M{"L".join(ends)}" stroke="{color}" stroke-width="2" {look}/>')
    return parts


def _letters(area: _Area, curves: Sequence[Curve]) -> list[str]:
    """A letter at the end of every curve, below another where they would cover each other."""
    ends = []
    for index, one in enumerate(curves):
        if len(one.x):
            last = float(one.x.max())
            at_end = float(one.fit.ms(last)) if one.fit is not None else float(one.y[-1])
            ends.append((area.y(at_end) + 4, area.x(last) + 6, index))
    parts, free_from = [], 0.0
    for y, x, index in sorted(ends):
        y = max(y, free_from)
        free_from = y + _LETTER_HEIGHT
        parts.append(_letter(x, y, index))
    return parts


def _letter(x: float, y: float, index: int) -> str:
    style = f"fill: {hex_color(index, ON_WHITE)}"
    return f'<text class="letter" x="{x:.1f}" y="{y:.1f}" style="{style}">{letter(index)}</text>'


def _legend_lines(one: Curve) -> list[str]:
    """Name, fit and limit in as many lines as they take: a picture has no edge to scroll to."""
    parts = [plain(one.name)]
    if one.note:
        parts.append(one.note if one.error is not None else f"fit {one.note}")
    if one.limit is not None:
        w = one.limit.w_tokens_per_ms
        slope = "no slope" if w is None else f"W {format_number(w)} tokens/ms"
        parts.append(f"limit {slope}, B {format_ms(one.limit.b_ms)} ms")
    if not len(one.x):
        parts.append("no samples")
    return legend_lines(parts, _LEGEND_CHARACTERS, "   ")


def _legend(line: str, y: int, index: int | None) -> str:
    """One line, with the curve's letter before the first."""
    text = f'<text x="{_LEFT + _LETTER}" y="{y}" xml:space="preserve">{escape(line)}</text>'
    if index is None:
        return text
    return f"{_letter(_LEFT, y, index)}{text}"


def _text(text: str) -> str:
    return escape(plain(text))
