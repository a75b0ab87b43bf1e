"""The address space of this process and its limit, which only Linux enforces: macOS accepts one and ignores it."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.platform == "linux":
    import resource

    CAN_LIMIT = True

    def used_bytes() -> int:
        """Return the size of what is mapped, which Python and the libraries have filled before any model."""
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * resource.getpagesize()

    def limit_bytes() -> int | None:
        """Return the limit; None without one."""
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return None if limit == resource.RLIM_INFINITY else limit

    def set_limit(n_bytes: int) -> None:
        """Set the limit, or the highest that this process may set where that is lower."""
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

else:
    CAN_LIMIT = False

    def used_bytes() -> int:
        """Return 0: unknown."""
        return 0

    def limit_bytes() -> int | None:
        """Return None: there is no limit."""
        return None

    def set_limit(n_bytes: int) -> None:
        """Do nothing."""
