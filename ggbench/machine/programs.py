"""Other programs: those that compute while something is measured, and those that hold memory a model could use."""

from __future__ import annotations

import time
from collections import defaultdict

import msgspec

from ggbench.text import shorten
from ggbench.units import MIB, format_percent

_LEAST_BYTES = 128 * MIB
"""Of a program that is worth naming."""
_MOST = 3


class Program(msgspec.Struct, frozen=True):
    """A program that holds memory, with all of its processes."""

    name: str
    """Not sanitized."""
    pids: tuple[int, ...]
    held_bytes: int


def programs_that_hold_memory(*, on_gpu: bool, gpu_index: int = 0) -> tuple[Program, ...]:
    """Return at most three programs of this user with 128 MiB or more of a GPU's or of main memory, without ggbench.

    Processes of one name count together. In main memory only what they do not share with others is counted.
    """
    import psutil

    from ggbench.machine.readings import list_gpu_processes

    on_card = {each.pid: each.used_bytes or 0 for each in list_gpu_processes([gpu_index])} if on_gpu else {}
    me = psutil.Process()
    own = {me.pid, *(each.pid for each in (*me.parents(), *me.children(recursive=True)))}
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for process in psutil.process_iter(["name", "username", "memory_info"]):
        memory = process.info["memory_info"]
        if process.pid in own or memory is None or process.info["username"] != me.username():
            continue
        held = on_card.get(process.pid, 0) if on_gpu else memory.rss - getattr(memory, "shared", 0)
        found[process.info["name"] or "an unnamed process"][process.pid] = held
    programs = [Program(name, tuple(pids), sum(pids.values())) for name, pids in found.items()]
    programs = [program for program in programs if program.held_bytes >= _LEAST_BYTES]
    return tuple(sorted(programs, key=lambda program: -program.held_bytes)[:_MOST])


_LEAST_SHARE = 0.1
"""Of one core, that is worth naming."""
_MOST_NAMED, _NAME_WIDTH = 3, 40


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
            for share, pid, name in sorted(found, reverse=True)[:_MOST_NAMED]
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
