"""Latency against position, for a live run and for several runs in one plot; zoom and pan by keys and mouse.

textual-plot draws the axes and handles keys and mouse. The curves are put onto its canvas here, one character at a
time and not one dot: that takes a tenth of the time, and a live plot competes with a decode for the cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

from ggbench.plain import plain
from ggbench.report.plot.axes import (
    Axis,
    from_a_tick,
    in_rows,
    latency_axis,
    position_axis,
    tick_decimals,
    tick_step,
    ticks_within,
)
from ggbench.report.plot.braille import DOTS_ACROSS
from ggbench.report.plot.frame import Cell, Frame
from ggbench.report.plot.palette import ON_DARK, ON_LIGHT, hex_color, letter
from ggbench.report.plot.series import LatencySeries
from ggbench.units import format_count, format_fixed

_MARGIN_LEFT = 8
_ROOM_FOR_A_LABEL = 18
"""Rows below which the x axis goes without its name."""
_ROOM_AT_THE_END = 0.03
"""Of the x axis, for the letter of a curve and half the last tick's number."""
_DASH_EVERY, _POINT_EVERY = 3, 2
"""Characters from one dash of a fitted line, or one point of a limit, to the next."""
_X_TICKS = 6
_LINES = 4
"""Most names of a legend that have lines of their own; more follow each other, so that none is beyond the plot."""
_NO_AXES = Axis(0.0, 1.0), Axis(0.0, 1.0)


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
            layer: legend; width: auto; max-width: 85%; height: auto; offset: 10 2; background: $surface;
            display: none;
        }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.series: tuple[LatencySeries, ...] = ()
        """What is drawn."""
        self._x_end: int | None = None
        self._axes = _NO_AXES
        self._is_zoomed = False
        self._names: tuple[tuple[str, str, bool], ...] = ()
        self._y_ticks_by_rows = _Milliseconds()
        self.set_reactive(PlotWidget.margin_top, 1)
        self.set_reactive(PlotWidget.margin_left, _MARGIN_LEFT)

    def compose(self) -> ComposeResult:
        """Lay out textual-plot's widgets under the names: its own legend changes the layout with every curve."""
        with Grid():
            for name in ("margin-top", "margin-left", "plot", "margin-bottom"):
                yield _Canvas(1, 1, id=name)
        yield Static(id="legend")
        yield Static(id="names", markup=False)

    def on_mount(self) -> None:
        """Axes in words and whole tokens."""
        super().on_mount()
        self.set_x_formatter(_Tokens())
        self.set_y_formatter(self._y_ticks_by_rows)
        self.set_xlabel("position (tokens)")
        self.set_ylabel("ms")
        self.refresh()
        self._draw()

    def show(self, series: Sequence[LatencySeries], x_max: int | None = None) -> None:
        """Draw these in place of what is there; the x axis ends at `x_max`, else at the last sample.

        A zoom stays as it is until the scales are reset.
        """
        self.series, self._x_end = tuple(series), x_max
        if self.is_mounted:
            self._draw()

    def action_reset_scales(self) -> None:
        """Show everything again."""
        self._is_zoomed = False
        self._axes = _NO_AXES
        self._draw()

    @on(PlotWidget.ScaleChanged)
    def keep_zoom(self, event: PlotWidget.ScaleChanged) -> None:
        """Look closer at what the columns hid, or further along."""
        event.stop()
        self._is_zoomed = True
        self._axes = Axis(event.x_min, event.x_max), Axis(event.y_min, event.y_max)
        self._y_ticks_by_rows.step = None
        self.refresh()

    @on(Canvas.Resize)
    def fit_canvas(self, event: Canvas.Resize) -> None:
        """The canvas learns of its size after the plot was drawn; draw again with the right one."""
        event.stop()
        self._draw()
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
            x = position_axis(self.series, self._x_end)
            x_high = x.high + max(1.0, _ROOM_AT_THE_END * (x.high - x.low))
            self._y_ticks_by_rows.rows = max(self.query_one("#plot", Canvas).size.height - 2, 1)
            y, self._y_ticks_by_rows.step = in_rows(latency_axis(self.series, x), self._y_ticks_by_rows.rows)
            axes = from_a_tick(Axis(x.low, x_high), _X_TICKS), y
            if axes != self._axes:
                self._axes = axes
                self.set_xlimits(axes[0].low, axes[0].high)
                self.set_ylimits(axes[1].low, axes[1].high)
                return
        canvas = self.query_one("#plot", Canvas)
        with canvas.batch_refresh():
            self._draw_curves(canvas)

    def _show_names(self) -> None:
        drawn = [index for index, one in enumerate(self.series) if len(one.positions)]
        names = tuple((letter(index), plain(self.series[index].name), self.series[index].dimmed) for index in drawn)
        if names != self._names:
            self._names = names
            lines = [(f"{name[0]} {name[1]}", self._style(index)) for name, index in zip(names, drawn, strict=True)]
            legend = self.query_one("#names", Static)
            between = "\n" if len(lines) <= _LINES else "   "
            legend.update(Text(between).join(Text(name, style) for name, style in lines))
            legend.display = len(self.series) > 1 and bool(lines)

    def _draw_curves(self, canvas: Canvas) -> None:
        """What is finished first, each fitted line over its samples, letters over all."""
        frame = Frame(*self._axes, canvas.size.width - 2, canvas.size.height - 2)
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
            columns = frame.columns(one)
            if not len(columns.column):
                continue
            _put(canvas, frame.band_cells(columns), style)
            if one.fit is not None and not one.dimmed:
                _put(canvas, frame.line_cells(one.fit, "╌", _DASH_EVERY), f"bold {self._color(index)}")
            _put(canvas, [(column, 0, "▲") for column in frame.slow_columns(columns)], style)
            end_ms = float(columns.least_ms[-1] + columns.largest_ms[-1]) / 2
            column = min(int(columns.column[-1]) // DOTS_ACROSS + 1, frame.n_columns - 1)
            ends.append(((column, frame.row(end_ms), letter(index)), f"bold {self._color(index)}"))
        for cell, style in ends:
            _put(canvas, [cell], style)

    def _color(self, index: int) -> str:
        return hex_color(index, ON_DARK if self.app.current_theme.dark else ON_LIGHT)

    def _style(self, index: int) -> str:
        return f"dim {self._color(index)}" if self.series[index].dimmed else self._color(index)


class _Canvas(Canvas):
    """A canvas that may be painted before it knows its size; textual's filter for NO_COLOR needs a style."""

    def render_line(self, y: int) -> Strip:
        """A blank line where there is none yet."""
        strip = super().render_line(y)
        return strip if strip.cell_length else Strip.blank(self.size.width, self.rich_style)


class _Tokens(NumericAxisFormatter):
    """Positions as whole numbers with thousands apart."""

    def get_ticks(self, min_: float, max_: float, max_ticks: int = _X_TICKS) -> list[float]:
        """As the axis counts them, which begins at one."""
        return Axis(min_, max_).ticks(_X_TICKS)

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """As everywhere else in ggbench."""
        return [format_count(round(tick)) if tick == round(tick) else "" for tick in ticks]


class _Milliseconds(NumericAxisFormatter):
    """Labels of latencies in the rows in which samples of that latency are drawn."""

    def __init__(self) -> None:
        self.rows = 1
        self.step: float | None = None
        """Of the ticks; None chooses one for a zoomed axis."""

    def get_ticks_and_labels(self, min_: float, max_: float, max_ticks: int = 0) -> tuple[list[float], list[str]]:
        """Ticks half a row lower than their labels say: textual-plot draws one at the lower edge of the next row."""
        step = self.step or tick_step(min_, max_, max(2, self.rows // 3))
        ticks, half_a_row = ticks_within(min_, max_, step), (max_ - min_) / self.rows / 2
        labels = [format_fixed(tick, tick_decimals(step)) for tick in ticks]
        return [max(tick - half_a_row, min_) for tick in ticks], labels


def _put(canvas: Canvas, cells: Iterable[Cell], style: str) -> None:
    for column, row, character in cells:
        canvas.set_pixel(column + 1, row + 1, character, style)
