"""Data for plots and reports: curves with bands and lines, bars with limits, stacks, and points."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.engines.events import DeviceBuffers, Memory
from ggbench.runs.recording import batch_size
from ggbench.runs.run import Result, Settings
from ggbench.runs.summary import QuantSummary
from ggbench.show.figure import interval_key
from ggbench.show.run_figures import measured_text
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, LineFit
from ggbench.stats.intervals import t_95
from ggbench.text import sanitize
from ggbench.units import GIB, MIB, format_bytes, format_count, with_unit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class LatencyLine(msgspec.Struct, frozen=True):
    """latency(n) = (n - 1) / W + B."""

    w_tokens_per_ms: float | None
    """None for a flat line."""
    b_ms: float

    def ms(self, position: npt.ArrayLike) -> Floats:
        ramp = np.asarray(position, np.float64) - 1
        return self.b_ms + (ramp / self.w_tokens_per_ms if self.w_tokens_per_ms else 0.0 * ramp)


class Curve(msgspec.Struct, frozen=True):
    name: str
    x: Integers
    """Positions from 1 on, repetitions one after the other, or numbers of chunks."""
    y: Floats
    error: Floats | None = None
    """Half of each value's 95 % interval, zero if unknown, drawn as a band; None for single steps."""
    fit: LatencyLine | None = None
    limit: LatencyLine | None = None
    note: str = ""
    """Text after the name in the legend: W and B, or the last value."""
    dimmed: bool = False
    """Whether to draw it paler, behind the others, and without its band."""
    run: int | None = None
    """Index of the run; None if each run has one curve, in order."""
    is_formula: bool = False
    """Whether to repeat the letter along the curve, as for a computed one that crosses others."""


class Mark(msgspec.Struct, frozen=True):
    x: float
    y: float
    text: str
    index: int | None = None
    """Index of the curve that gives the colour; None for the colour of text."""


class LineChart(msgspec.Struct, frozen=True):
    key: str
    """Unique among all figures and charts; part of a file's name."""
    y_name: str
    y_unit: str
    x_name: str
    x_unit: str
    """Empty if the name suffices."""
    curves: tuple[Curve, ...]
    x_end: int | None = None
    """The expected last x; None for that of the last value."""
    least_range: float = 1e-3
    """Smaller differences are not worth drawing."""
    y_low: float | None = None
    """The y axis starts here or lower; None for the least value."""
    marks: tuple[Mark, ...] = ()
    is_log: bool = False
    ends: tuple[tuple[float, float], tuple[float, float]] | None = None
    """Ends of the x and the y axis; None for those of the values."""

    @property
    def is_empty(self) -> bool:
        return not any(len(one.x) for one in self.curves)

    @property
    def y_title(self) -> str:
        """Return `latency of one token [ms]`."""
        return f"{self.y_name} [{self.y_unit}]" if self.y_unit else self.y_name

    @property
    def x_title(self) -> str:
        """Return `position [tokens]`."""
        return f"{self.x_name} [{self.x_unit}]" if self.x_unit else self.x_name


class PlottedRun(msgspec.Struct, frozen=True):
    name: str
    positions: Integers
    """Position of every timed step, from 1."""
    step_ns: Integers
    fit: LineFit | None = None
    limit: DecodeLimit | None = None
    observations: Sequence[object] = ()
    series: Mapping[str, int] = {}
    """Number of steps of each series, one after the other; empty while the run is in progress."""
    settings: Settings | None = None
    result: Result | None = None
    """None while the run is in progress."""
    end: int | None = None
    """The expected last x; None if unknown or the run has ended."""
    dimmed: bool = False


def latency_figure(runs: Sequence[PlottedRun], n_seqs: int = 1) -> LineChart:
    """Return latency against position for every timed step of one batch size.

    An imported run has no steps, only means over windows that another tool timed; a decode at depths is also drawn as
    window means.
    """
    curves = tuple(_latency_curve(run, n_seqs) for run in runs)
    end = max((run.end for run in runs if run.end is not None and len(run.positions)), default=None)
    if n_seqs == 1:
        return LineChart("latency", "latency of one token", "ms", "position", "tokens", curves, end)
    name = f"latency of one step, batch {format_count(n_seqs)}"
    return LineChart(f"latency-b{n_seqs}", name, "ms", "position", "tokens", curves, end)


def batch_sizes(run: PlottedRun) -> tuple[int, ...]:
    return tuple(sorted(set(map(batch_size, run.series))))


