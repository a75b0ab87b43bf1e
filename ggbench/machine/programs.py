"""The programs that hold memory which a model could use: a person's own, the largest first."""

from __future__ import annotations

from collections import defaultdict

from ggbench.machine.readings import list_gpu_processes
from ggbench.sizing.plan_record import Program
from ggbench.units import MIB

_LEAST_BYTES = 128 * MIB
"""Of a program that is worth naming."""
_MOST = 3


def programs_that_hold_memory(*, on_gpu: bool, gpu_index: int = 0) -> tuple[Program, ...]:
    """Return at most three programs of this user with 128 MiB or more of a GPU's or of main memory, without ggbench.

    Processes of one name count together. In main memory only what they do not share with others is counted.
    """
    import psutil

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
