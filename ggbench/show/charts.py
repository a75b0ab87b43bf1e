"""Data for plots and reports: curves with their bands, fits and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ggbench.record import Record
from ggbench.runs.recording import batch_size
from ggbench.runs.run import Result, Run, Settings
from ggbench.show import UNKNOWN
from ggbench.show.run_figures import measured_text, w_text
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, LatencyLine, LineFit
from ggbench.stats.intervals import half_width
from ggbench.units import format_count, with_unit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Curve(Record):
    name: str
    x: Integers | Floats
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
    has_bars: bool = False
    """Whether each value is a bar from the x axis, without a line through them."""

    @property
    def is_smoothed(self) -> bool:
        """Whether the line is a median of single steps; of fewer it joins them."""
        return self.error is None and not self.has_bars and len(self.x) >= _FEWEST_SMOOTHED


_FEWEST_SMOOTHED = 100
FEW = 16
"""Values up to which each has a mark, as points so far apart are hardly seen."""


class LineChart(Record):
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


class PlottedRun(Record):
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
    return Curve(run.name, x, y, error, fitted_line(run.fit), run.limit, _fit_text(run.fit), run.dimmed)


def _depth_windows(run: PlottedRun) -> list[DecodeWindow]:
    """Return a window for each depth of a decode at depths, as nothing was timed between them."""
    starts = np.cumsum(list(run.series.values()))[:-1]
    timed = zip(np.split(run.positions, starts), np.split(run.step_ns, starts), strict=True)
    return [DecodeWindow(int(n[0]) - 1, len(n), float(step_ns.sum())) for n, step_ns in timed]


def _fit_text(fit: LineFit | None) -> str:
    """Return `W 205 ±4 tokens/ms, B 10.9 ms`, of which what is known."""
    named = (
        ("W", UNKNOWN if fit is None else w_text(fit), "tokens/ms"),
        ("B", measured_text(fit, "b_ms", 4), "ms"),
    )
    return ", ".join(f"{name} {with_unit(text, unit)}" for name, text, unit in named if text != UNKNOWN)


def _window_means(windows: Sequence[DecodeWindow]) -> tuple[Integers, Floats, Floats]:
    found: dict[int, list[float]] = {}
    for window in windows:
        found.setdefault(round(window.mean_position), []).append(window.step_ms)
    x = sorted(found)
    y = [np.mean(found[each]) for each in x]
    error = [half_width(found[each]) if len(found[each]) > 1 else 0.0 for each in x]
    return np.asarray(x, np.int64), np.asarray(y, np.float64), np.asarray(error, np.float64)


def fitted_line(fit: LineFit | None) -> LatencyLine | None:
    """Return the fitted line; None if W or B is only a bound: a line through a bound would look like a fit."""
    if fit is None or fit.b_ms is None:
        return None
    known = [each.w_tokens_per_ms for each in fit.breaks]
    if not fit.breaks or fit.w_ci95 is not None:
        known.append(fit.w_tokens_per_ms)
    return LatencyLine(known[-1], fit.b_ms, fit.breaks) if None not in known else None


def prompt_speed(runs: Sequence[Run], names: Sequence[str]) -> LineChart:
    curves = []
    for name, run in zip(names, runs, strict=True):
        found = [each for each in run.prefills if not each.n_depth]
        x, y = np.array([each.n_prompt for each in found], np.int64), np.array([each.tok_s for each in found])
        note = (
            f"{measured_text(found[-1], 'tok_s')} tok/s at {format_count(found[-1].n_prompt)}" if found else ""
        )
        curves.append(Curve(name, x, y, np.zeros(len(y)), note=note))
    return LineChart("prefill", "prompt speed", "tok/s", "prompt", "tokens", tuple(curves), y_low=0.0)
