"""How often the kernel has killed a process because memory ran out."""

from __future__ import annotations

import re
from pathlib import Path

from ggbench.machine.cgroup import groups
from ggbench.machine.kernel_files import PROC, SYSFS, read_text

_COUNT = re.compile(r"^oom_kill\s+(\d+)$", re.MULTILINE)


def count_oom_kills(proc: Path = PROC, sysfs: Path = SYSFS) -> int | None:
    """Kills in this process's memory cgroup and its ancestors; of the whole machine where no cgroup counts them.

    Compare two counts: one that rose says that something here was killed meanwhile. None where nothing is counted.
    Source: `memory.events` and `memory.oom_control` of the kernel's cgroup documentation, `/proc/vmstat`.
    """
    counts = [
        int(match[1])
        for group in groups("memory", proc, sysfs)
        for name in ("memory.events", "memory.oom_control")
        if (match := _COUNT.search(read_text(group / name) or ""))
    ]
    if counts:
        return sum(counts)
    match = _COUNT.search(read_text(proc / "vmstat") or "")
    return int(match[1]) if match else None
