"""CPU and main memory as available to this process, within its affinity and the container's limits.

Cores are counted from the kernel's topology files for the CPUs in the affinity: counting the whole machine would start
more threads than a container or `taskset` can run at once. Of cgroups, version 1 or 2, any ancestor of the process's
group may set a limit, and inside a container the path in /proc/self/cgroup often names a group that is not visible; so
every level up to the root is read. A missing file is a valid result.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from ggbench.record import Record

PROC = Path("/proc")
SYSFS = Path("/sys")


def read_text(file: Path) -> str | None:
    """Return the file's text, stripped; None if it is missing or unreadable."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(file: Path) -> int | None:
    """Return the integer in the file; None if there is no number (cgroup `max`)."""
    text = read_text(file)
    return int(text) if text is not None and text.isdecimal() else None


_OOM_KILLS = re.compile(r"^oom_kill\s+(\d+)$", re.MULTILINE)


def cpu_quota() -> float | None:
    """Return the CPU quota in CPUs, e.g. 1.5; None without a limit."""
    quotas = []
    for group in _groups("cpu"):
        words = (read_text(group / "cpu.max") or "").split()
        if len(words) != 2:
            words = [read_text(group / f"cpu.cfs_{name}_us") or "max" for name in ("quota", "period")]
        quota, period = (int(word) if word.isdigit() else 0 for word in words)
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limits() -> list[tuple[int, int]]:
    """Return each limit, and what is used of it without reclaimable file cache."""
    limits = []
    for group in _groups("memory"):
        limit = read_number(group / "memory.max") or read_number(group / "memory.limit_in_bytes")
        used = read_number(group / "memory.current") or read_number(group / "memory.usage_in_bytes") or 0
        if limit is not None:
            limits.append((limit, max(0, used - _reclaimable(group / "memory.stat"))))
    return limits


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group and its ancestors, in the unified and the controller's hierarchy."""
    mount = SYSFS / "fs/cgroup"
    for line in (read_text(PROC / "self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        _, controllers, path = fields
        if controllers == "":
            root = mount / "unified" if (mount / "unified").is_dir() else mount
        elif controller in controllers.split(","):
            root = mount / controller
        else:
            continue
        inner = Path(path.lstrip("/"))
        levels = (inner, *inner.parents) if ".." not in inner.parts else (Path(),)
        yield from (root / level for level in levels)


def has_oom_kills_since(count: int | None) -> bool:
    """Return whether `count_oom_kills` has grown from an earlier count; False if either is unknown."""
    now = count_oom_kills()
    return now is not None and count is not None and now > count


def count_oom_kills() -> int | None:
    """Return the OOM kills in this process's memory cgroup and its ancestors, or without one of the whole machine.

    Compare two counts: an increase means that a process here was killed meanwhile. None if nothing is counted.
    Source: `memory.events` and `memory.oom_control` of the kernel's cgroup documentation, `/proc/vmstat`.
    """
    counts = [
        int(match[1])
        for group in _groups("memory")
        for name in ("memory.events", "memory.oom_control")
        if (match := _OOM_KILLS.search(read_text(group / name) or ""))
    ]
    if counts:
        return sum(counts)
    match = _OOM_KILLS.search(read_text(PROC / "vmstat") or "")
    return int(match[1]) if match else None


def _reclaimable(stat: Path) -> int:
    """Return the bytes of file cache; version 1 counts the group with its children under `total_`."""
    counts = {}
    for line in (read_text(stat) or "").splitlines():
        key, _, value = line.partition(" ")
        if value.isdigit():
            counts[key] = int(value)
    return sum(counts.get(f"total_{key}", counts.get(key, 0)) for key in ("inactive_file", "active_file"))


class Ram(Record):
    """Main memory within the container's limits, bytes."""

    total_bytes: int
    available_bytes: int
    """Memory that can be allocated without swapping, counting file cache as free."""


def describe_ram() -> Ram:
    """Return the memory of the machine, or of the cgroup if that is smaller."""
    import psutil

    memory = psutil.virtual_memory()
    limits = memory_limits()
    return Ram(
        total_bytes=min([memory.total, *(limit for limit, _ in limits)]),
        available_bytes=min([memory.available, *(max(0, limit - used) for limit, used in limits)]),
    )


def peak_rss_bytes(pid: int) -> int | None:
    """Return the peak resident memory of a running process, mapped files included; None if it has ended."""
    match = re.search(r"^VmHWM:\s*(\d+) kB$", read_text(PROC / str(pid) / "status") or "", re.MULTILINE)
    return int(match[1]) << 10 if match else None


def disk_waits(pid: int) -> tuple[int | None, int | None]:
    """Return how often a running process has waited for a page from the disk, and the bytes read for it.

    None for what is unknown, as for a process that has ended. A fault may read megabytes ahead, so neither implies the
    other. Source: Linux's proc(5), `majflt` in stat, the tenth value after the name, which may contain blanks; and
    `read_bytes` in io.
    """
    values = (read_text(PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    match = re.search(r"^read_bytes: (\d+)$", read_text(PROC / str(pid) / "io") or "", re.MULTILINE)
    return int(values[9]) if len(values) > 9 else None, int(match[1]) if match else None


def cpu_seconds_of(pid: int) -> float | None:
    """Return the CPU time of a running process; None if it has ended or may not be read."""
    import psutil

    try:
        return sum(psutil.Process(pid).cpu_times()[:2])
    except (psutil.Error, OSError):
        return None


class Cpu(Record):
    """The CPU resources available to this process."""

    name: str
    n_cores: int
    """Physical cores within the affinity and the cgroup quota."""
    n_performance_cores: int
    """`n_cores` without efficiency cores."""
    last_level_cache_bytes: int | None
    """Total of the last-level caches of the available cores; None if the kernel does not report it."""


def affinity() -> Collection[int]:
    """Return the logical CPUs that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


@functools.cache
def describe_cpu() -> Cpu:
    cpus, most = sorted(affinity()), logical_cpus()
    n_cores = _count_cores(cpus)
    # Intel's hybrid chips expose their performance cores as a separate device.
    performance = _parse_cpu_list(read_text(SYSFS / "devices/cpu_core/cpus")) & set(cpus)
    n_performance = _count_cores(performance) if performance else n_cores
    return Cpu(
        name=_cpu_name(),
        n_cores=min(most, n_cores),
        n_performance_cores=min(most, n_performance),
        last_level_cache_bytes=_last_level_cache_bytes(cpus),
    )


def default_threads() -> int:
    """Return the default number of decode threads of llama.cpp's tools: one per available performance core.

    A second thread on a core shares its vector units, and a slow core delays all others in every tensor.
    """
    return describe_cpu().n_performance_cores


def logical_cpus() -> int:
    """Return how many threads can run at once, within affinity and cgroup quota; each hardware thread counts."""
    n_cpus = len(affinity())
    quota = cpu_quota()
    return n_cpus if quota is None else max(1, min(n_cpus, int(quota)))


def _count_cores(cpus: Collection[int]) -> int:
    """Count distinct sets of sibling threads; without topology files, use psutil's count for the whole machine."""
    siblings = {read_text(SYSFS / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus}
    if None not in siblings:
        return max(1, len(siblings))
    import psutil

    return max(1, min(len(cpus), psutil.cpu_count(logical=False) or len(cpus)))


def _cpu_name() -> str:
    """Return the kernel's CPU name, one printable line; Arm boards without one report the board's."""
    fields: dict[str, str] = {}
    for line in (read_text(PROC / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = next((fields[key] for key in ("model name", "Model", "Hardware", "cpu") if fields.get(key)), "")
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join("".join(char if char.isprintable() else " " for char in name).split())


def _last_level_cache_bytes(cpus: Collection[int]) -> int | None:
    """Sum the distinct caches of the highest level; each chiplet or socket has its own."""
    caches: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for index in sorted((SYSFS / f"devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            level, size, shared = (read_text(index / name) for name in ("level", "size", "shared_cpu_list"))
            match = re.fullmatch(r"(\d+)([KM]?)", size or "")
            if level and level.isdigit() and shared and match:
                caches.setdefault(int(level), {})[shared] = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]
    return sum(caches[max(caches)].values()) if caches else None


def _parse_cpu_list(text: str | None) -> set[int]:
    """Parse `0-3,8` into a set."""
    cpus: set[int] = set()
    for match in re.finditer(r"(\d+)(?:-(\d+))?", text or ""):
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus
