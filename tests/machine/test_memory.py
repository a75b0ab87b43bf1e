"""Memory of the machine, of a container, and of another process."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ggbench.machine.host import describe_ram, peak_rss_bytes


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    ram = describe_ram(tmp_path / "proc", tmp_path / "sys")

    assert ram.total_bytes == psutil.virtual_memory().total
    assert 0 < ram.available_bytes <= ram.total_bytes


def test_a_smaller_cgroup_limit_is_the_total(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (group / "memory.max").write_text("1000\n")
    (group / "memory.current").write_text("400\n")

    ram = describe_ram(tmp_path / "proc", tmp_path / "sys")

    assert (ram.total_bytes, ram.available_bytes) == (1000, 600)


def test_the_peak_is_the_kernels_high_water_mark(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42/status").write_text("Name:\tworker\nVmPeak:\t  900 kB\nVmHWM:\t  700 kB\nVmRSS:\t  300 kB\n")

    assert peak_rss_bytes(42, tmp_path) == 700 * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_peak_outlives_the_memory_that_made_it() -> None:
    script = "b = b'x' * (64 << 20); del b; print('freed', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"freed\n"
        peak = peak_rss_bytes(child.pid)
        child.communicate(b"\n")

    assert peak is not None
    assert peak >= 64 << 20
    assert peak_rss_bytes(os.getpid()) is not None
