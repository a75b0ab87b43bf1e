"""Summaries of the readings taken during a run: use of its GPUs, and what slowed the engine.

An idle GPU lowers its clocks, so only readings within the timed spans count.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import TypeVar

from ggbench.machine.readings import processes_by_pid
from ggbench.machine.records import GpuProcess, GpuReading, GpuUse, MachineReading, Throttling
from ggbench.units import format_bytes, format_count

_T = TypeVar("_T")
_Pair = tuple[MachineReading, MachineReading]
_GpusAt = tuple[int, tuple[GpuReading, ...]]

Span = tuple[int, int]
"""Start and end of a timed span, nanoseconds since the epoch."""

_STEADY_LIMITS = frozenset({"applications_clocks_setting", "display_clocks_setting"})
"""Permanent limits set by the user: they slow every step equally."""


def summarize_gpus(
    readings: Sequence[MachineReading],
    indices: Sequence[int],
    spans: Sequence[Span],
    n_tokens: int,
    worker_pid: int | None = None,
) -> GpuUse | None:
    """Summarize the GPUs with these NVML indices over the spans; None without GPUs or readings.

    `readings` are in chronological order and may extend beyond the spans. Energy per token is the counters' increase
    between consecutive readings / the time between them, times the length of the spans / `n_tokens`; the error is at
    most a second's change at either end. None for a counter that does not increase. Other processes are those of the
    first reading, before the worker started.
    """
    wanted = frozenset(indices)
    every = list(filter(itemgetter(1), ((each.at_ns, _chosen(each, wanted)) for each in readings)))
    if not every:
        return None
    timed = [[(at, gpus) for at, gpus in every if begin <= at <= end] for begin, end in spans]
    moments = [gpus for _, gpus in chain.from_iterable(timed)]
    seen = list(chain.from_iterable(moments))
    powers = _known(_total([gpu.power_w for gpu in gpus]) for gpus in moments)
    return GpuUse(
        indices=tuple(sorted(wanted)),
        n_readings=len(moments),
        temperature_max_c=max(_known(gpu.temperature_c for gpu in seen), default=None),
        sm_clock_min_mhz=min(_known(gpu.sm_clock_mhz for gpu in seen), default=None),
        power_mean_w=statistics.fmean(powers) if powers else None,
        energy_per_token_mj=_energy_per_token_mj(timed, spans, n_tokens),
        throttle=_throttle(moments),
        worker_bytes=_worker_bytes(every, worker_pid),
        other_processes=_others(every[0][1], worker_pid),
    )


def throttled(use: GpuUse | None) -> str:
    """Return why the GPUs' clocks were reduced during the run, in one line; empty if they were not."""
    if use is None:
        return ""
    reasons = ", ".join(
        f"{each.reason} in {each.n_readings} of {use.n_readings} readings"
        for each in use.throttle or ()
        if each.reason not in _STEADY_LIMITS
    )
    return f"the GPU lowered its clocks: {reasons}" if reasons else ""


def _chosen(reading: MachineReading, wanted: frozenset[int]) -> tuple[GpuReading, ...]:
    """Return all the wanted GPUs, or none if any is missing."""
    gpus = tuple(gpu for gpu in reading.gpus if gpu.index in wanted)
    return gpus if len(gpus) == len(wanted) else ()


def _known(values: Iterable[_T | None]) -> list[_T]:
    return [value for value in values if value is not None]


def _worker_bytes(readings: Sequence[_GpusAt], pid: int | None) -> int | None:
    """Return the most memory of these GPUs that a process ever held."""
    if pid is None:
        return None
    held = _known((processes_by_pid(gpus) or {}).get(pid) for _, gpus in readings)
    return max(_known(each.used_bytes for each in held), default=None)


def _total(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) if len(known) == len(values) else None


def _energy_per_token_mj(
    timed: Sequence[Sequence[_GpusAt]], spans: Sequence[Span], n_tokens: int
) -> float | None:
    rise_mj, elapsed_ns = 0.0, 0
    for span in timed:
        for (at, gpus), (next_at, next_gpus) in pairwise(span):
            before, after = (_total([gpu.energy_mj for gpu in each]) for each in (gpus, next_gpus))
            if before is None or after is None or after < before:
                return None
            rise_mj += after - before
            elapsed_ns += next_at - at
    if not rise_mj or not elapsed_ns or not n_tokens:
        return None
    return rise_mj / elapsed_ns * sum(end - begin for begin, end in spans) / n_tokens


def _throttle(moments: Sequence[tuple[GpuReading, ...]]) -> tuple[Throttling, ...] | None:
    known = [_known(gpu.throttle for gpu in gpus) for gpus in moments]
    reasons = Counter(reason for each in known for reason in set(chain.from_iterable(each)))
    return tuple(Throttling(*each) for each in reasons.most_common()) if any(known) else None


