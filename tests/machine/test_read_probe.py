"""The probe on real memory, small and short."""

import ctypes
import math
import os
import signal
import threading

import pytest

from ggbench.machine import bandwidth
from ggbench.machine.bandwidth import probe_reads


@pytest.mark.parametrize("threads", [1, 3])
def test_a_short_probe_reads_at_a_possible_rate(threads: int) -> None:
    rate = probe_reads(threads, buffer_bytes=48 << 20, min_bytes=0, budget_s=0.0)

    assert math.isfinite(rate.bytes_per_s)
    assert 1e6 < rate.bytes_per_s < 1e14
    assert 1 <= rate.threads <= threads
    assert rate.kernel in {"memcmp", "memchr", "numpy"}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux's affinity")
def test_threads_that_share_a_core_are_called_busy() -> None:
    """Two readers on one core take turns, so neither window shows what two cores can read."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        rate = probe_reads(2, buffer_bytes=32 << 20, min_bytes=0, budget_s=0.0)
    finally:
        os.sched_setaffinity(0, allowed)

    assert rate.busy


def test_a_ctrl_c_does_not_wait_for_memory_that_comes_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    n_touched, slow = 0, threading.Event()

    def memset(*_: object) -> None:
        nonlocal n_touched
        n_touched += 1
        if n_touched == 3:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        slow.wait(0.02)

    monkeypatch.setattr(ctypes, "memset", memset)
    with pytest.raises(KeyboardInterrupt):
        probe_reads(1, buffer_bytes=2 << 30, min_bytes=2 << 30, budget_s=0.0)

    assert n_touched < (2 << 30) // bandwidth.CHUNK_BYTES // 2
