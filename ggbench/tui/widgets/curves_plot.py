"""Curves of a live run, or of several runs in one plot; zoom and pan by keys."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.text import Text
from textual.widget import Widget

from ggbench.show import letter
from ggbench.show.axes import axes_of, x_axis
from ggbench.show.charts import LineChart
from ggbench.show.plot import Ink, draw
from ggbench.text import sanitize
from ggbench.tui.widgets.bars import key_links
from ggbench.units import format_count

_ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
_ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
_TICKS = 6, 6
_LEGEND = 4
"""Part of the height, as a divisor, that the legend takes at most."""
_GAP = "   "
_NOTHING = LineChart("", "", "", "", "", ())

View = tuple[float, float]
"""The ends of the x axis; those of the y axis follow from the values between them."""


class CurvesPlot(Widget):
    """One figure of several: the median as a line over all steps, the fit as dashes, the limit as points, a letter on
    each curve.

    Steps beyond the y axis are counted in the title. With two or more curves, a legend above names those with values.
    Textual has no plot, and those of textual-plot and plotext tell curves apart by colour alone.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="panel")
        self.figures: tuple[LineChart, ...] = ()
        self.view: View | None = None
        """The zoomed view; None shows everything."""
        self._chosen = ""
        """Key of the figure to draw; the first is drawn if none has it."""
        self._drawn = _NOTHING
        """The figure with the ends of its axes."""
        self._ends: View = (0.0, 1.0)

    def show(self, figures: Sequence[LineChart]) -> None:
        """Draw the chosen one of these figures; a zoom stays until another or a new run is drawn, or moves with the
        newest x.
        """
        before, newest, view = self.figure.key, self._newest, self.view
        self.figures = tuple(figures)
        if view is not None and view[1] == newest:
            view = view[0] + self._newest - newest, self._newest
        keys = "+ - zoom · ← → move · 0 all"
        self.border_subtitle = key_links(f"v next · {keys}" if len(figures) > 1 else keys)
        is_same = self.figure.key == before and self._newest >= newest
        self._zoom_to(view if is_same else None)

    def action_show_next(self) -> None:
        if self.figures:
            keys = [figure.key for figure in self.figures]
            self._chosen = keys[(keys.index(self.figure.key) + 1) % len(keys)]
            self.action_show_all()

    def action_show_all(self) -> None:
        self._zoom_to(None)

    def action_zoom(self, factor: float) -> None:
        """Scale the x axis around its middle or, while more is to come, what is there up to the newest."""
        is_live = self.figure.x_end is not None
        low, high = self._ends[0], self._newest if is_live else self._ends[1]
        width = factor * (high - low)
        end = high if is_live else (low + high + width) / 2
        self._zoom_to((end - width, end))

    def action_pan(self, share: float) -> None:
        low, high = self._ends
        step = share * (high - low)
        self._zoom_to((low + step, high + step))

    def _zoom_to(self, view: View | None) -> None:
        """Draw the view, or everything; the title says what and how many steps are beyond the top."""
        self.view, figure = view, self.figure
        shown = figure if view is None else _within(figure, *view)
        x, y = axes_of(shown, _TICKS)
        low, high = view or (x.low, x.high)
        self._ends = max(low, min(x.low, high - 1)) if high == self._newest else low, high
        self._drawn = replace(figure, ends=(self._ends, (y.low, y.high)))
        title = figure.y_title + " · zoomed" * (view is not None)
        steps = (one.y for one in shown.curves if one.error is None and not one.dimmed)
        if n_slower := sum(int((each > y.high).sum()) for each in steps):
            title += f" · ▲ {format_count(n_slower)} slower"
        self.border_title = Text(title)

    def render(self) -> Text:
        if not self.size.width or not self.size.height:
            return Text()
        legend = self._legend(self.size.width, self.size.height // _LEGEND)
        # without the title, which the border has
        rows = draw(self._drawn, self.size.width, self.size.height - len(legend) + 1)[0][1:]
        text = Text("\n", no_wrap=True, end="").join(legend)
        for number, row in enumerate(rows, len(legend)):
            text.append("\n" * bool(number))
            for part, ink in row:
                text.append(part, self._style(ink))
        return text

    @property
    def _newest(self) -> float:
        """The last x so far of the curves that are not dimmed."""
        return x_axis([one for one in self.figure.curves if not one.dimmed], None).high

    @property
    def figure(self) -> LineChart:
        """The drawn figure; empty if there is none."""
        chosen = (figure for figure in self.figures if figure.key == self._chosen)
        return next(chosen, self.figures[0] if self.figures else _NOTHING)

    def _legend(self, width: int, most_lines: int) -> list[Text]:
        """Return the names of curves with values, as many as fit; none for a figure of one curve of this run."""
        curves = self.figure.curves
        if len(curves) == 1 and not curves[0].dimmed:
            return []
        names = [
            # with the last value, if it has an error; W and B are shown next to the plot
            Text(
                sanitize(f"{letter(index)} {one.name}  {'' if one.error is None else one.note}".rstrip()),
                self._style(Ink(index, one.dimmed)),
            )
            for index, one in enumerate(curves)
            if len(one.x)
        ]
        return [*Text(_GAP).join(names).wrap(self.app.console, width)[:most_lines]]

    def _style(self, ink: Ink) -> str:
        colors = _ON_DARK if self.app.current_theme.dark else _ON_LIGHT
        color = "" if ink.curve is None else colors[ink.curve % len(colors)]
        return f"dim {color}".rstrip() if ink.is_faint else color


def _within(figure: LineChart, low: float, high: float) -> LineChart:
    """Return a figure with the values between these x alone, which are to fill the view."""
    curves = []
    for one in figure.curves:
        inside = (one.x >= low) & (one.x <= high)
        error = None if one.error is None else one.error[inside]
        curves.append(replace(one, x=one.x[inside], y=one.y[inside], error=error, limit=None))
    return replace(figure, curves=tuple(curves), x_end=None)
