"""Charts beside the curves of `ggbench.show.plot`: bars with their limits, stacks, and points over two axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from ggbench.runs.summary import QuantSummary
from ggbench.show.figures import Curve, Figure
from ggbench.show.text import b_text, tok_s_text, w_text
from ggbench.units import GIB, MIB, format_bytes, format_count


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


class StackPart(msgspec.Struct, frozen=True):
    """One part of one run's stack."""

    run: int
    name: str
    value: float
    text: str


class ChartPoint(msgspec.Struct, frozen=True):
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
    parts: tuple[StackPart, ...]
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
    points: tuple[ChartPoint, ...]
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
    shown: Sequence[Bar | StackPart | ChartPoint]
    if isinstance(chart, BarChart):
        shown = chart.bars
    else:
        shown = chart.parts if isinstance(chart, StackChart) else chart.points
    return tuple(sorted({each.run for each in shown}))


OUTSIDE = "outside buffers"
"""Name of the part of a stack that llama.cpp reports no buffer for."""


def decode_bars(summaries: Sequence[QuantSummary]) -> tuple[BarChart, BarChart, BarChart]:
    """Return tokens/s, W and B of each decode with their intervals, W and B beside their limits; no bar where only a
    bound is known.
    """

    def bars(part: str, value: str, interval: str, text: Callable[[Any], str]) -> tuple[Bar, ...]:
        found = []
        for index, summary in enumerate(summaries):
            of = getattr(summary, part)
            if of is not None and (shown := getattr(of, value)) is not None:
                low, high = getattr(of, interval) or (None, None)
                found.append(Bar(index, shown, text(of), low, high, getattr(summary.limit, value, None)))
        return tuple(found)

    speeds = bars("latency", "tok_s", "tok_s_ci95", tok_s_text)
    w, b = bars("fit", "w_tokens_per_ms", "w_ci95", w_text), bars("fit", "b_ms", "b_ci95", b_text)
    return (
        BarChart("speed", "Tokens decoded in a second", "tok/s", speeds),
        BarChart("w", "W: tokens until one takes 1 ms longer", "tokens/ms", w),
        BarChart("b", "B: latency of the first token", "ms", b, is_less_better=True),
    )


def memory_stack(summaries: Sequence[QuantSummary]) -> StackChart:
    """Return what weights, KV cache, compute and output buffers of each run took, and what no buffer explains."""
    found: dict[int, tuple[tuple[str, int | None], ...]] = {}
    for index, memory in enumerate(summary.memory for summary in summaries):
        if memory.buffers and memory.n_ctx is not None:
            found[index] = (
                ("weights", memory.weight_bytes),
                ("KV cache", memory.kv_bytes),
                ("compute", memory.compute_bytes),
                ("output", sum(each.output_bytes for each in memory.buffers)),
                (OUTSIDE, memory.other_bytes),
            )
    totals = {index: sum(n_bytes or 0 for _, n_bytes in parts) for index, parts in found.items()}
    unit, unit_bytes = ("GiB", GIB) if max(totals.values(), default=0) >= GIB else ("MiB", MIB)
    parts = [
        StackPart(index, name, n_bytes / unit_bytes, format_bytes(n_bytes))
        for index, held in found.items()
        for name, n_bytes in held
        if n_bytes
    ]
    bars = [Bar(index, n_bytes / unit_bytes, format_bytes(n_bytes)) for index, n_bytes in totals.items()]
    return StackChart("memory", "Memory by what it holds", unit, tuple(parts), tuple(bars))


def prompt_speed(summaries: Sequence[QuantSummary], names: Sequence[str]) -> Figure:
    """Return tokens/s of prompts over their length; a run without prompts has an empty curve."""
    curves = []
    for name, summary in zip(names, summaries, strict=True):
        found = [each for each in summary.prefills if not each.n_depth]
        x = np.asarray([each.n_prompt for each in found], np.int64)
        y = np.asarray([each.tok_s for each in found], np.float64)
        note = f"{tok_s_text(found[-1])} tok/s at {format_count(found[-1].n_prompt)}" if found else ""
        curves.append(Curve(name, x, y, np.zeros(len(y)), note=note))
    return Figure("prefill", "speed of reading a prompt", "tok/s", "prompt", "tokens", tuple(curves), y_low=0.0)
