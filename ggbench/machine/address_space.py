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
