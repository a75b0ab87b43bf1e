"""The address space of this process and its limit, which only Linux enforces: macOS accepts one and ignores it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

CAN_LIMIT = sys.platform == "linux"


def used_bytes() -> int:
    """Return the size of what is mapped, which Python and the libraries have filled before any model; on Linux only."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def limit_bytes() -> int | None:
    """Return the limit; None without one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return limit if CAN_LIMIT and limit != resource.RLIM_INFINITY else None


def set_limit(n_bytes: int) -> None:
    """Set the limit, or the highest that this process may set where that is lower."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard), hard))
