"""Which process a run belongs to, to distinguish a run whose process was killed from one that goes on.

A process is its pid and its start in seconds since the machine booted: a later process with the same pid does not share
it, and it stays when the clock is set.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_START_TOLERANCE_S = 1.5
"""psutil adds the boot time, which Linux rounds to a second each time that it is asked for."""


def this_process() -> tuple[int, float]:
    """Return pid and start of the process that asks."""
    import psutil

    return os.getpid(), _started_at(psutil.Process())


def is_alive(pid: int, started_at: float) -> bool:
    """Return whether the process still runs; one that was killed and not yet reaped by its parent does not."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = abs(_started_at(process) - started_at) < _START_TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _started_at(process: psutil.Process) -> float:
    import psutil

    return process.create_time() - psutil.boot_time()