def _latency_curve(run: PlottedRun, n_seqs: int) -> Curve:
    x, y, error = run.positions, run.step_ns / 1e6, None
    if run.series:
        kept = np.repeat([batch_size(name) == n_seqs for name in run.series], list(run.series.values()))
        x, y = x[kept], y[kept]
        if not kept.any():
            run = replace(run, fit=None, limit=None)
    windows = [each for each in run.observations if isinstance(each, DecodeWindow)]
    if getattr(run.settings, "depths", ()) and run.series:
        windows, x = _depth_windows(run), x[:0]
    if not len(x) and windows:
        x, y, error = _window_means(windows)
    limit = None if run.limit is None else LatencyLine(run.limit.w_tokens_per_ms, run.limit.b_ms)
    return Curve(run.name, x, y, error, fitted_line(run.fit), limit, _fit_text(run.fit), run.dimmed)


def _depth_windows(run: PlottedRun) -> list[DecodeWindow]:
    """Return a window for each depth of a decode at depths, as nothing was timed between them."""
    starts = np.cumsum(list(run.series.values()))[:-1]
    timed = zip(np.split(run.positions, starts), np.split(run.step_ns, starts), strict=True)
    return [DecodeWindow(int(n[0]) - 1, len(n), float(step_ns.sum())) for n, step_ns in timed]


def _fit_text(fit: LineFit | None) -> str:
    if fit is None:
        return ""
    w, b = measured_text(fit, "w_tokens_per_ms"), measured_text(fit, "b_ms", 4)
    return f"W {with_unit(w, 'tokens/ms')}, B {with_unit(b, 'ms')}"


def _window_means(windows: Sequence[DecodeWindow]) -> tuple[Integers, Floats, Floats]:
    found: dict[int, list[float]] = {}
    for window in windows:
        found.setdefault(round(window.mean_position), []).append(window.step_ms)
    x = sorted(found)
    y = [float(np.mean(found[each])) for each in x]
    error = [
        t_95(len(found[each]) - 1) * statistics.stdev(found[each]) / len(found[each]) ** 0.5
        if len(found[each]) > 1
        else 0.0
        for each in x
    ]
    return np.asarray(x, np.int64), np.asarray(y, np.float64), np.asarray(error, np.float64)


def fitted_line(fit: LineFit | None) -> LatencyLine | None:
    """Return the fitted line; None if W or B is only a bound: a line through a bound would look like a fit."""
    if fit is None or fit.w_tokens_per_ms is None or fit.b_ms is None:
        return None
    return LatencyLine(fit.w_tokens_per_ms, fit.b_ms)


def legend_lines(parts: Sequence[str], width: int) -> list[str]:
    """Return the parts of a legend in lines of `width` characters; only longer parts are broken, at blanks."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len("  ") + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines += textwrap.wrap(part, width) or [""]
    return lines


class Bar(msgspec.Struct, frozen=True):
    run: int
    """Index of the run, which determines name, letter and colour."""
    value: float
    text: str
    low: float | None = None
    """Ends of the interval; None without one."""
    high: float | None = None
    limit: float | None = None
    """Limit by the machine's memory bandwidth; None if unknown."""


class StackPart(msgspec.Struct, frozen=True):
    run: int
    name: str
    value: float
    text: str


class ChartPoint(msgspec.Struct, frozen=True):
    run: int
    x: float
    y: float
    text: str
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None


class BarChart(msgspec.Struct, frozen=True):
    key: str
    """Unique among all figures and charts; part of a file's name."""
    title: str
    unit: str
    bars: tuple[Bar, ...]
    is_less_better: bool = False


class StackChart(msgspec.Struct, frozen=True):
    key: str
    title: str
    unit: str
    parts: tuple[StackPart, ...]
    totals: tuple[Bar, ...]


class PointChart(msgspec.Struct, frozen=True):
    key: str
    title: str
    x_title: str
    y_title: str
    points: tuple[ChartPoint, ...]


Chart = BarChart | StackChart | PointChart | LineChart


def series_of(chart: Chart) -> tuple[int, ...]:
    """Return the indices with colours of their own, ascending: a figure's curves, or the runs without curves."""
    match chart:
        case LineChart():
            return tuple(index for index, curve in enumerate(chart.curves) if len(curve.x))
        case BarChart():
            runs = {bar.run for bar in chart.bars}
        case StackChart():
            runs = {part.run for part in chart.parts}
        case PointChart():
            runs = {point.run for point in chart.points}
    return tuple(sorted(runs))


OUTSIDE = "outside buffers"
"""The part of a stack outside llama.cpp's buffers."""


