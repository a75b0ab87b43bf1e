"""A measured latency curve as every plot takes it: samples, fitted line and limit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.records.speed import DecodeLimit, LineFit
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import b_text, w_text
from ggbench.report.names import unambiguous_names
from ggbench.store.runs import Samples
from ggbench.units import with_unit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Line:
    """latency(n) = (n - 1) / W + B."""

    w_tokens_per_ms: float | None
    """None for a flat line."""
    b_ms: float

    def ms(self, position: npt.ArrayLike) -> Floats:
        """Return the latency at these positions."""
        ramp = np.asarray(position, np.float64) - 1
        return self.b_ms + (ramp / self.w_tokens_per_ms if self.w_tokens_per_ms else 0.0 * ramp)


@dataclass(frozen=True, slots=True)
class LatencySeries:
    """The samples of one run, with the lines that belong to them."""

    name: str
    """For the legend; may hold any text."""
    positions: Integers
    """1-based; those of repetitions follow each other."""
    latency_ms: Floats
    """As long as `positions`."""
    fit: Line | None = None
    limit: Line | None = None
    """The limit of the machine's memory bandwidth."""
    fit_text: str = ""
    """W and B with their intervals, for the legend; set also where only bounds are known and there is no line."""
    dimmed: bool = False
    """Drawn behind the others and paler."""


def fitted_line(fit: LineFit | None) -> Line | None:
    """Return the fitted line; None where W or B is only a bound: a line through a bound would look like a fit."""
    if fit is None or fit.w_tokens_per_ms is None or fit.b_ms is None:
        return None
    return Line(fit.w_tokens_per_ms, fit.b_ms)


def measured_series(
    name: str, positions: Integers, step_ns: Integers, fit: LineFit | None, limit: DecodeLimit | None
) -> LatencySeries:
    """Return the series of a recorded run."""
    return LatencySeries(
        name=name,
        positions=positions,
        latency_ms=step_ns / 1e6,
        fit=fitted_line(fit),
        limit=limit_line(limit),
        fit_text="" if fit is None else f"W {with_unit(w_text(fit), 'tokens/ms')}, B {with_unit(b_text(fit), 'ms')}",
    )


def named_series(runs: Sequence[tuple[QuantSummary, Samples]]) -> tuple[LatencySeries, ...]:
    """Return the series of several runs, by the shortest names that distinguish them; one may have no samples."""
    names = unambiguous_names([summary for summary, _ in runs])
    return tuple(
        measured_series(name, samples.position, samples.step_ns, summary.fit, summary.limit)
        for name, (summary, samples) in zip(names, runs, strict=True)
    )


def limit_line(limit: DecodeLimit | None) -> Line | None:
    """Return the line of a limit on decode latency, None where there is no limit."""
    return None if limit is None else Line(limit.w_tokens_per_ms, limit.b_ms)


def legend_lines(parts: Sequence[str], width: int, gap: str) -> list[str]:
    """Return the parts of a legend in lines of `width` characters; only a wider part is divided, at blanks."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(gap) + len(part) <= width:
            lines[-1] += f"{gap}{part}"
        else:
            lines += textwrap.wrap(part, width) or [""]
    return lines
