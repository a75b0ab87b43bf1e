"""CPU and memory limits of the container, and its processes killed for memory, from cgroup files of version 1 or 2.

Any ancestor of the process's group may set a limit, and inside a container the path in /proc/self/cgroup often names a
group that is not visible; so every level up to the root is read, and missing files are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ggbench.machine.kernel_files import PROC, SYSFS, read_number, read_text

_OOM_KILLS = re.compile(r"^oom_kill\s+(\d+)$", re.MULTILINE)


class MemoryLimit(msgspec.Struct, frozen=True):
    """Memory limit of one level, bytes."""

    limit_bytes: int
    used_bytes: int
    """Current usage without reclaimable file cache."""


def cpu_quota(proc: Path = PROC, sysfs: Path = SYSFS) -> float | None:
    """Return the CPU quota in CPUs, e.g. 1.5; None without a limit."""
    quotas = []
    for group in _groups("cpu", proc, sysfs):
        words = (read_text(group / "cpu.max") or "").split()
        if len(words) != 2:
            words = [
                read_text(group / "cpu.cfs_quota_us") or "max",
                read_text(group / "cpu.cfs_period_us") or "max",
            ]
        quota, period = (int(word) if word.isdigit() else 0 for word in words)
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limits(proc: Path = PROC, sysfs: Path = SYSFS) -> tuple[MemoryLimit, ...]:
    """Return the memory limit of every level that has one."""
    limits = []
    for group in _groups("memory", proc, sysfs):
        limit = read_number(group / "memory.max") or read_number(group / "memory.limit_in_bytes")
        used = read_number(group / "memory.current") or read_number(group / "memory.usage_in_bytes") or 0
        if limit is not None:
            limits.append(MemoryLimit(limit, max(0, used - _reclaimable(group / "memory.stat"))))
    return tuple(limits)


def _groups(controller: str, proc: Path, sysfs: Path) -> Iterator[Path]:
    """Yield the folders of this process's group and its ancestors, in the unified and the controller's hierarchy."""
    mount = sysfs / "fs/cgroup"
    for line in (read_text(proc / "self/cgroup") or "").splitlines():
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
        if ".." in inner.parts:
            inner = Path()
        yield root / inner
        if inner.parts:
            yield from (root / parent for parent in inner.parents)


def count_oom_kills(proc: Path = PROC, sysfs: Path = SYSFS) -> int | None:
    """Kills in this process's memory cgroup and its ancestors; of the whole machine where no cgroup counts them.

    Compare two counts: one that rose says that something here was killed meanwhile. None where nothing is counted.
    Source: `memory.events` and `memory.oom_control` of the kernel's cgroup documentation, `/proc/vmstat`.
    """
    counts = [
        int(match[1])
        for group in _groups("memory", proc, sysfs)
        for name in ("memory.events", "memory.oom_control")
        if (match := _OOM_KILLS.search(read_text(group / name) or ""))
    ]
    if counts:
        return sum(counts)
    match = _OOM_KILLS.search(read_text(proc / "vmstat") or "")
    return int(match[1]) if match else None


def _reclaimable(stat: Path) -> int:
    """Return the bytes of file cache; version 1 counts the group with its children under `total_`."""
    counts = {}
    for line in (read_text(stat) or "").splitlines():
        key, _, value = line.partition(" ")
        if value.isdigit():
            counts[key] = int(value)
    return sum(counts.get(f"total_{key}", counts.get(key, 0)) for key in ("inactive_file", "active_file"))
