"""How often the kernel killed for lack of memory, from the files of each generation of cgroups."""

from pathlib import Path

import pytest

from ggbench.machine.host import count_oom_kills

UNIFIED = "0::/user.slice/app.scope\n"
LEGACY = "5:cpu,cpuacct:/\n4:memory:/docker/abc\n1:name=systemd:/\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    return tmp_path / "sys"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="ascii")


def events(oom_kill: int) -> str:
    """`memory.events` as the kernel's documentation lists its keys."""
    return f"low 0\nhigh 0\nmax 12\noom 9\noom_kill {oom_kill}\noom_group_kill 1\n"


def test_version_2_counts_in_the_group_and_its_ancestors(proc: Path, sysfs: Path) -> None:
    write(proc / "self/cgroup", UNIFIED)
    group = sysfs / "fs/cgroup/user.slice/app.scope"
    write(group / "memory.events", events(2))
    write(group.parent / "memory.events", events(3))
    before = count_oom_kills(proc, sysfs)
    assert before == 5
    write(group / "memory.events", events(3))
    write(group.parent / "memory.events", events(4))
    after = count_oom_kills(proc, sysfs)
    assert after is not None and after > before


def test_without_a_cgroup_that_counts_the_whole_machine_does(proc: Path, sysfs: Path) -> None:
    write(proc / "self/cgroup", LEGACY)
    write(sysfs / "fs/cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")
    write(proc / "vmstat", "nr_free_pages 100\noom_kill 11\nnuma_hit 5\n")
    assert count_oom_kills(proc, sysfs) == 11


def test_where_nothing_is_counted_the_number_is_unknown(proc: Path, sysfs: Path) -> None:
    assert count_oom_kills(proc, sysfs) is None
    write(proc / "self/cgroup", UNIFIED)
    write(sysfs / "fs/cgroup/memory.events", "oom_kill many\n")
    write(proc / "vmstat", "nr_free_pages 100\n")
    assert count_oom_kills(proc, sysfs) is None


def test_the_kernel_of_this_machine_counts() -> None:
    """Linux has counted in /proc/vmstat since 4.13."""
    count = count_oom_kills()
    assert count is not None and count >= 0
