"""Step timings as arrays: finite, in ms, split by repetition, and medians over groups.

llama.cpp reads the KV cache in steps of 256 cells, so samples are grouped by position, never across repetitions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggbench.units import KV_CELLS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Repetition(NamedTuple):
    """The finite samples of one decode, in the order they were taken."""

    position: Floats
    step_ms: Floats


def split_repetitions(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> list[Repetition]:
    """Split concatenated samples into repetitions: a new one begins wherever the position does not increase.

    Non-finite samples are dropped. Raises ValueError where the arrays are not one-dimensional and equally long.
    """
    positions = np.asarray(position, dtype=np.float64)
    steps_ms = np.asarray(step_ns, dtype=np.float64) * 1e-6
    if positions.ndim != 1 or positions.shape != steps_ms.shape:
        raise ValueError(
            f"positions {positions.shape} and steps {steps_ms.shape} have to be one-dimensional and equally long"
        )
    finite = np.isfinite(positions) & np.isfinite(steps_ms)
    positions, steps_ms = positions[finite], steps_ms[finite]
    if not len(positions):
        return []
    begins = np.flatnonzero(np.diff(positions) <= 0) + 1
    return [Repetition(*pair) for pair in zip(np.split(positions, begins), np.split(steps_ms, begins), strict=True)]


def stair(position: Floats) -> Integers:
    """Return the index of the 256-cell step that contains a position: 0 for 1..256, 1 for 257..512."""
    return np.ceil(position / KV_CELLS).astype(np.int64) - 1


class Groups(NamedTuple):
    """Groups of equal labels, in ascending order of label."""

    labels: Integers
    counts: Integers
    medians: Floats


def group_medians(labels: Integers, values: Floats) -> Groups:
    """Return the median of the values of each label."""
    unique, counts = np.unique(labels, return_counts=True)
    ordered = values[np.lexsort((values, labels))]
    begins = np.cumsum(counts) - counts
    medians = (ordered[begins + (counts - 1) // 2] + ordered[begins + counts // 2]) / 2
    return Groups(unique, counts.astype(np.int64), medians)
