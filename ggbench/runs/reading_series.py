"""Readings of the machine during a run as an array for each quantity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ggbench.machine.records import MachineReading

if TYPE_CHECKING:
    from numpy.typing import NDArray


def column(records: Iterable[object], name: str) -> NDArray[Any]:
    """Return all values of a field of numbers, NaN for None; integers are exact up to 2^53, times to 256 ns."""
    import numpy as np

    return np.array([getattr(each, name) for each in records], dtype=float)


def gpu_indices(readings: Sequence[MachineReading]) -> list[int]:
    """Return NVML's indices of all GPUs that were read, ascending."""
    return sorted({gpu.index for each in readings for gpu in each.gpus})
