"""Summaries of the readings taken during a run: use of its GPUs, and changes in the machine.

An idle GPU lowers its clocks, so only readings within the timed spans count.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, TypeVar

from ggbench.machine.readings import processes_by_pid
from ggbench.machine.records import GpuProcess, GpuReading, GpuUse, MachineReading, Throttling
from ggbench.runs.reading_series import column
from ggbench.units import format_bytes, format_count, format_duration, format_number

_T = TypeVar("_T")

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
    last reading; if NVML's process ids differ from ours, as in a container, those also in the first reading, before the
    worker started.
    """
    wanted = frozenset(indices)
    every = list(filter(itemgetter(1), ((each.at_ns, _chosen(each, wanted)) for each in readings)))
    if not every:
        return None
    timed = [[(at, gpus) for at, gpus in every if begin <= at <= end] for begin, end in spans]
    moments = [gpus for _, gpus in chain.from_iterable(timed)]
    seen = list(chain.from_iterable(moments))
    clocks = _known(gpu.sm_clock_mhz for gpu in seen)
    powers = _known(_total([gpu.power_w for gpu in gpus]) for gpus in moments)
    held = [gpus for _, gpus in every]
    return GpuUse(
        indices=tuple(sorted(wanted)),
        n_readings=len(moments),
        temperature_max_c=max(_known(gpu.temperature_c for gpu in seen), default=None),
        sm_clock_min_mhz=min(clocks, default=None),
        sm_clock_median_mhz=_of_known(statistics.median, clocks),
        power_mean_w=_of_known(statistics.fmean, powers),
        energy_per_token_mj=_energy_per_token_mj(timed, spans, n_tokens),
        throttle=_throttle(moments),
        worker_bytes=_worker_bytes(held, worker_pid),
        other_processes=_others(held, worker_pid),
    )


