"""Which process a run belongs to, to distinguish a run whose process was killed from one that goes on.

A process is its pid and its start in seconds since the epoch, which a later process with the same pid does not share.
"""

from __future__ import annotations

import os

_START_TOLERANCE_S = 5.0
"""Linux derives a start time from the boot time, which moves when the clock is set."""


def this_process() -> tuple[int, float]:
    """Return pid and start of the process that asks."""
    import psutil

    return os.getpid(), psutil.Process().create_time()


def is_alive(pid: int, started_at: float) -> bool:
    """Return whether the process still runs; one that was killed and not yet reaped by its parent does not."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started_at) < _START_TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
