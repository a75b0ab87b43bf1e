"""Main memory: the amount available to this process, and the peak usage of another process."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from ggbench.machine.cgroup import memory_limits
from ggbench.machine.kernel_files import PROC, SYSFS, read_text


class Ram(msgspec.Struct, frozen=True):
    """Main memory within the container's limits, bytes."""

    total_bytes: int
    available_bytes: int
    """Memory that can be allocated without swapping, file cache counted as free."""


def describe_ram(proc: Path = PROC, sysfs: Path = SYSFS) -> Ram:
    """Return the memory of the machine, or of the cgroup if that is smaller."""
    import psutil

    memory = psutil.virtual_memory()
    limits = memory_limits(proc, sysfs)
    return Ram(
        total_bytes=min([memory.total, *(limit.limit_bytes for limit in limits)]),
        available_bytes=min([memory.available, *(max(0, limit.limit_bytes - limit.used_bytes) for limit in limits)]),
    )


def peak_rss_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Return the peak resident memory of a running process, mapped files included.

    None when the process has ended (also before it is reaped), or the system records no peak.
    """
    match = re.search(r"^VmHWM:\s*(\d+) kB$", read_text(proc / str(pid) / "status") or "", re.MULTILINE)
    return int(match[1]) << 10 if match else None
