"""Memory limits of this process and its children; imports nothing slow, since every start of ggbench checks its own."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

CAN_LIMIT = sys.platform == "linux"
"""macOS accepts a limit and ignores it."""


def used_bytes() -> int:
    """Return the mapped bytes of this process, some of them from before any model; only on Linux."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def limit_bytes() -> int | None:
    """Return the limit in bytes; None without one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return limit if CAN_LIMIT and limit != resource.RLIM_INFINITY else None


def set_limit(n_bytes: int) -> None:
    """Set the limit, at most to the process's hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard), hard)
    )


def forbid_core_files() -> None:
    """Keep a crash of this process or its children from leaving a file as large as a model in the user's folder."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def limit_data(pid: int, n_bytes: int) -> None:
    """Limit what a child may allocate from now on, mapped files not counted; only on Linux.

    RLIMIT_AS would also count what malloc and drivers only reserve. Raises OSError if the process has ended.
    """
    if sys.platform == "linux":
        used = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        limit = used + n_bytes if hard == resource.RLIM_INFINITY else min(used + n_bytes, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, hard))
