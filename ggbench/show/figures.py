"""What every plot draws: curves over one pair of axes, each with its band and the lines that belong to it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.runs.run import Result, Settings
from ggbench.show.text import b_text, w_text
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, LineFit
from ggbench.units import format_count, with_unit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class LatencyLine(msgspec.Struct, frozen=True):
    """latency(n) = (n - 1) / W + B."""

    w_tokens_per_ms: float | None
    """None for a flat line."""
    b_ms: float

    def ms(self, position: npt.ArrayLike) -> Floats:
        """Return the latency at these positions."""
        ramp = np.asarray(position, np.float64) - 1
        return self.b_ms + (ramp / self.w_tokens_per_ms if self.w_tokens_per_ms else 0.0 * ramp)


class Curve(msgspec.Struct, frozen=True):
    """The values of one run, with the lines that belong to them."""

    name: str
    """For the legend; may hold any text."""
    x: Integers
    """Positions from 1 on, of which those of repetitions follow each other, or numbers of chunks."""
    y: Floats
    """As long as `x`."""
    error: Floats | None = None
    """Standard error of each value, drawn as a band around it, zero where it is not known; None for single steps, of
    which some are far slower than the rest.
    """
    fit: LatencyLine | None = None
    limit: LatencyLine | None = None
    """The limit of the machine's memory bandwidth."""
    note: str = ""
    """What the legend adds to the name: W and B with their intervals, also where only bounds are known and there is no
    line; the last value with its error."""
    dimmed: bool = False
    """Drawn behind the others and paler, without its band."""
    run: int | None = None
    """Index of its run among those of the figure; None where each run has one curve, in their order."""
    is_formula: bool = False
    """Whether its letter is written along it, as it was computed and crosses others."""


class Mark(msgspec.Struct, frozen=True):
    """A point with a character or two."""

    x: float
    y: float
    text: str
    index: int | None = None
    """Of the curve whose colour it has; None for the colour of text."""
    label: str = ""
    """For the legend. Printable."""


class Figure(msgspec.Struct, frozen=True):
    """Curves over one pair of axes."""

    key: str
    """Unique among the figures of all kinds of runs; part of a file's name."""
    y_name: str
    y_unit: str
    """Empty for a number without one."""
    x_name: str
    x_unit: str
    """Empty where the name says it."""
    curves: tuple[Curve, ...]
    x_end: int | None = None
    """The last x that there will be; None for that of the last value."""
    least_range: float = 1e-3
    """Differences below it are not worth drawing."""
    y_low: float | None = None
    """Where the y axis begins at the latest; None for the least value."""
    marks: tuple[Mark, ...] = ()
    caption: str = ""
    """Above the legend: what the marks mean. Printable."""
    is_log: bool = False
    """Whether both axes are logarithmic."""
    ends: tuple[tuple[float, float], tuple[float, float]] | None = None
    """Of the x and of the y axis; None for those of the values."""

    @property
    def is_empty(self) -> bool:
        """Whether no curve has a value."""
        return not any(len(one.x) for one in self.curves)

    @property
    def y_title(self) -> str:
        """`latency of one token [ms]`."""
        return f"{self.y_name} [{self.y_unit}]" if self.y_unit else self.y_name

    @property
    def x_title(self) -> str:
        """`position [tokens]`."""
        return f"{self.x_name} [{self.x_unit}]" if self.x_unit else self.x_name


class PlottedRun(msgspec.Struct, frozen=True):
    """A run, live or stored, as the figures of its kind take it."""

    name: str
    """That distinguishes it among those of the plot."""
    positions: Integers
    """1-based, of every timed step."""
    step_ns: Integers
    fit: LineFit | None = None
    limit: DecodeLimit | None = None
    observations: Sequence[object] = ()
    """The records that were observed, in their order."""
    series: Sequence[str] = ()
    """Name of the series of each step; empty of a run that goes on."""
    settings: Settings | None = None
    """What was to be measured; None where it is unknown."""
    result: Result | None = None
    """None of a run that goes on."""
    doing: object = None
    """What a run that goes on works at, as it reports it."""
    end: int | None = None
    """The last x there will be; None where it is unknown, and of a run that ended."""
    dimmed: bool = False


