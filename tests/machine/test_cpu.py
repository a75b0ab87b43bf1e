"""Cores, threads and caches from made-up /proc and /sys trees."""

from pathlib import Path

import pytest

from ggbench.machine import host
from ggbench.machine.host import default_threads


@pytest.fixture(autouse=True)
def _trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put made-up trees in place of /proc and /sys, with 8 CPUs."""
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "SYSFS", tmp_path / "sys")
    monkeypatch.setattr(host, "affinity", lambda: range(8))
    monkeypatch.setattr(host, "describe_cpu", host.describe_cpu.__wrapped__)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write(
        tmp_path / "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: AMD Ryzen 9  7950X\x1b[31m 16-Core\nflags\t: fpu\n\n" * 2,
    )
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    return tmp_path / "proc"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for cpu in range(8):
        core = cpu % 4
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        write(folder / "topology/thread_siblings_list", f"{core},{core + 4}\n")
        chiplet = "0-1,4-5" if core < 2 else "2-3,6-7"
        for index, (level, size, shared) in enumerate(
            [(1, "32K", f"{core},{core + 4}"), (2, "1024K", f"{core},{core + 4}"), (3, "32M", chiplet)]
        ):
            write(folder / f"cache/index{index}/level", f"{level}\n")
            write(folder / f"cache/index{index}/size", f"{size}\n")
            write(folder / f"cache/index{index}/shared_cpu_list", f"{shared}\n")
    return tmp_path / "sys"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_cores_are_counted_without_their_second_threads(proc: Path, sysfs: Path) -> None:
    cpu = host.describe_cpu()
    assert cpu.n_cores == 4
    assert cpu.last_level_cache_bytes == 64 << 20
    assert default_threads() == 4


@pytest.mark.parametrize(("quota_us", "n_cores"), [(250_000, 2), (50_000, 1), (600_000, 4)])
def test_a_container_quota_limits_the_threads(proc: Path, sysfs: Path, quota_us: int, n_cores: int) -> None:
    """More threads than whole CPUs in the quota would be throttled; at least one is left."""
    write(sysfs / "fs/cgroup/cpu.max", f"{quota_us} 100000\n")
    cpu = host.describe_cpu()
    assert cpu.n_cores == n_cores
    assert default_threads() == n_cores


def test_efficiency_cores_get_no_thread(proc: Path, sysfs: Path) -> None:
    write(sysfs / "devices/cpu_core/cpus", "0-1,4-5\n")
    write(sysfs / "devices/cpu_atom/cpus", "2-3,6-7\n")
    cpu = host.describe_cpu()
    assert (cpu.n_cores, cpu.n_performance_cores) == (4, 2)
    assert default_threads() == 2


def test_a_machine_without_proc_and_sys_has_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "affinity", lambda: [0])
    cpu = host.describe_cpu()
    assert cpu.name
    assert (cpu.n_cores, cpu.n_performance_cores) == (1, 1)
    assert cpu.last_level_cache_bytes is None


def test_a_name_is_one_printable_line_and_a_board_has_its_own(
    monkeypatch: pytest.MonkeyPatch, proc: Path, sysfs: Path
) -> None:
    """Kernels for Arm print no model name; a Raspberry Pi's cpuinfo ends with the board's."""
    assert host.describe_cpu().name == "AMD Ryzen 9 7950X [31m 16-Core"
    write(proc / "cpuinfo", "processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n")
    assert host.describe_cpu().name == "Raspberry Pi 5 Model B Rev 1.0"
    write(sysfs / "devices/cpu_core/cpus", "0-1,4-5\n")
    monkeypatch.setattr(host, "affinity", lambda: {2, 3})  # kept on efficiency cores
    assert default_threads() == 2