def _others(gpus: Sequence[GpuReading], worker_pid: int | None) -> tuple[GpuProcess, ...] | None:
    found = processes_by_pid(gpus)
    return None if found is None else tuple(each for pid, each in found.items() if pid != worker_pid)


_LEAST_SPILL_BYTES = 64 << 20
"""Less may come from other programs at any time."""
_LEAST_FAULTS_PER_S = 20
"""Each takes 0.1 ms on an SSD and 10 ms on a disk, so these take 0.2 % of the time, or a fifth."""
_FULL, _LEAST_SHARED_BYTES = 0.9, 256 << 20
"""Share of a GPU's memory in use from which more of it may be elsewhere; less of that may be another program's."""


def machine_changes(readings: Sequence[MachineReading], spans: Sequence[Span]) -> tuple[str, ...]:
    """Return in one line each what slowed the engine within the timed spans: swap, and waits for the disk.

    Swap counts between readings around a span, which may be shorter than their interval. Waits count only between
    readings inside one: before it the engine may load a model, which reads its file, or restart, which resets its
    counters.
    """
    timed = [
        (one, other)
        for one, other in pairwise(readings)
        if any(begin <= one.at_ns and other.at_ns <= end for begin, end in spans)
    ]
    seconds = sum(other.at_ns - one.at_ns for one, other in timed) / 1e9
    n_faults, read_bytes = _rise(timed, "worker_faults"), _rise(timed, "worker_read_bytes")
    swapped_bytes = _rise(_around(readings, spans), "swapped_bytes")
    found = []
    if swapped_bytes >= _LEAST_SPILL_BYTES:
        found.append(f"{format_bytes(swapped_bytes)} were written to swap or read from it ({_ROOM})")
    if read_bytes >= _LEAST_SPILL_BYTES or n_faults > _LEAST_FAULTS_PER_S * seconds:
        waited = (
            f"the engine waited {format_count(n_faults)} times for {format_bytes(read_bytes)} from the disk"
        )
        found.append(f"{waited}, as memory did not hold its file ({_ROOM})")
    return tuple(found)


_ROOM = "a smaller quant or --n-ctx, or ending other programs, avoids it"


def _around(readings: Sequence[MachineReading], spans: Sequence[Span]) -> list[_Pair]:
    """Return consecutive readings between which a part of a span lies."""
    return [
        (one, other)
        for one, other in pairwise(readings)
        if any(begin < other.at_ns and one.at_ns <= end for begin, end in spans)
    ]


def _rise(pairs: Sequence[_Pair], name: str) -> int:
    """Return the sum of the rises of a counter, 0 if it is unknown."""
    values = ((getattr(one, name), getattr(other, name)) for one, other in pairs)
    return sum(max(0, after - before) for before, after in values if None not in (before, after))


def others_share(readings: Sequence[MachineReading], spans: Sequence[Span]) -> float | None:
    """Return the share of all CPUs that other programs used, over the intervals between readings that overlap the
    timed `spans`; None if unknown, or if the intervals are too short for the kernel's clock ticks.
    """
    known = [
        (other.at_ns - one.at_ns, other.others_share)
        for one, other in _around(readings, spans)
        if other.others_share is not None
    ]
    total_ns = sum(elapsed_ns for elapsed_ns, _ in known)
    if total_ns < _FEWEST_TICKS_NS:
        return None
    return sum(elapsed_ns * share for elapsed_ns, share in known) / total_ns


_FEWEST_TICKS_NS = 200_000_000
"""A tick is 10 ms, so that 20 of them on each CPU give a share to a few percent."""


def gpu_spills(readings: Sequence[MachineReading], indices: Sequence[int] | None) -> tuple[str, ...]:
    """Return each GPU of which memory moved to main memory, in one line; `indices` as in `GpusInUse`.

    amdgpu moves what does not fit to GTT. An APU uses GTT by design, for more than its small share of dedicated memory,
    so only less than that is a spill.
    """
    of_gpu: dict[int, list[GpuReading]] = {}
    for gpu in chain.from_iterable(each.gpus for each in readings):
        if indices is None or gpu.index in indices:
            of_gpu.setdefault(gpu.index, []).append(gpu)
    moved = [(gpus[0].name, _moved_bytes(gpus)) for gpus in of_gpu.values()]
    return tuple(
        f"{format_bytes(n_bytes)} moved from a full {name} to main memory (fewer layers on the GPU (-ngl), a smaller "
        "quant or --n-ctx avoids it)"
        for name, n_bytes in moved
        if n_bytes
    )


def _moved_bytes(readings: Sequence[GpuReading]) -> int:
    """Return the rise of a GPU's shared memory while its own was full; 0 for less than another program may take."""
    first = readings[0]
    full = [gpu for gpu in readings if gpu.total_bytes and (gpu.used_bytes or 0) >= _FULL * gpu.total_bytes]
    rise = max((gpu.shared_bytes or 0 for gpu in full), default=0) - (first.shared_bytes or 0)
    return rise if _LEAST_SHARED_BYTES <= rise < (first.total_bytes or 0) else 0
