"""What changed in the machine while a run went on, from the readings beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ggbench.machine.records import MachineReading
from ggbench.units import format_bytes, format_duration, format_number

_LEAST_SUSPENDED_NS = 1_000_000_000


def machine_changes(readings: Sequence[MachineReading]) -> tuple[str, ...]:
    """Return each change in one line: a suspend, CPUs and memory that came or went, a limit that was set or raised.

    `readings` are in chronological order; what one of them does not say is not compared.
    """
    return tuple(filter(None, (_suspended(readings), *(_changed(readings, *each) for each in _PARTS))))


def _suspended(readings: Sequence[MachineReading]) -> str:
    known = [each.suspended_ns for each in readings if each.suspended_ns is not None]
    slept_ns = sum(after - before for before, after in pairwise(known) if after - before >= _LEAST_SUSPENDED_NS)
    return f"the machine was suspended for {format_duration(slept_ns / 1e9)}" if slept_ns else ""


def _changed(
    readings: Sequence[MachineReading], what: str, part: Callable[[MachineReading], object], text: Callable[..., str]
) -> str:
    values = [part(each) for each in readings if each.n_cpus is not None]
    for before, after in pairwise(values):
        if before != after:
            return f"{what} went from {text(before)} to {text(after)}"
    return ""


def _quota(cpus: float | None) -> str:
    return "none" if cpus is None else format_number(cpus)


_PARTS: tuple[tuple[str, Callable[[MachineReading], object], Callable[..., str]], ...] = (
    ("the CPUs that it may use", lambda reading: reading.n_cpus, str),
    ("the container's limit of CPUs", lambda reading: reading.quota_cpus, _quota),
    ("the memory that it may use", lambda reading: reading.total_bytes, format_bytes),
)
