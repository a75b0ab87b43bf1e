"""Other programs that compute while something is measured."""

from __future__ import annotations

import time

from ggbench.text import shorten
from ggbench.units import format_percent

_LEAST_SHARE = 0.1
"""Of one core, that is worth naming."""
_MOST, _NAME_WIDTH = 3, 40


class BusyPrograms:
    """What every process had computed at one moment; those of ggbench itself are left out."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _cpu_seconds()

    def since(self) -> tuple[str, ...]:
        """Return at most three programs that have computed since, the busiest first: `make (pid 17, 93 % of a core)`.

        Programs in another container or on the same host outside a virtual machine are not seen.
        """
        elapsed_s = time.monotonic() - self._began
        found = []
        for (pid, name), seconds in _cpu_seconds().items():
            share = (seconds - self._before.get((pid, name), 0.0)) / elapsed_s if elapsed_s > 0 else 0.0
            if share >= _LEAST_SHARE:
                found.append((share, pid, name))
        return tuple(
            f"{shorten(name, _NAME_WIDTH)} (pid {pid}, {format_percent(share)} of a core)"
            for share, pid, name in sorted(found, reverse=True)[:_MOST]
        )


def _cpu_seconds() -> dict[tuple[int, str], float]:
    """Seconds that each process has computed, by its number and name."""
    import psutil

    me = psutil.Process()
    own = {me.pid, *(each.pid for each in me.children(recursive=True))}
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if process.pid not in own and times is not None:
            found[process.pid, process.info["name"] or "an unnamed process"] = times.user + times.system
    return found