def decode_bars(summaries: Sequence[QuantSummary]) -> tuple[BarChart, BarChart, BarChart]:
    """Return tokens/s, W and B of each decode with intervals and limits; bounds have no bar."""

    def bars(part: str, name: str) -> tuple[Bar, ...]:
        found = []
        for index, summary in enumerate(summaries):
            of = getattr(summary, part)
            if of is not None and (shown := getattr(of, name)) is not None:
                low, high = getattr(of, interval_key(name)) or (None, None)
                limit = getattr(summary.limit, name, None)
                found.append(Bar(index, shown, measured_text(of, name), low, high, limit))
        return tuple(found)

    speeds = bars("latency", "tok_s")
    w, b = bars("fit", "w_tokens_per_ms"), bars("fit", "b_ms")
    return (
        BarChart("speed", "Tokens decoded per second", "tok/s", speeds),
        BarChart("w", "W: tokens of context that add 1 ms", "tokens/ms", w),
        BarChart("b", "B: latency of the first token", "ms", b, is_less_better=True),
    )


def memory_stacks(summaries: Sequence[QuantSummary]) -> tuple[StackChart, ...]:
    """Return a chart of each memory that the runs use: every GPU, and main memory last."""
    held: dict[str, dict[int, dict[str, int]]] = {}
    for index, memory in enumerate(summary.memory for summary in summaries):
        if memory.buffers and memory.n_ctx is not None:
            for place, parts in _parts_by_place(memory).items():
                held.setdefault(place, {})[index] = parts
    places = sorted(held, key=lambda place: (place == _MAIN_MEMORY, place))
    if len(places) < 2:
        return (_memory_stack("memory", "Memory by use", next(iter(held.values()), {})),)
    return tuple(
        _memory_stack(
            "memory" if not number else f"memory-{number + 1}", f"Memory by use: {sanitize(place)}", held[place]
        )
        for number, place in enumerate(places)
    )


_MAIN_MEMORY = "main memory"
_USES = "weights", "KV cache", "compute", "output", "draft", OUTSIDE
"""The parts of a stack from left to right."""


def _parts_by_place(memory: Memory) -> dict[str, dict[str, int]]:
    """Return what a run takes of each memory, by use. Memory outside buffers is left out if several GPUs share it."""
    found: dict[str, dict[str, int]] = {}
    for each in memory.buffers:
        parts = (each.weight_bytes, each.kv_bytes, each.compute_bytes, each.output_bytes)
        _add(found, each, dict(zip(_USES, parts, strict=False)))
    for each in memory.draft_buffers:
        _add(found, each, {"draft": each.total_bytes})
    in_main = found.get(_MAIN_MEMORY, {})
    if "weights" in in_main:  # pages of a mapped file that nothing reads take no memory
        in_main["weights"] += (memory.weight_bytes or 0) - sum(each.weight_bytes for each in memory.buffers)
    computing = [_MAIN_MEMORY]
    if memory.weights_on_gpu:
        computing = [place for place in found if place != _MAIN_MEMORY]
    if len(computing) == 1:
        found.setdefault(computing[0], {})[OUTSIDE] = memory.other_bytes or 0
    return found


def _add(found: dict[str, dict[str, int]], buffers: DeviceBuffers, uses: Mapping[str, int]) -> None:
    parts = found.setdefault(_MAIN_MEMORY if buffers.is_host else buffers.device, {})
    for name, n_bytes in uses.items():
        parts[name] = parts.get(name, 0) + n_bytes


def _memory_stack(key: str, title: str, held: Mapping[int, Mapping[str, int]]) -> StackChart:
    totals = {index: sum(parts.values()) for index, parts in held.items()}
    unit, unit_bytes = ("GiB", GIB) if max(totals.values(), default=0) >= GIB else ("MiB", MIB)
    return StackChart(
        key,
        title,
        unit,
        tuple(
            StackPart(index, name, n_bytes / unit_bytes, format_bytes(n_bytes))
            for name in _USES
            for index, parts in held.items()
            if (n_bytes := parts.get(name))
        ),
        tuple(Bar(index, n_bytes / unit_bytes, format_bytes(n_bytes)) for index, n_bytes in totals.items()),
    )


def prompt_speed(summaries: Sequence[QuantSummary], names: Sequence[str]) -> LineChart:
    curves = []
    for name, summary in zip(names, summaries, strict=True):
        found = [each for each in summary.prefills if not each.n_depth]
        x, y = np.array([each.n_prompt for each in found], np.int64), np.array([each.tok_s for each in found])
        note = (
            f"{measured_text(found[-1], 'tok_s')} tok/s at {format_count(found[-1].n_prompt)}" if found else ""
        )
        curves.append(Curve(name, x, y, np.zeros(len(y)), note=note))
    return LineChart("prefill", "prompt speed", "tok/s", "prompt", "tokens", tuple(curves), y_low=0.0)
