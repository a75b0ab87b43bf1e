"""What a container lets this process take: CPU time and memory, from the cgroup files of either version.

A limit may sit on any ancestor of the process's group, and inside a container the path in /proc/self/cgroup often names
a group that the container cannot see; so every level up to the root is asked, and those that are missing do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ggbench.machine.kernel_files import PROC, SYSFS, read_number, read_text


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """One level's memory limit, bytes."""

    limit_bytes: int
    used_bytes: int
    """In use now, file cache that the kernel can take back left out."""


def cpu_quota(proc: Path = PROC, sysfs: Path = SYSFS) -> float | None:
    """CPUs' worth of time that this process may use, such as 1.5; None when nothing limits it."""
    quotas = []
    for group in groups("cpu", proc, sysfs):
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
    """The memory limit of every level that has one."""
    limits = []
    for group in groups("memory", proc, sysfs):
        limit = read_number(group / "memory.max") or read_number(group / "memory.limit_in_bytes")
        used = read_number(group / "memory.current") or read_number(group / "memory.usage_in_bytes") or 0
        if limit is not None:
            limits.append(MemoryLimit(limit, max(0, used - _reclaimable(group / "memory.stat"))))
    return tuple(limits)


def groups(controller: str, proc: Path, sysfs: Path) -> Iterator[Path]:
    """Folders of this process's group and its ancestors, in the unified hierarchy and in the controller's own."""
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


def _reclaimable(stat: Path) -> int:
    """Bytes of file cache; version 1 counts the group with its children under `total_`."""
    counts = {}
    for line in (read_text(stat) or "").splitlines():
        key, _, value = line.partition(" ")
        if value.isdigit():
            counts[key] = int(value)
    return sum(counts.get(f"total_{key}", counts.get(key, 0)) for key in ("inactive_file", "active_file"))
