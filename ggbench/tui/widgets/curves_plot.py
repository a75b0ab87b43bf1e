"""Curves of a live run, or of several runs in one plot; zoom and pan by keys and mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import MouseMove, MouseScrollDown, MouseScrollUp
from textual.widget import Widget

from ggbench.show import letter
from ggbench.show.axes import from_a_tick, x_axis, y_axis
from ggbench.show.figures import Figure
from ggbench.show.plot import Frame, Ink, draw
from ggbench.text import sanitize
from ggbench.units import format_count

_ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
_ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
_ROOM_AT_THE_END = 0.03
"""Share of the x axis left for a curve's letter and half the last tick's number."""
_X_TICKS = 6
_LEGEND = 4
"""Part of the height, as a divisor, that the legend takes at most."""
_GAP = "   "
_ZOOM, _ZOOM_BY_MOUSE, _PAN = 0.85, 0.95, 0.05
"""Share of an axis left by a zoom step, and share by which a key moves the view."""
_NOTHING = Figure("", "", "", "", "", ())

View = tuple[tuple[float, float], tuple[float, float]]
"""The ends of the x axis and of the y axis."""


class CurvesPlot(Widget, can_focus=True):
    """One figure of several: values as braille with all steps or errors dim behind them, the fit as dashes, the limit
    as points, a letter on each curve.

    Steps beyond the y axis are marked at its top. With two or more curves, a legend above names those with values.
    """

    ZOOM_GROUP, PAN_GROUP = Binding.Group("Zoom"), Binding.Group("Pan")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("+", f"zoom({_ZOOM}, {_ZOOM})", "Zoom in", group=ZOOM_GROUP),
        Binding("-", f"zoom({1 / _ZOOM}, {1 / _ZOOM})", "Zoom out", group=ZOOM_GROUP),
        Binding("ctrl+equals_sign", f"zoom({_ZOOM}, 1)", "Zoom X in", group=ZOOM_GROUP, show=False),
        Binding("ctrl+minus", f"zoom({1 / _ZOOM}, 1)", "Zoom X out", group=ZOOM_GROUP, show=False),
        Binding("ctrl+shift+equals_sign", f"zoom(1, {_ZOOM})", "Zoom Y in", group=ZOOM_GROUP, show=False),
        Binding("ctrl+shift+minus", f"zoom(1, {1 / _ZOOM})", "Zoom Y out", group=ZOOM_GROUP, show=False),
        Binding("left", f"pan(-{_PAN}, 0)", "Pan left", group=PAN_GROUP),
        Binding("right", f"pan({_PAN}, 0)", "Pan right", group=PAN_GROUP),
        Binding("up", f"pan(0, {_PAN})", "Pan up", group=PAN_GROUP),
        Binding("down", f"pan(0, -{_PAN})", "Pan down", group=PAN_GROUP),
        Binding("r", "reset_scales", "Reset scales"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.figures: tuple[Figure, ...] = ()
        self.view: View | None = None
        """The zoomed view; None shows everything."""
        self._chosen = ""
        """Key of the figure to draw; the first is drawn if none has it."""
        self._frame: Frame | None = None
        self._top = 0
        """Line of the first row of the frame."""

    def show(self, figures: Sequence[Figure]) -> None:
        """Draw the chosen one of these figures; a zoom stays until the scales are reset."""
        before = self.figure.key
        self.figures = tuple(figures)
        if self.figure.key != before:
            self.view = None
        self.refresh()

    def show_next(self) -> None:
        if self.figures:
            keys = [figure.key for figure in self.figures]
            self._chosen = keys[(keys.index(self.figure.key) + 1) % len(keys)]
            self.action_reset_scales()

    def action_reset_scales(self) -> None:
        self.view = None
        self.refresh()

    def action_zoom(self, x_factor: float, y_factor: float) -> None:
        self._zoom((x_factor, y_factor), (0.5, 0.5))

    def action_pan(self, x_share: float, y_share: float) -> None:
        (x_low, x_high), (y_low, y_high) = self._ends()
        x_step, y_step = x_share * (x_high - x_low), y_share * (y_high - y_low)
        self.view = (x_low + x_step, x_high + x_step), (y_low + y_step, y_high + y_step)
        self.refresh()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._zoom_at(event, _ZOOM_BY_MOUSE)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._zoom_at(event, 1 / _ZOOM_BY_MOUSE)

    def on_mouse_move(self, event: MouseMove) -> None:
        if event.button and self._frame is not None:
            self.action_pan(-event.delta_x / self._frame.n_columns, event.delta_y / self._frame.n_rows)

    def render(self) -> Text:
        if not self.size.width or not self.size.height:
            return Text()
        legend = self._legend(self.size.width, self.size.height // _LEGEND)
        figure, height = replace(self.figure, ends=self._ends()), self.size.height - len(legend)
        rows, self._frame = draw(figure, self.size.width, height)
        self._top = len(legend) + 1  # below the title of the y axis
        high = self._frame.y.high
        if n_slower := sum(int((one.y > high).sum()) for one in figure.curves if one.error is None and not one.dimmed):
            rows[0].append((f"   ▲ {format_count(n_slower)} slower {'step' if n_slower == 1 else 'steps'}", Ink()))
        text = Text("\n", no_wrap=True, end="").join(legend)
        for number, row in enumerate(rows, len(legend)):
            text.append("\n" * bool(number))
            for part, ink in row:
                text.append(part, self._style(ink))
        return text

    @property
    def figure(self) -> Figure:
        """The drawn figure; empty if there is none."""
        chosen = (figure for figure in self.figures if figure.key == self._chosen)
        return next(chosen, self.figures[0] if self.figures else _NOTHING)

    def _ends(self) -> View:
        """Return the ends of the zoomed view; without zoom, round numbers, which seldom change during a run."""
        if self.view is not None:
            return self.view
        figure = self.figure
        x = x_axis(figure.curves, figure.x_end)
        y = y_axis(figure.curves, x, figure.least_range, figure.y_low)
        x_high = x.high + max(1.0, _ROOM_AT_THE_END * (x.high - x.low))
        x = from_a_tick(replace(x, high=x_high), _X_TICKS)
        return (x.low, x.high), (y.low, y.high)

    def _zoom(self, factors: tuple[float, float], at: tuple[float, float]) -> None:
        """Scale the axes by factors around a point, given in shares from the lower left."""
        x, y = (
            tuple(low + (share + (end - share) * factor) * (high - low) for end in (0, 1))
            for (low, high), factor, share in zip(self._ends(), factors, at, strict=True)
        )
        self.view = (x[0], x[1]), (y[0], y[1])
        self.refresh()

    def _zoom_at(self, event: MouseScrollDown | MouseScrollUp, factor: float) -> None:
        event.stop()
        if self._frame is not None:
            column = event.x - (self.size.width - self._frame.n_columns)
            row = event.y - self._top
            self._zoom((factor, factor), (column / self._frame.n_columns, 1 - row / self._frame.n_rows))

    def _legend(self, width: int, most_lines: int) -> list[Text]:
        """Return the names of curves with values, as many on a line as fit, and only the letters of those beyond the
        lines; none for a figure of one curve, unless that is of an earlier run.
        """
        lines, unnamed, curves = list[Text](), list[str](), self.figure.curves
        for index, one in enumerate(curves if len(curves) > 1 or any(one.dimmed for one in curves) else ()):
            if not len(one.x):
                continue
            # with the last value, if it has an error; W and B are shown next to the plot
            name = one.name if one.error is None or not one.note else f"{one.name}  {one.note}"
            earlier = " (an earlier run)" if len(curves) == 1 else ""
            text = Text(f"{letter(index)} {sanitize(name)}{earlier}", self._style(Ink(index, one.dimmed)))
            if lines and not unnamed and lines[-1].cell_len + len(_GAP) + text.cell_len <= width:
                lines[-1] = Text.assemble(lines[-1], _GAP, text)
            elif len(lines) < most_lines:
                text.truncate(width, overflow="ellipsis")
                lines.append(text)
            else:
                unnamed.append(letter(index))
        if unnamed and lines:
            rest = f"{_GAP}… {' '.join(unnamed)}"
            lines[-1].truncate(width - len(rest), overflow="ellipsis")
            lines[-1].append(rest, "dim")
        return lines

    def _style(self, ink: Ink) -> str:
        colors = _ON_DARK if self.app.current_theme.dark else _ON_LIGHT
        color = "" if ink.curve is None else colors[ink.curve % len(colors)]
        return f"dim {color}".rstrip() if ink.is_faint else color
