"""Which process a run belongs to, to distinguish a run whose process was killed from one that goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass

_START_TOLERANCE_S = 5.0
"""Linux derives a start time from the boot time, which moves when the clock is set."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process; when it started distinguishes it from a later one with the same pid."""

    pid: int
    started_at: float
    """Seconds since the epoch."""


def this_process() -> Owner:
    """The process that asks."""
    import psutil

    return Owner(os.getpid(), psutil.Process().create_time())


def is_alive(owner: Owner) -> bool:
    """Whether the process still runs; one that was killed and not yet reaped by its parent does not."""
    import psutil

    try:
        process = psutil.Process(owner.pid)
        same = abs(process.create_time() - owner.started_at) < _START_TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