def latency_figure(runs: Sequence[PlottedRun], n_seqs: int = 1) -> Figure:
    """Return latency against position of every timed step of a batch size; a run without any has an empty curve.

    Of an imported run, which has no steps, the means of the windows that another tool timed together.
    """
    curves = tuple(_latency_curve(run, n_seqs) for run in runs)
    end = max((run.end for run in runs if run.end is not None and len(run.positions)), default=None)
    key, name = ("latency", "latency of one token")
    if n_seqs > 1:
        key, name = f"latency-b{n_seqs}", f"latency of one step, batch {format_count(n_seqs)}"
    return Figure(key, name, "ms", "position", "tokens", curves, end)


def batch_sizes(run: PlottedRun) -> tuple[int, ...]:
    """Return the batch sizes of the steps whose series are known, in ascending order."""
    return tuple(sorted({_batch_size(name) for name in set(run.series)}))


def _batch_size(series: str) -> int:
    """The number of sequences in the name of a series, as `decode/p25/b1/r0`."""
    found = re.search(r"/b(\d{1,9})(?:/|$)", series)
    return int(found[1]) if found else 1


def _latency_curve(run: PlottedRun, n_seqs: int) -> Curve:
    x, y, error = run.positions, run.step_ns / 1e6, None
    if run.series:
        sizes = {name: _batch_size(name) for name in set(run.series)}
        kept = np.asarray([sizes[name] == n_seqs for name in run.series], bool)
        x, y = x[kept], y[kept]
    windows = [each for each in run.observations if isinstance(each, DecodeWindow)]
    if not len(x) and windows:
        x, y, error = _window_means(windows)
    return Curve(
        name=run.name,
        x=x,
        y=y,
        error=error,
        fit=fitted_line(run.fit),
        limit=limit_line(run.limit),
        note="" if run.fit is None else _fit_text(run.fit),
        dimmed=run.dimmed,
    )


def _window_means(windows: Sequence[DecodeWindow]) -> tuple[Integers, Floats, Floats]:
    """Return the middle of each window, its mean latency in ms, and the standard error of that over repetitions."""
    found: dict[int, list[float]] = {}
    for window in windows:
        found.setdefault(round(window.mean_position), []).append(window.step_ms)
    x = sorted(found)
    y = [float(np.mean(found[each])) for each in x]
    error = [
        float(np.std(found[each], ddof=1)) / len(found[each]) ** 0.5 if len(found[each]) > 1 else 0.0 for each in x
    ]
    return np.asarray(x, np.int64), np.asarray(y, np.float64), np.asarray(error, np.float64)


def fitted_line(fit: LineFit | None) -> LatencyLine | None:
    """Return the fitted line; None where W or B is only a bound: a line through a bound would look like a fit."""
    if fit is None or fit.w_tokens_per_ms is None or fit.b_ms is None:
        return None
    return LatencyLine(fit.w_tokens_per_ms, fit.b_ms)


def limit_line(limit: DecodeLimit | None) -> LatencyLine | None:
    """Return the line of a limit on decode latency, None where there is no limit."""
    return None if limit is None else LatencyLine(limit.w_tokens_per_ms, limit.b_ms)


def legend_lines(parts: Sequence[str], width: int, gap: str) -> list[str]:
    """Return the parts of a legend in lines of `width` characters; only a wider part is divided, at blanks."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(gap) + len(part) <= width:
            lines[-1] += f"{gap}{part}"
        else:
            lines += textwrap.wrap(part, width) or [""]
    return lines


def _fit_text(fit: LineFit) -> str:
    return f"W {with_unit(w_text(fit), 'tokens/ms')}, B {with_unit(b_text(fit), 'ms')}"
