"""Limits of containers from made-up cgroup trees of both versions."""

from pathlib import Path

import pytest

from ggbench.machine.host import MemoryLimit, cpu_quota, memory_limits


def tree(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "proc", root / "sys"


def test_the_tightest_ancestor_of_version_2_counts(tmp_path: Path) -> None:
    proc, sysfs = tree(
        tmp_path,
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

    assert cpu_quota(proc, sysfs) == 1.5
    assert memory_limits(proc, sysfs) == (MemoryLimit(limit_bytes=4000, used_bytes=1000),)


def test_a_container_of_version_1_sees_its_limits_at_the_mount(tmp_path: Path) -> None:
    proc, sysfs = tree(
        tmp_path,
        {
            "proc/self/cgroup": "7:memory:/docker/0a1b\n4:cpu,cpuacct:/docker/0a1b\n1:name=systemd:/docker/0a1b\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "8000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 700\ntotal_active_file 300\n",
        },
    )

    assert cpu_quota(proc, sysfs) == 2.0
    assert memory_limits(proc, sysfs) == (MemoryLimit(limit_bytes=8000, used_bytes=4000),)


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
def test_no_limit_is_none(tmp_path: Path, files: dict[str, str]) -> None:
    proc, sysfs = tree(tmp_path, files)

    assert cpu_quota(proc, sysfs) is None
    assert memory_limits(proc, sysfs) == ()
