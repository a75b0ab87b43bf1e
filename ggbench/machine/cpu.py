"""The CPU as available to this process: name, cores and last-level cache.

Cores are counted from the kernel's topology files for the CPUs in the process's affinity: counting the whole machine
would start more threads than a container or `taskset` can run at once.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from ggbench.machine.cgroup import cpu_quota
from ggbench.machine.kernel_files import PROC, SYSFS, read_text


class Cpu(msgspec.Struct, frozen=True):
    """The CPU resources available to this process."""

    name: str
    n_cores: int
    """Physical cores within the affinity and the cgroup quota."""
    n_performance_cores: int
    """Cores without efficiency cores; equal to n_cores where all are alike."""
    last_level_cache_bytes: int | None
    """Total of the last-level caches of the available cores; None when the kernel does not report it."""


def affinity() -> Collection[int]:
    """Return the logical CPUs that this process may use: without those that were switched off meanwhile."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def describe_cpu(proc: Path = PROC, sysfs: Path = SYSFS, usable: Collection[int] | None = None) -> Cpu:
    """Return the CPU of this machine; `usable` lists the logical CPUs to count, by default the process's own."""
    cpus = sorted(affinity() if usable is None else usable)
    quota = cpu_quota(proc, sysfs)
    most = len(cpus) if quota is None else max(1, int(quota))
    n_cores = _count_cores(cpus, sysfs)
    # Intel's hybrid chips expose their performance cores as a separate device.
    performance = _parse_cpu_list(read_text(sysfs / "devices/cpu_core/cpus")) & set(cpus)
    n_performance = _count_cores(performance, sysfs) if performance else n_cores
    return Cpu(
        name=_cpu_name(proc),
        n_cores=min(most, n_cores),
        n_performance_cores=min(most, n_performance),
        last_level_cache_bytes=_last_level_cache_bytes(cpus, sysfs),
    )


def default_threads(cpu: Cpu | None = None) -> int:
    """Return the number of decode threads as llama.cpp's tools count: one per performance core available.

    A second thread on a core shares its vector units, and a slow core delays all others at every tensor.
    """
    return (cpu or describe_cpu()).n_performance_cores


def logical_cpus() -> int:
    """Return how many threads run at once, those that share a core counted each, within affinity and cgroup quota."""
    n_cpus = len(affinity())
    quota = cpu_quota(PROC, SYSFS)
    return n_cpus if quota is None else max(1, min(n_cpus, int(quota)))


def _count_cores(cpus: Collection[int], sysfs: Path) -> int:
    """Count distinct sets of sibling threads; without topology files, use psutil's count for the whole machine."""
    siblings = {read_text(sysfs / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus}
    if None not in siblings:
        return max(1, len(siblings))
    import psutil

    return max(1, min(len(cpus), psutil.cpu_count(logical=False) or len(cpus)))


def _cpu_name(proc: Path) -> str:
    """Return the kernel's CPU name, one printable line; Arm boards without one report the board's."""
    fields: dict[str, str] = {}
    for line in (read_text(proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = next((fields[key] for key in ("model name", "Model", "Hardware", "cpu") if fields.get(key)), "")
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join("".join(char if char.isprintable() else " " for char in name).split())


def _last_level_cache_bytes(cpus: Collection[int], sysfs: Path) -> int | None:
    """Sum the distinct caches of the highest level; each chiplet or socket has its own."""
    caches: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for index in sorted((sysfs / f"devices/system/cpu/cpu{cpu}/cache").glob("index*")):
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