def _of_known(reduce: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return reduce(values) if values else None


def throttled(use: GpuUse | None) -> str:
    """Return why the GPUs' clocks were reduced during the run, in one line; empty if they were not."""
    throttling = [each for each in (use.throttle if use else None) or () if each.reason not in _STEADY_LIMITS]
    if use is None or not throttling:
        return ""
    reasons = ", ".join(
        f"{each.reason} in {each.n_readings} of {use.n_readings} readings" for each in throttling
    )
    return f"the GPU lowered its clocks: {reasons}"


def _chosen(reading: MachineReading, wanted: frozenset[int]) -> tuple[GpuReading, ...]:
    """Return all the wanted GPUs, or none if any is missing."""
    gpus = tuple(gpu for gpu in reading.gpus if gpu.index in wanted)
    return gpus if len(gpus) == len(wanted) else ()


def _known(values: Iterable[_T | None]) -> list[_T]:
    return [value for value in values if value is not None]


def _worker_bytes(moments: Sequence[tuple[GpuReading, ...]], pid: int | None) -> int | None:
    """Return the most memory of these GPUs that a process ever held."""
    if pid is None:
        return None
    held = _known((processes_by_pid(gpus) or {}).get(pid) for gpus in moments)
    return max(_known(each.used_bytes for each in held), default=None)


def _total(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) if len(known) == len(values) else None


def _energy_per_token_mj(
    timed: Sequence[Sequence[tuple[int, tuple[GpuReading, ...]]]], spans: Sequence[Span], n_tokens: int
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
    reasons: Counter[str] = Counter()
    is_known = False
    for gpus in moments:
        known = [gpu.throttle for gpu in gpus if gpu.throttle is not None]
        is_known = is_known or bool(known)
        reasons.update({reason for throttle in known for reason in throttle})
    return tuple(Throttling(*each) for each in reasons.most_common()) if is_known else None


def _others(moments: Sequence[tuple[GpuReading, ...]], worker_pid: int | None) -> tuple[GpuProcess, ...] | None:
    last = processes_by_pid(moments[-1])
    if last is None:
        return None
    if any(worker_pid in (processes_by_pid(gpus) or {}) for gpus in moments):
        return tuple(process for pid, process in last.items() if pid != worker_pid)
    first = processes_by_pid(moments[0]) or {}
    return tuple(process for pid, process in last.items() if pid in first)


_LEAST_SUSPENDED_NS = 1_000_000_000


_LEAST_SPILL_BYTES = 64 << 20
"""Less may come from other programs at any time."""
_LEAST_FAULTS_PER_S = 20
"""Each takes 0.1 ms on an SSD and 10 ms on a disk, so these take 0.2 % of the time, or a fifth."""
_FULL, _LEAST_SHARED_BYTES = 0.9, 256 << 20
"""Share of a GPU's memory in use from which more of it may be elsewhere; less of that may be another program's."""
_PARTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("the CPUs available", "n_cpus", str),
    ("the container's CPU limit", "quota_cpus", lambda cpus: "none" if cpus is None else format_number(cpus)),
    ("the memory available", "total_bytes", format_bytes),
)


def machine_changes(readings: Sequence[MachineReading], spans: Sequence[Span] = ()) -> tuple[str, ...]:
    """Return each change between readings in one line: a suspend; memory that spilled; CPUs, limits or memory added or
    removed.

    With timed `spans`, what the engine itself read then is named.
    """
    import numpy as np

    found, own = [], _read_while_timed(readings, spans)
    gaps_ns = np.diff(column(readings, "suspended_ns"))
    if slept_ns := gaps_ns[gaps_ns >= _LEAST_SUSPENDED_NS].sum():
        found.append(f"the machine was suspended for {format_duration(float(slept_ns) / 1e9)}")
    rises = np.diff(column(readings, "swapped_bytes"))
    if (swapped := rises[rises > 0].sum()) >= _LEAST_SPILL_BYTES:
        written = format_bytes(float(swapped))
        found.append(f"{written} were written to swap or read from it (a smaller --n-ctx or quant avoids it)")
    found += [own] if own else []
    for what, name, text in _PARTS:
        for before, after in pairwise(getattr(each, name) for each in readings):
            if before != after:
                found.append(f"{what} changed from {text(before)} to {text(after)}")
                break
    return tuple(found)


def _read_while_timed(readings: Sequence[MachineReading], spans: Sequence[Span]) -> str | None:
    """Return in one line what the engine read from the disk while it was timed; empty if hardly anything, None if
    unknown.

    Between spans the engine may load a model, which reads its file, or restart, which resets its counters.
    """
    import numpy as np

    at_ns, n_faults, n_bytes = (
        column(readings, name) for name in ("at_ns", "worker_faults", "worker_read_bytes")
    )
    known = ~np.isnan(n_faults + n_bytes)
    columns = (at_ns, n_faults, n_bytes, column(readings, "swapped_bytes"))
    counted = np.column_stack([each[known].astype(np.int64) for each in columns])
    at_ns = at_ns[known]
    parts = [slice(np.searchsorted(at_ns, begin), np.searchsorted(at_ns, end, "right")) for begin, end in spans]
    rises = np.concatenate([counted[:0], *(np.diff(counted[part], axis=0) for part in parts)])
    rises = rises[(rises >= 0).all(axis=1)]
    if not len(rises):
        return None
    elapsed_ns, faults, read_bytes, swapped_bytes = rises.sum(axis=0).tolist()
    if read_bytes < _LEAST_SPILL_BYTES and faults < _LEAST_FAULTS_PER_S * elapsed_ns / 1e9:
        return ""
    is_swapped = swapped_bytes >= _LEAST_SPILL_BYTES
    cause = "memory was swapped out" if is_swapped else "its mapped file was evicted from memory"
    waited = f"the engine waited {format_count(faults)} times for {format_bytes(read_bytes)} from the disk while timed"
    return f"{waited}: {cause} (a smaller quant or --n-ctx, or ending other programs, avoids it)"


def others_share(readings: Sequence[MachineReading], spans: Sequence[Span]) -> float | None:
    """Return the share of all CPUs that other programs used, over the intervals between readings that overlap the
    timed `spans`; None if unknown, or if the intervals are too short for the kernel's clock ticks.
    """
    import numpy as np

    at_ns, share = column(readings, "at_ns"), column(readings, "others_share")[1:]
    begins, ends = (np.sort([span[side] for span in spans]) for side in (0, 1))
    begun, ended = (np.searchsorted(begins, at_ns[1:], "right"), np.searchsorted(ends, at_ns[:-1]))
    is_timed = (begun > ended) & ~np.isnan(share)
    elapsed_ns = np.diff(at_ns)[is_timed]
    return (
        float(share[is_timed] @ elapsed_ns / elapsed_ns.sum()) if elapsed_ns.sum() >= _FEWEST_TICKS_NS else None
    )


_FEWEST_TICKS_NS = 200_000_000
"""A tick is 10 ms, so that 20 of them on each CPU give a share to a few percent."""


def device_spills(
    readings: Sequence[MachineReading], indices: Sequence[int] | None, buffer_bytes: int
) -> tuple[str, ...]:
    """Return each sign that GPU buffers lie in main memory, in one line; `indices` as in `GpusInUse`.

    With unified memory CUDA allocates more than a GPU has, and amdgpu moves what does not fit to GTT. An APU uses GTT
    by design, for more than its small share of dedicated memory, so only less than that is a spill.
    """
    used = [[gpu for gpu in each.gpus if indices is None or gpu.index in indices] for each in readings]
    if not used:
        return ()
    found = [_beyond(used[-1], buffer_bytes) if indices else ""]
    for first in used[0]:
        moved_bytes = _moved_bytes([gpu for gpus in used for gpu in gpus if gpu.index == first.index])
        if moved_bytes:
            found.append(
                f"{format_bytes(moved_bytes)} moved from a full {first.name} to main memory ({_AVOIDS})"
            )
    return tuple(filter(None, found))


def _beyond(gpus: Sequence[GpuReading], buffer_bytes: int) -> str:
    total_bytes = _total([gpu.total_bytes for gpu in gpus])
    if not total_bytes or buffer_bytes <= total_bytes:
        return ""
    beyond, held = format_bytes(buffer_bytes), format_bytes(total_bytes)
    return f"buffers of {beyond} on GPUs of {held}: the driver keeps the rest in main memory ({_AVOIDS})"


_AVOIDS = "fewer layers on the GPU (-ngl), a smaller quant or --n-ctx avoids it"


def _moved_bytes(readings: Sequence[GpuReading]) -> int:
    """Return the rise of a GPU's shared memory while its own was full; 0 for less than another program may take."""
    first = readings[0]
    full = [gpu for gpu in readings if gpu.total_bytes and (gpu.used_bytes or 0) >= _FULL * gpu.total_bytes]
    rise = max((gpu.shared_bytes or 0 for gpu in full), default=0) - (first.shared_bytes or 0)
    return rise if _LEAST_SHARED_BYTES <= rise < (first.total_bytes or 0) else 0
