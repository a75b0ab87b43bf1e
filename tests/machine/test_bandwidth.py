"""Caching of the measured bandwidth, with the probe replaced by prepared rates."""

import ctypes
import math
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.errors import DoesNotFit
from ggbench.machine import bandwidth
from ggbench.machine.bandwidth import ReadRate, cached_bandwidth, is_from_busy_machine, probe_reads
from ggbench.machine.host import Cpu, Ram

GIB = 1 << 30
MIB = 1 << 20


class Probe:
    """Gives out prepared rates and remembers what it was asked; fails where it has none left."""

    def __init__(self, *rates: ReadRate | Exception) -> None:
        self.rates: Iterator[ReadRate | Exception] = iter(rates)
        self.asked: list[dict[str, float]] = []

    def __call__(self, threads: int, **sizes: float) -> ReadRate:
        self.asked.append({"threads": threads, **sizes})
        rate = next(self.rates)
        if isinstance(rate, Exception):
            raise rate
        return rate


def rate(gb_per_s: float, *, threads: int = 2, busy: bool = False) -> ReadRate:
    return ReadRate(gb_per_s * 1e9, threads, "memcmp", busy)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "cache/machine.json"
    monkeypatch.setattr(paths, "machine_cache_file", lambda: file)
    return file


def use(
    monkeypatch: pytest.MonkeyPatch,
    *rates: ReadRate | Exception,
    cpu: str = "Test CPU",
    cache_bytes: int | None = 32 * MIB,
    available_bytes: int = 16 * GIB,
) -> Probe:
    probe = Probe(*rates)
    monkeypatch.setattr(bandwidth, "probe_reads", probe)
    monkeypatch.setattr(bandwidth, "describe_cpu", lambda: Cpu(cpu, 2, 2, cache_bytes))
    monkeypatch.setattr(bandwidth, "describe_ram", lambda: Ram(24 * GIB, available_bytes))
    return probe


def test_each_cpu_and_number_of_threads_has_a_figure_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    """Two machines may share a home folder; a figure that cannot be is measured again."""
    use(monkeypatch, rate(35), rate(16, threads=1))
    found = [cached_bandwidth(2), cached_bandwidth(1)]
    use(monkeypatch, rate(60), cpu="Other CPU")
    found.append(cached_bandwidth(2))
    assert [each.bytes_per_s / 1e9 for each in found] == [35, 16, 60]
    use(monkeypatch)
    assert [cached_bandwidth(n).bytes_per_s / 1e9 for n in (2, 1)] == [35, 16]
    for damage in ((b"35000000000", b"-1"), (b"16000000000", b"0")):
        cache.write_bytes(cache.read_bytes().replace(*damage))
    use(monkeypatch, rate(36), rate(17, threads=1))
    assert [cached_bandwidth(n).bytes_per_s / 1e9 for n in (2, 1)] == [36, 17]
    (tmp_path / "in the way").write_text("")
    use(monkeypatch, rate(35))
    monkeypatch.setattr(paths, "machine_cache_file", lambda: tmp_path / "in the way/machine.json")
    assert cached_bandwidth(2).bytes_per_s == 35e9


def test_a_result_of_a_busy_machine_is_marked_and_measured_again(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use(monkeypatch, rate(12, busy=True), rate(15, busy=True), rate(10, busy=True), rate(14))
    first = cached_bandwidth(2)
    assert first.source.endswith(", on a busy machine, so maybe too low") and is_from_busy_machine(first)
    rest = [cached_bandwidth(2).bytes_per_s / 1e9 for _ in range(4)]
    assert rest == [15, 15, 14, 14]
    assert "busy" not in cached_bandwidth(2).source


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"bandwidth": {"Test', id="cut off"),
        pytest.param(b'{"bandwidth": {"\xff": 1}}', id="a name that is not text"),
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(b'{"bandwidth": {"x": {"bytes_per_s": "fast", "source": "s", "busy": false}}}', id="no number"),
    ],
)
def test_a_broken_cache_is_ignored_and_rewritten(monkeypatch: pytest.MonkeyPatch, cache: Path, content: bytes) -> None:
    cache.parent.mkdir()
    cache.write_bytes(content)
    use(monkeypatch, rate(35))
    assert cached_bandwidth(2).bytes_per_s == 35e9
    assert cached_bandwidth(2).bytes_per_s == 35e9


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_folder_does_not_fail_the_run(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    cache.parent.mkdir(mode=0o500)
    use(monkeypatch, rate(35))
    assert cached_bandwidth(2).bytes_per_s == 35e9
    assert not cache.exists()


@pytest.mark.parametrize(
    ("cache_bytes", "available_bytes", "buffer_bytes"),
    [
        pytest.param(32 * MIB, 16 * GIB, GIB, id="a desktop"),
        pytest.param(480 * MIB, 16 * GIB, 1920 * MIB, id="a large cache"),
        pytest.param(480 * MIB, 2 * GIB, 512 * MIB, id="little memory"),
    ],
)
def test_the_buffer_outgrows_the_cache_and_not_the_memory(
    monkeypatch: pytest.MonkeyPatch, cache: Path, cache_bytes: int | None, available_bytes: int, buffer_bytes: int
) -> None:
    probe = use(monkeypatch, rate(35), cache_bytes=cache_bytes, available_bytes=available_bytes)
    cached_bandwidth(2)
    (asked,) = probe.asked
    assert asked["buffer_bytes"] == buffer_bytes
    assert min(2 * (cache_bytes or 0), buffer_bytes) <= asked["min_bytes"] <= buffer_bytes


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


def test_failed_allocation_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use(monkeypatch, OSError(12, "Cannot allocate memory"))
    with pytest.raises(DoesNotFit) as caught:
        cached_bandwidth(2)
    assert "--bandwidth" in caught.value.hint
