"""Charts beside the curves of `ggbench.show.plot`: bars with their limits, stacks, and points over two axes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ggbench.show.figures import Figure


class Bar(msgspec.Struct, frozen=True):
    """One run's bar."""

    run: int
    """Index of the run among those of the chart's report, for its name, letter and colour."""
    value: float
    text: str
    """What people read at the bar's end."""
    low: float | None = None
    """Ends of the interval; None where there is none."""
    high: float | None = None
    limit: float | None = None
    """What the machine's memory bandwidth allows; None where that is unknown."""


class Part(msgspec.Struct, frozen=True):
    """One part of one run's stack."""

    run: int
    name: str
    value: float
    text: str


class Point(msgspec.Struct, frozen=True):
    """One point, of one run or of several runs of one quant."""

    run: int
    x: float
    y: float
    text: str
    """What people read beside the values."""
    group: str = ""
    """Points of one group have one shape; empty where there are no groups."""
    x_ends: tuple[float, float] | None = None
    """Of an interval."""
    y_ends: tuple[float, float] | None = None


class BarChart(msgspec.Struct, frozen=True):
    """A bar for each run that has a value."""

    key: str
    """Unique among all charts and figures; part of a file's name."""
    title: str
    unit: str
    bars: tuple[Bar, ...]
    is_less_better: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.bars


class StackChart(msgspec.Struct, frozen=True):
    """A bar for each run, of parts that add up."""

    key: str
    title: str
    unit: str
    parts: tuple[Part, ...]
    totals: tuple[Bar, ...]
    """Of each run with parts."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.parts


class PointChart(msgspec.Struct, frozen=True):
    """Points over two axes."""

    key: str
    title: str
    x_title: str
    y_title: str
    points: tuple[Point, ...]
    has_labels: bool = False
    """Whether each point is labelled with its run's name."""
    counts: bool = False
    """Whether the x axis counts, so that it has whole numbers alone."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.points


Chart = BarChart | StackChart | PointChart | Figure


def runs_of(chart: Chart) -> tuple[int, ...]:
    """Return the indices of the runs that a chart shows, in ascending order."""
    if isinstance(chart, Figure):
        of_curves = [(index, chart.curves[index].run) for index in series_of(chart)]
        return tuple(sorted({index if run is None else run for index, run in of_curves}))
    return series_of(chart)


def series_of(chart: Chart) -> tuple[int, ...]:
    """Return the indices of what has a colour of its own, in ascending order: a figure's curves, else the runs."""
    if isinstance(chart, Figure):
        return tuple(index for index, curve in enumerate(chart.curves) if len(curve.x))
    shown: Sequence[Bar | Part | Point]
    if isinstance(chart, BarChart):
        shown = chart.bars
    else:
        shown = chart.parts if isinstance(chart, StackChart) else chart.points
    return tuple(sorted({each.run for each in shown}))
