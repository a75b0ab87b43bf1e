"""The CPU as far as this process may use it: its name, cores and last-level cache.

Cores are counted from the kernel's topology files among the CPUs of the process's affinity, since a count of the whole
machine would start threads that a container or `taskset` then makes wait for each other.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ggbench.machine.cgroup import cpu_quota
from ggbench.machine.kernel_files import PROC, SYSFS, read_text


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPU and what of it this process may use."""

    name: str
    n_cores: int
    """Physical cores usable: within the affinity and the cgroup's quota."""
    n_performance_cores: int
    """Those of them that are not efficiency cores; the same number where all are alike."""
    n_logical: int
    """Hardware threads usable."""
    last_level_cache_bytes: int | None
    """Over all the caches of the last level that the usable cores reach; None when the kernel does not say."""


def describe_cpu(proc: Path = PROC, sysfs: Path = SYSFS, affinity: Collection[int] | None = None) -> Cpu:
    """The CPU of this machine; `affinity` holds the logical CPUs to count, the process's own when None."""
    cpus = sorted(_own_affinity() if affinity is None else affinity)
    quota = cpu_quota(proc, sysfs)
    most = len(cpus) if quota is None else max(1, int(quota))
    n_cores = _count_cores(cpus, sysfs)
    # Intel's hybrid chips publish their performance cores as a device of its own.
    performance = _parse_cpu_list(read_text(sysfs / "devices/cpu_core/cpus")) & set(cpus)
    n_performance = _count_cores(performance, sysfs) if performance else n_cores
    return Cpu(
        name=_cpu_name(proc),
        n_cores=min(most, n_cores),
        n_performance_cores=min(most, n_performance),
        n_logical=min(most, len(cpus)),
        last_level_cache_bytes=_last_level_cache_bytes(cpus, sysfs),
    )


def default_threads(cpu: Cpu | None = None) -> int:
    """Threads to decode with: one for each usable physical core but efficiency cores, as llama.cpp's tools choose.

    A second thread on the same core shares its vector units, and a slow core makes all others wait at each tensor.
    """
    return (cpu or describe_cpu()).n_performance_cores


def _own_affinity() -> Collection[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _count_cores(cpus: Collection[int], sysfs: Path) -> int:
    """Distinct sets of sibling threads; without topology files, what psutil knows of the whole machine."""
    siblings = {read_text(sysfs / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus}
    if None not in siblings:
        return max(1, len(siblings))
    import psutil

    return max(1, min(len(cpus), psutil.cpu_count(logical=False) or len(cpus)))


def _cpu_name(proc: Path) -> str:
    """The kernel's name, one line of printable text; Arm boards that have none give the board's."""
    fields: dict[str, str] = {}
    for line in (read_text(proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = next((fields[key] for key in ("model name", "Model", "Hardware", "cpu") if fields.get(key)), "")
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join("".join(char if char.isprintable() else " " for char in name).split())


def _last_level_cache_bytes(cpus: Collection[int], sysfs: Path) -> int | None:
    """Sum over the distinct caches of the highest level; each chiplet or socket has its own."""
    caches: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for index in sorted((sysfs / f"devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            level, size, shared = (read_text(index / name) for name in ("level", "size", "shared_cpu_list"))
            match = re.fullmatch(r"(\d+)([KM]?)", size or "")
            if level and level.isdigit() and shared and match:
                caches.setdefault(int(level), {})[shared] = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]
    return sum(caches[max(caches)].values()) if caches else None


def _parse_cpu_list(text: str | None) -> set[int]:
    """`0-3,8` as a set."""
    cpus: set[int] = set()
    for match in re.finditer(r"(\d+)(?:-(\d+))?", text or ""):
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus
