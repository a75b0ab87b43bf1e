"""Memory of the machine, of a container, and of another process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.machine import host
from ggbench.machine.host import (
    count_oom_kills,
    cpu_quota,
    describe_ram,
    disk_waits,
    memory_limits,
    peak_rss_bytes,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of made-up trees in place of /proc and /sys."""
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "SYSFS", tmp_path / "sys")
    return tmp_path


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_peak_is_the_kernels_high_water_mark(root: Path) -> None:
    write(root / "proc/42/status", "Name:\tworker\nVmPeak:\t  900 kB\nVmHWM:\t  700 kB\nVmRSS:\t  300 kB\n")
    assert peak_rss_bytes(42) == 700 * 1024


def test_waits_for_the_disk_are_the_kernels_own_counts(root: Path) -> None:
    """A process may have blanks and brackets in its name."""
    write(root / "proc/42/stat", "42 (a ) worker) R 1 42 42 0 -1 4194304 2500 0 17 0 5 1 0 0 20 0 1 0\n")
    write(root / "proc/42/io", "rchar: 5\nread_bytes: 4096\nwrite_bytes: 0\n")
    assert (disk_waits(42), disk_waits(43)) == ((17, 4096), (None, None))


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


def test_the_tightest_ancestor_of_version_2_counts(root: Path) -> None:
    tree(
        root,
        {
            "proc/self/cgroup": "0::/user.slice/job.scope\n",
            "sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/user.slice/memory.max": "4000\n",
            "sys/fs/cgroup/user.slice/memory.current": "3000\n",
            "sys/fs/cgroup/user.slice/memory.stat": "anon 500\nfile 2000\ninactive_file 1500\nactive_file 500\n",
            "sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.current": "10\n",
        },
    )
    assert cpu_quota() == 1.5
    assert memory_limits() == [(4000, 1000)]


def test_a_container_of_version_1_sees_its_limits_at_the_mount(root: Path) -> None:
    tree(
        root,
        {
            "proc/self/cgroup": "7:memory:/docker/0a1b\n4:cpu,cpuacct:/docker/0a1b\n1:name=systemd:/docker/0a1b\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "8000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 700\ntotal_active_file 300\n",
        },
    )
    assert cpu_quota() == 2.0
    assert memory_limits() == [(8000, 4000)]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="no /proc"),
        pytest.param({"proc/self/cgroup": "0::/\n"}, id="no cgroup mount"),
        pytest.param(
            {"proc/self/cgroup": "4:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, id="version 1, quota -1"
        ),
        pytest.param({"proc/self/cgroup": "gibberish\n0::/../..\n"}, id="a path outside of the namespace"),
    ],
)
def test_no_limit_is_none(root: Path, files: dict[str, str]) -> None:
    tree(root, files)
    assert cpu_quota() is None
    assert memory_limits() == []


UNIFIED = "0::/user.slice/app.scope\n"
LEGACY = "5:cpu,cpuacct:/\n4:memory:/docker/abc\n1:name=systemd:/\n"


@pytest.fixture
def proc(root: Path) -> Path:
    return root / "proc"


@pytest.fixture
def sysfs(root: Path) -> Path:
    return root / "sys"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="ascii")


def events(oom_kill: int) -> str:
    return f"low 0\nhigh 0\nmax 12\noom 9\noom_kill {oom_kill}\noom_group_kill 1\n"


def test_version_2_counts_in_the_group_and_its_ancestors(proc: Path, sysfs: Path) -> None:
    write(proc / "self/cgroup", UNIFIED)
    group = sysfs / "fs/cgroup/user.slice/app.scope"
    write(group / "memory.events", events(2))
    write(group.parent / "memory.events", events(3))
    before = count_oom_kills()
    assert before == 5
    write(group / "memory.events", events(3))
    write(group.parent / "memory.events", events(4))
    after = count_oom_kills()
    assert after is not None and after > before


def test_without_a_cgroup_that_counts_the_whole_machine_does(proc: Path, sysfs: Path) -> None:
    write(proc / "self/cgroup", LEGACY)
    write(sysfs / "fs/cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")
    write(proc / "vmstat", "nr_free_pages 100\noom_kill 11\nnuma_hit 5\n")
    assert count_oom_kills() == 11


def test_where_nothing_is_counted_the_number_is_unknown(proc: Path, sysfs: Path) -> None:
    assert count_oom_kills() is None
    write(proc / "self/cgroup", UNIFIED)
    write(sysfs / "fs/cgroup/memory.events", "oom_kill many\n")
    write(proc / "vmstat", "nr_free_pages 100\n")
    assert count_oom_kills() is None


def test_a_smaller_cgroup_limit_is_the_total(root: Path) -> None:
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n")
    (group / "memory.max").write_text("1000\n")
    (group / "memory.current").write_text("400\n")
    ram = describe_ram()
    assert (ram.total_bytes, ram.available_bytes) == (1000, 600)
