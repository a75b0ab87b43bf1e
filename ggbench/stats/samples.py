"""Step timings as arrays, the means of their blocks, and the interval of timings one after another.

llama.cpp reads the KV cache in steps of 256 cells, so latency grows on a ramp or in stairs; the mean of a whole stair
lies on the same line either way. The line is broken where the header says that some layers read no more. Means of long
blocks are nearly independent however steps are correlated. Source: the method of batch means, B. Schmeiser, "Batch size
effects in the analysis of simulation output", Operations Research 30 (1982) 556.

The memory layout of file and KV cache, the clocks, and other activity change between loads of a model, so the interval
of one run, however long, is too narrow to compare it with another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggbench.stats.intervals import half_width
from ggbench.units import KV_CELLS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Samples(NamedTuple):
    """The finite samples of one or more decodes, in order; a new decode starts where the position does not increase."""

    position: Floats
    step_ms: Floats

    @property
    def of_each(self) -> list[Floats]:
        """Latencies of each decode."""
        return np.split(self.step_ms, np.flatnonzero(np.diff(self.position) <= 0) + 1)


def finite_samples(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> Samples:
    """Return the samples that are finite. Raises ValueError if the arrays are not one-dimensional and equally long."""
    positions = np.asarray(position, dtype=np.float64)
    steps_ms = np.asarray(step_ns, dtype=np.float64) * 1e-6
    if positions.ndim != 1 or positions.shape != steps_ms.shape:
        raise ValueError(
            f"positions {positions.shape} and steps {steps_ms.shape} must be one-dimensional and equally long"
        )
    finite = np.isfinite(positions) & np.isfinite(steps_ms)
    return Samples(positions[finite], steps_ms[finite])


FEWEST_STAIRS = 8
"""Fewest whole stairs of 256 cells for blocks: a shorter run may lie within one state of the machine, whose states of
some hundred tokens then do not show."""
_MIN_BLOCKS, _STAIRS_PER_BLOCK = 4, 4


Pieces = tuple[float, ...]
"""Ends of neighbouring pieces of a run, in each of which latency is a line. Positions before the first and beyond the
last end are left out."""
WHOLE: Pieces = (0, np.inf)


def pieces_of(breaks: Sequence[int], position: Floats) -> Pieces:
    """Return what of a run at these positions lies between breaks, in pieces of two stairs or more."""
    earliest, latest = position.min() + 2 * KV_CELLS, position.max() - 2 * KV_CELLS
    after = max(n for n in (0, *breaks) if n < earliest)
    until = min(n for n in (*breaks, np.inf) if n > max(latest, after))
    return (after, *(n for n in breaks if earliest <= n <= latest), until)


def in_pieces(position: Floats, pieces: Pieces) -> Floats:
    """Return how far each position is into each piece, on a further axis; the first begins at 1."""
    starts = (1, *pieces[1:-1])
    return np.clip(position[..., None], starts, pieces[1:]) - starts


class Means(NamedTuple):
    """Means over stairs, or over blocks of them, in order of position."""

    parts: Floats
    """Mean of how far the positions are into each piece; a row for each mean."""
    step_ms: Floats

    @property
    def ramp(self) -> Floats:
        """Mean of position - 1."""
        found: Floats = self.parts.sum(axis=1)
        return found


def stair_means(samples: Samples, pieces: Pieces) -> Means:
    """Return the means over the whole stairs of these pieces; the first and the last stair count as incomplete."""
    kept = (samples.position > pieces[0]) & (samples.position <= pieces[-1])
    position, step_ms = samples.position[kept], samples.step_ms[kept]
    stairs = ((position - 1) // KV_CELLS).astype(np.int64)
    counts = np.bincount(stairs)
    whole = np.flatnonzero(counts)[1:-1]

    def means(values: Floats) -> Floats:
        found: Floats = np.bincount(stairs, values)[whole] / counts[whole]
        return found

    parts = [means(values) for values in in_pieces(position, pieces).T]
    return Means(np.column_stack(parts), means(step_ms))


def numbers_by_piece(means: Means, pieces: Pieces) -> list[Integers]:
    """Return the numbers of the means in each piece that has some."""
    of_piece = np.searchsorted(pieces[1:-1], means.ramp)
    return np.split(np.arange(len(of_piece)), np.flatnonzero(np.diff(of_piece)) + 1)


def block_means(samples: Samples, pieces: Pieces = WHOLE) -> Means | None:
    """Return the means over blocks of whole stairs, none of which extends over a break; None below 8 whole stairs."""
    found = stair_means(samples, pieces)
    if len(found.step_ms) < FEWEST_STAIRS:
        return None
    groups: list[Integers] = []
    for stairs in numbers_by_piece(found, pieces):
        n_blocks = max(1, _MIN_BLOCKS // (len(pieces) - 1), len(stairs) // _STAIRS_PER_BLOCK)
        groups += np.array_split(stairs, min(len(stairs), n_blocks))
    return Means(*(np.array([values[group].mean(axis=0) for group in groups]) for values in found))


FEWEST_IN_A_ROW = 8
_IN_A_ROW = 3.2
"""The factor that widens the interval of timings one after another, which may all lie within one state of the machine:
with a correlation of 0.8 from one to the next, sqrt((1 + 0.8) / (1 - 0.8)) = 3, and a little more as a few timings
show less of the spread. See scripts/coverage."""


def half_width_in_a_row(values: Sequence[float]) -> float | None:
    """Return the half-width of the mean of timings one after another; None for fewer than 8."""
    return _IN_A_ROW * half_width(values) if len(values) >= FEWEST_IN_A_ROW else None


def rates(n_each: float, mean: float, half: float) -> tuple[float, float | None]:
    """Return the interval of `n_each` / time for a time `mean` ± `half`; its upper end is None if the time may be 0."""
    return n_each / (mean + half), n_each / (mean - half) if mean > half else None
