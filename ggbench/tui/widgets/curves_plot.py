"""Curves of a live run, or of several runs in one plot."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from ggbench.show import letter
from ggbench.show.charts import LineChart
from ggbench.show.plot import Ink, draw
from ggbench.text import sanitize

_ON_DARK = ("#5fd7ff", "#ffd75f", "#ff87ff", "#87ff87", "#ff8787", "#afafff")
_ON_LIGHT = ("#005f87", "#875f00", "#870087", "#005f00", "#af0000", "#3a3aaf")
_LEGEND = 4
"""Part of the height, as a divisor, that the legend takes at most."""
_GAP = "   "
_NOTHING = LineChart("", "", "", "", "", ())


class CurvesPlot(Widget):
    """One figure of several: values as braille with all steps or errors dim behind them, the fit as dashes, the limit
    as points, a letter on each curve.

    Steps beyond the y axis are marked at its top. With two or more curves, a legend above names those with values.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.figures: tuple[LineChart, ...] = ()
        self._chosen = ""
        """Key of the figure to draw; the first is drawn if none has it."""

    def show(self, figures: Sequence[LineChart]) -> None:
        """Draw the chosen one of these figures."""
        self.figures = tuple(figures)
        self.refresh()

    def show_next(self) -> None:
        if self.figures:
            keys = [figure.key for figure in self.figures]
            self._chosen = keys[(keys.index(self.figure.key) + 1) % len(keys)]
            self.refresh()

    def render(self) -> Text:
        if not self.size.width or not self.size.height:
            return Text()
        legend = self._legend(self.size.width, self.size.height // _LEGEND)
        rows, _ = draw(self.figure, self.size.width, self.size.height - len(legend))
        lines = [Text.assemble(*((part, self._style(ink)) for part, ink in row)) for row in rows]
        return Text("\n", no_wrap=True, end="").join([*legend, *lines])

    @property
    def figure(self) -> LineChart:
        """The drawn figure; empty if there is none."""
        chosen = (figure for figure in self.figures if figure.key == self._chosen)
        return next(chosen, self.figures[0] if self.figures else _NOTHING)

    def _legend(self, width: int, most_lines: int) -> list[Text]:
        """Return the names of curves with values, as many as fit; none for a figure of one curve."""
        lines, curves = list[Text](), self.figure.curves
        if len(curves) == 1:
            return []
        for index, one in ((index, one) for index, one in enumerate(curves) if len(one.x)):
            # with the last value, if it has an error; W and B are shown next to the plot
            name = f"{one.name}  {one.note}" if one.error is not None and one.note else one.name
            text = Text(f"{letter(index)} {sanitize(name)}", self._style(Ink(index)))
            text.truncate(width, overflow="ellipsis")
            if lines and lines[-1].cell_len + len(_GAP) + text.cell_len <= width:
                lines[-1] = Text.assemble(lines[-1], _GAP, text)
            elif len(lines) < most_lines:
                lines.append(text)
        return lines

    def _style(self, ink: Ink) -> str:
        colors = _ON_DARK if self.app.current_theme.dark else _ON_LIGHT
        color = "" if ink.curve is None else colors[ink.curve % len(colors)]
        return f"dim {color}".rstrip() if ink.is_faint else color
