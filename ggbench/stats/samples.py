"""Step timings as arrays, and the error of their estimates due to noise within a run.

llama.cpp reads the KV cache in steps of 256 cells, so samples are grouped by position, never across repetitions.

A mean or a line is biased by noise at the lowest frequencies; it is estimated as the mean energy of the residuals
along the few slowest cosines, and the error follows Student's t with as many degrees of freedom. Source: Sun (2011),
"Robust trend inference with series variance estimator and testing-optimal smoothing parameter", Journal of Econometrics
164; Müller (2007), "A theory of robust long-run variance estimation", ibid. 141.

The memory layout of file and KV cache, the clocks, and other activity change between loads of a model, so the interval
of one run, however long, is too narrow to compare it with another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggbench.stats.intervals import t_95
from ggbench.units import KV_CELLS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Repetition(NamedTuple):
    """The finite samples of one decode, in order."""

    position: Floats
    step_ms: Floats


def split_repetitions(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> list[Repetition]:
    """Split concatenated samples into repetitions: a new one starts wherever the position does not increase.

    Non-finite samples are dropped. Raises ValueError if the arrays are not one-dimensional and equally long.
    """
    positions = np.asarray(position, dtype=np.float64)
    steps_ms = np.asarray(step_ns, dtype=np.float64) * 1e-6
    if positions.ndim != 1 or positions.shape != steps_ms.shape:
        raise ValueError(
            f"positions {positions.shape} and steps {steps_ms.shape} must be one-dimensional and equally long"
        )
    finite = np.isfinite(positions) & np.isfinite(steps_ms)
    positions, steps_ms = positions[finite], steps_ms[finite]
    if not len(positions):
        return []
    begins = np.flatnonzero(np.diff(positions) <= 0) + 1
    return [
        Repetition(*pair) for pair in zip(np.split(positions, begins), np.split(steps_ms, begins), strict=True)
    ]


def stair(position: Floats) -> Integers:
    """Return the index of the 256-cell step that contains a position: 0 for 1..256, 1 for 257..512."""
    return np.ceil(position / KV_CELLS).astype(np.int64) - 1


class Groups(NamedTuple):
    """Groups of equal labels, in ascending order of label."""

    labels: Integers
    counts: Integers
    medians: Floats


def group_medians(labels: Integers, values: Floats) -> Groups:
    unique, counts = np.unique(labels, return_counts=True)
    ordered = values[np.lexsort((values, labels))]
    begins = np.cumsum(counts) - counts
    medians = (ordered[begins + (counts - 1) // 2] + ordered[begins + counts // 2]) / 2
    return Groups(unique, counts.astype(np.int64), medians)


FREEDOM = 4
"""Number of low-frequency directions for estimating the noise: few, so that the interval is valid under long
correlation; it is a third wider than with known noise."""


def slow_waves(n: int, count: int) -> Floats:
    """Return cosines of 1 to `count` half periods at half steps, orthogonal to each other and to a constant; their norm
    is n / 2.
    """
    return np.cos(np.outer(np.pi * np.arange(1, count + 1), (np.arange(n) + 0.5) / n))


def spread(estimates: Sequence[float], variances: Sequence[float]) -> float:
    """Return the noise that explains the differences of repetitions, given each estimate's variance per unit of
    noise.
    """
    if len(estimates) < 2:
        return 0.0
    weight = 1 / np.array(variances)
    centred = np.array(estimates) - np.average(estimates, weights=weight)
    return float(weight @ centred**2) / (len(estimates) - 1)


def half_width(noise: float, spread: float, n_repetitions: int, freedom: int) -> float:
    """Return Student's t times the root of the noise plus the excess spread between repetitions.

    `freedom` is that of `noise`; with an excess, the degrees of freedom are after Satterthwaite (1946), "An approximate
    distribution of estimates of variance components", Biometrics Bulletin 2.
    """
    excess = max(0.0, spread - noise)
    total = noise + excess
    if total <= 0:
        return 0.0
    if excess:
        freedom = int(total**2 / (noise**2 / freedom + excess**2 / (n_repetitions - 1)))
    return t_95(max(1, freedom)) * math.sqrt(total)
