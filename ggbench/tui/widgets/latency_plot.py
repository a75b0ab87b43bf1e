"""Latency against position, for a live run and for runs over each other; zoom and pan by keys and mouse.

textual-plot has the axes and what keys and mouse do to them. The curves are put onto its canvas here, a character at a
time and not a dot: it is drawn beside a decode that wants every core, and that takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult, RenderResult
from textual.containers import Grid
from textual.events import Resize
from textual.strip import Strip
from textual.widgets import Static
from textual_hires_canvas import Canvas
from textual_plot import PlotWidget
from textual_plot.axis_formatter import NumericAxisFormatter

from ggbench.tui.plotting import (
    DOTS_ACROSS,
    LETTERS,
    Cell,
    PlotSeries,
    braille_cells,
    latency_range,
    line_ms,
    min_max_columns,
)
from ggbench.units import format_count

_ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
_ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
_MARGIN_LEFT = 8
_ROOM_FOR_A_LABEL = 18
"""Rows below which the x axis goes without its name."""
_ROOM_AT_THE_END = 0.03
"""Of the x axis, for the letter of a curve and half the last tick's number."""
_DASH_EVERY, _POINT_EVERY = 3, 2
"""Characters from one dash of a fitted line, or one point of a limit, to the next."""


class LatencyPlot(PlotWidget):
    """Samples as braille, the fit as dashes, the limit as points, a letter at the end of each curve.

    Steps beyond the y axis are marked at its top. Of two series or more, a legend names those with samples.
    """

    DEFAULT_CSS = """
    LatencyPlot {
        & > .plot--axis { color: $foreground-darken-3; }
        & > .plot--tick { color: $foreground; text-style: none; }
        & > .plot--label { color: $foreground; text-style: none; }
        &:focus > .plot--axis { color: $primary; }
        #names {
            layer: legend; width: auto; height: auto; max-height: 60%; offset: 10 2; background: $surface;
            display: none;
        }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.series: tuple[PlotSeries, ...] = ()
        """What is drawn."""
        self._x_end: int | None = None
        self._limits = _NO_LIMITS
        self._is_zoomed = False
        self._names: tuple[tuple[str, str, bool], ...] = ()
        self.set_reactive(PlotWidget.margin_top, 1)
        self.set_reactive(PlotWidget.margin_left, _MARGIN_LEFT)

    def compose(self) -> ComposeResult:
        """As textual-plot's, and names over it: its own legend lays the screen out anew with every curve."""
        with Grid():
            for name in ("margin-top", "margin-left", "plot", "margin-bottom"):
                yield _Canvas(1, 1, id=name)
        yield Static(id="legend")
        yield Static(id="names", markup=False)

    def on_mount(self) -> None:
        """Axes in words and whole tokens."""
        super().on_mount()
        self.set_x_formatter(_Tokens())
        self.set_xlabel("position (tokens)")
        self.set_ylabel("ms")
        self.refresh()
        self._draw()

    def show(self, series: Sequence[PlotSeries], x_max: int | None = None) -> None:
        """Draw these in place of what is there; the x axis ends at `x_max`, else at the last sample.

        A zoom stays as it is until the scales are reset.
        """
        self.series, self._x_end = tuple(series), x_max
        if self.is_mounted:
            self._draw()

    def action_reset_scales(self) -> None:
        """Show everything again."""
        self._is_zoomed = False
        self._limits = _NO_LIMITS
        self._draw()

    @on(PlotWidget.ScaleChanged)
    def keep_zoom(self, event: PlotWidget.ScaleChanged) -> None:
        """Look closer at what the columns hid, or further along."""
        event.stop()
        self._is_zoomed = True
        self._limits = _Limits(event.x_min, event.x_max, event.y_min, event.y_max)
        self.refresh()

    @on(Canvas.Resize)
    def fit_canvas(self, event: Canvas.Resize) -> None:
        """The canvas learns of its size after the plot was drawn; draw again with the right one."""
        event.stop()
        self.refresh(layout=True)

    def on_resize(self, _: Resize) -> None:
        """Without room, the x axis goes without its name."""
        self.margin_bottom = 3 if self.size.height >= _ROOM_FOR_A_LABEL else 1

    def render(self) -> RenderResult:
        """Axes, then curves."""
        canvas = self.query_one("#plot", Canvas)
        with canvas.batch_refresh():
            rendered = super().render()
            self._draw_curves(canvas)
        return rendered

    def _draw(self) -> None:
        """Axes for the series there are; where they stay as they are, the curves alone, at half the cost."""
        self._show_names()
        if not self._is_zoomed:
            shown = [one for one in self.series if len(one.positions)]
            lowest = min((float(one.positions.min()) for one in shown), default=1.0)
            highest = max((float(one.positions.max()) for one in shown), default=lowest + 1)
            if self._x_end is not None:
                highest = float(self._x_end)
            x_high = highest + max(1.0, _ROOM_AT_THE_END * (highest - lowest))
            limits = _Limits(lowest, x_high, *latency_range(self.series, lowest, highest))
            if limits != self._limits:
                self._limits = limits
                self.set_xlimits(limits.x_low, limits.x_high)
                self.set_ylimits(limits.y_low, limits.y_high)
                return
        canvas = self.query_one("#plot", Canvas)
        with canvas.batch_refresh():
            self._draw_curves(canvas)

    def _show_names(self) -> None:
        drawn = [index for index, one in enumerate(self.series) if len(one.positions)]
        names = tuple((_letter(index), self.series[index].name, self.series[index].dimmed) for index in drawn)
        if names != self._names:
            self._names = names
            lines = [(f"{_letter(index)} {self.series[index].name}", self._style(index)) for index in drawn]
            legend = self.query_one("#names", Static)
            legend.update(Text("\n").join(Text(name, style) for name, style in lines))
            legend.display = len(self.series) > 1 and bool(lines)

    def _draw_curves(self, canvas: Canvas) -> None:
        """What is finished first, each fitted line over its samples, letters over all."""
        frame = _Frame(self._limits, canvas.size.width - 2, canvas.size.height - 2)
        if frame.n_columns < 1 or frame.n_rows < 1:
            return
        canvas.set_pixels(
            ((column + 1, row + 1) for row in range(frame.n_rows) for column in range(frame.n_columns)), " ", ""
        )
        order = sorted(range(len(self.series)), key=lambda index: not self.series[index].dimmed)
        for index in order:
            limit = self.series[index].limit
            if limit is not None:
                _put(canvas, frame.line_cells(limit, "·", _POINT_EVERY), self._style(index))
        ends: list[tuple[Cell, str]] = []
        for index in order:
            one, style = self.series[index], self._style(index)
            limits = frame.limits
            columns = min_max_columns(
                one.positions, one.latency_ms, frame.n_columns * DOTS_ACROSS, limits.x_low, limits.x_high
            )
            if not len(columns.column):
                continue
            _put(canvas, braille_cells(columns, frame.n_columns, frame.n_rows, limits.y_low, limits.y_high), style)
            if one.fit is not None and not one.dimmed:
                _put(canvas, frame.line_cells(one.fit, "╌", _DASH_EVERY), f"bold {self._color(index)}")
            slower = np.unique(columns.column[columns.largest_ms > limits.y_high] // DOTS_ACROSS)
            _put(canvas, [(int(column), 0, "▲") for column in slower], style)
            end_ms = float(columns.least_ms[-1] + columns.largest_ms[-1]) / 2
            column = min(int(columns.column[-1]) // DOTS_ACROSS + 1, frame.n_columns - 1)
            ends.append(((column, frame.row(end_ms), _letter(index)), f"bold {self._color(index)}"))
        for cell, style in ends:
            _put(canvas, [cell], style)

    def _color(self, index: int) -> str:
        palette = _ON_DARK if self.app.current_theme.dark else _ON_LIGHT
        return palette[index % len(palette)]

    def _style(self, index: int) -> str:
        return f"dim {self._color(index)}" if self.series[index].dimmed else self._color(index)


class _Limits(NamedTuple):
    """Of both axes."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float


_NO_LIMITS = _Limits(0.0, 1.0, 0.0, 1.0)


class _Frame(NamedTuple):
    """From positions and milliseconds to the characters inside of the axes."""

    limits: _Limits
    n_columns: int
    n_rows: int

    def row(self, latency_ms: float) -> int:
        """From the top; what lies beyond counts as the edge."""
        share = (self.limits.y_high - latency_ms) / (self.limits.y_high - self.limits.y_low)
        return min(max(int(share * self.n_rows), 0), self.n_rows - 1)

    def line_cells(self, line: tuple[float | None, float], character: str, every: int) -> list[Cell]:
        """Characters along (n - 1) / W + B, where that is inside."""
        x_low, x_high, y_low, y_high = self.limits
        columns = np.arange(0, self.n_columns, every)
        latency_ms = line_ms(line, x_low + (columns + 0.5) / self.n_columns * (x_high - x_low))
        inside = (latency_ms >= y_low) & (latency_ms <= y_high)
        return [
            (int(column), self.row(float(ms)), character)
            for column, ms in zip(columns[inside], latency_ms[inside], strict=True)
        ]


class _Canvas(Canvas):
    """A canvas that may be painted before it knows its size; textual's filter for NO_COLOR needs a style."""

    def render_line(self, y: int) -> Strip:
        """A blank line where there is none yet."""
        strip = super().render_line(y)
        return strip if strip.cell_length else Strip.blank(self.size.width, self.rich_style)


class _Tokens(NumericAxisFormatter):
    """Positions as whole numbers with thousands apart."""

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """As everywhere else in ggbench."""
        return [format_count(round(tick)) if tick == round(tick) else "" for tick in ticks]


def _put(canvas: Canvas, cells: Iterable[Cell], style: str) -> None:
    for column, row, character in cells:
        canvas.set_pixel(column + 1, row + 1, character, style)


def _letter(index: int) -> str:
    return LETTERS[index % len(LETTERS)]
