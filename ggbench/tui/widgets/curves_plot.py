"""Curves of a live run, or of several runs in one plot; zoom and pan by keys and mouse.

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

from ggbench.show import letter
from ggbench.show.axes import (
    Axis,
    from_a_tick,
    in_rows,
    tick_decimals,
    tick_step,
    ticks_within,
    x_axis,
    y_axis,
)
from ggbench.show.figures import Curve, Figure
from ggbench.show.plot import DOTS_ACROSS, Cell, Frame
from ggbench.text import plain
from ggbench.units import format_count, format_fixed

_ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
_ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
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
_NOTHING = Figure("", "", "", "", "", ())


class CurvesPlot(PlotWidget):
    """One figure of several: values as braille with all steps or errors dim behind them, the fit as dashes, the limit
    as points, a letter at each curve's end.

    Steps beyond the y axis are marked at its top. Of two curves or more, a legend names those with values.
    """

    DEFAULT_CSS = """
    CurvesPlot {
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
        self.figures: tuple[Figure, ...] = ()
        """What can be drawn."""
        self._chosen = ""
        """Key of the figure that is drawn; the first where there is none of that key."""
        self._labelled = ""
        """Key of the figure that the axes are named after."""
        self._axes = _NO_AXES
        self._is_zoomed = False
        self._names: tuple[tuple[str, str, bool], ...] = ()
        self._y_ticks_by_rows = _Values()
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
        super().on_mount()
        self.set_x_formatter(_Counts())
        self.set_y_formatter(self._y_ticks_by_rows)
        self.refresh()
        self._draw()

    def show(self, figures: Sequence[Figure]) -> None:
        """Draw one of these in place of what is there, the same as before where it is among them.

        A zoom stays as it is until the scales are reset.
        """
        self.figures = tuple(figures)
        if self.is_mounted:
            self._draw()

    def show_next(self) -> None:
        if self.figures:
            keys = [figure.key for figure in self.figures]
            self._chosen = keys[(keys.index(self._figure.key) + 1) % len(keys)]
            self.action_reset_scales()

    def action_reset_scales(self) -> None:
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
        canvas = self.query_one("#plot", Canvas)
        with canvas.batch_refresh():
            rendered = super().render()
            self._draw_curves(canvas)
        return rendered

    @property
    def _figure(self) -> Figure:
        """The figure that is drawn; an empty one where there is none."""
        chosen = (figure for figure in self.figures if figure.key == self._chosen)
        return next(chosen, self.figures[0] if self.figures else _NOTHING)

    @property
    def _curves(self) -> tuple[Curve, ...]:
        return self._figure.curves

    def _draw(self) -> None:
        """Axes for the curves there are; where they stay as they are, the curves alone, at half the cost."""
        figure = self._figure
        if figure.key != self._labelled:
            self._labelled = figure.key
            self._is_zoomed, self._axes = False, _NO_AXES
            self.set_xlabel(_label(figure.x_name, figure.x_unit))
            self.query_one("#margin-top", Canvas).reset()
            self.set_ylabel(_y_label(figure))
        self._show_names()
        if not self._is_zoomed:
            x = x_axis(figure.curves, figure.x_end)
            x_high = x.high + max(1.0, _ROOM_AT_THE_END * (x.high - x.low))
            self._y_ticks_by_rows.rows = max(self.query_one("#plot", Canvas).size.height - 2, 1)
            y, self._y_ticks_by_rows.step = in_rows(
                y_axis(figure.curves, x, figure.least_range, figure.y_low), self._y_ticks_by_rows.rows
            )
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
        curves = self._curves
        drawn = [index for index, one in enumerate(curves) if len(one.x)]
        names = tuple((letter(index), _legend_text(curves[index]), curves[index].dimmed) for index in drawn)
        if names != self._names:
            self._names = names
            lines = [(f"{name[0]} {name[1]}", self._style(index)) for name, index in zip(names, drawn, strict=True)]
            legend = self.query_one("#names", Static)
            between = "\n" if len(lines) <= _LINES else "   "
            legend.update(Text(between).join(Text(name, style) for name, style in lines))
            legend.display = len(curves) > 1 and bool(lines)

    def _draw_curves(self, canvas: Canvas) -> None:
        """What is finished first, each fitted line over its samples, letters over all."""
        frame = Frame(*self._axes, canvas.size.width - 2, canvas.size.height - 2)
        if frame.n_columns < 1 or frame.n_rows < 1:
            return
        canvas.set_pixels(
            ((column + 1, row + 1) for row in range(frame.n_rows) for column in range(frame.n_columns)), " ", ""
        )
        curves = self._curves
        order = sorted(range(len(curves)), key=lambda index: not curves[index].dimmed)
        for index in order:
            limit = curves[index].limit
            if limit is not None:
                _put(canvas, frame.line_cells(limit, "·", _POINT_EVERY), self._style(index))
        ends: list[tuple[Cell, str]] = []
        for index in order:
            one, style = curves[index], self._style(index)
            columns = frame.columns(one)
            if not len(columns.column):
                continue
            _put(canvas, frame.band_cells(one), f"dim {self._color(index)}")
            _put(canvas, frame.curve_cells(one), style)
            if one.fit is not None and not one.dimmed:
                _put(canvas, frame.line_cells(one.fit, "╌", _DASH_EVERY), f"bold {self._color(index)}")
            _put(canvas, [(column, 0, "▲") for column in frame.slow_columns(one)], style)
            end = float(columns.least[-1] + columns.largest[-1]) / 2
            column = min(int(columns.column[-1]) // DOTS_ACROSS + 1, frame.n_columns - 1)
            ends.append(((column, frame.row(end), letter(index)), f"bold {self._color(index)}"))
        for cell, style in ends:
            _put(canvas, [cell], style)

    def _color(self, index: int) -> str:
        colors = _ON_DARK if self.app.current_theme.dark else _ON_LIGHT
        return colors[index % len(colors)]

    def _style(self, index: int) -> str:
        return f"dim {self._color(index)}" if self._curves[index].dimmed else self._color(index)


class _Canvas(Canvas):
    """A canvas that may be painted before it knows its size; textual's filter for NO_COLOR needs a style."""

    def render_line(self, y: int) -> Strip:
        """A blank line where there is none yet."""
        strip = super().render_line(y)
        return strip if strip.cell_length else Strip.blank(self.size.width, self.rich_style)


class _Counts(NumericAxisFormatter):
    """Positions and the like as whole numbers with thousands apart."""

    def get_ticks(self, min_: float, max_: float, max_ticks: int = _X_TICKS) -> list[float]:
        """As the axis counts them, which begins at one."""
        return Axis(min_, max_).ticks(_X_TICKS)

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """As everywhere else in ggbench."""
        return [format_count(round(tick)) if tick == round(tick) else "" for tick in ticks]


class _Values(NumericAxisFormatter):
    """Labels of values in the rows in which those values are drawn."""

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


def _label(name: str, unit: str) -> str:
    """The name of an axis; what stands in brackets textual-plot takes for a style."""
    return f"{name} ({unit})" if unit else name


def _y_label(figure: Figure) -> str:
    """The name, with blanks before a long one: textual-plot centres it two columns left of the axis."""
    title = _label(figure.y_name, figure.y_unit)
    return " " * max(0, len(title) - 2 * (_MARGIN_LEFT - 3)) + title


def _legend_text(curve: Curve) -> str:
    """The name, with the last value where it has an error: W and B are beside the plot."""
    return plain(curve.name if curve.error is None or not curve.note else f"{curve.name}  {curve.note}")
