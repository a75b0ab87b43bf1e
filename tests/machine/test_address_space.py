"""The limit of another process's memory."""

import subprocess
import sys

import pytest

from ggbench.machine.address_space import CAN_LIMIT, limit_data

_CHILD = """
import mmap, sys
print("ready", flush=True)
sys.stdin.readline()
for mib in (16, 128):
    try:
        bytearray(mib << 20)
    except MemoryError:
        print("no", end=" ")
    else:
        print("yes", end=" ")
mmap.mmap(-1, 128 << 20)
print("shared")
"""


@pytest.mark.skipif(not CAN_LIMIT, reason="needs Linux's prlimit")
def test_a_child_can_allocate_what_it_has_left_and_share_more() -> None:
    """Shared memory, such as a driver maps, is not counted."""
    child = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    limit_data(child.pid, 64 << 20)
    assert child.communicate("\n")[0] == "yes no shared\n"
