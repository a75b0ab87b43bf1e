"""The recorded environment, on whatever machine runs the tests."""

import platform
import time

import pytest

from ggbench.machine import readings
from ggbench.machine.environment import describe_os, environment
from ggbench.machine.host import describe_cpu


def test_a_run_records_versions_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.open_nvml", lambda: None)
    recorded = environment(
        {"llama_cpp_python": "0.3.36", "llama_cpp": "version: 6097 (9515c613)", "system_info": "CPU : AVX2 = 1"}
    )
    assert (recorded.llama_cpp_python, recorded.llama_cpp) == ("0.3.36", "version: 6097 (9515c613)")
    assert recorded.system_info == "CPU : AVX2 = 1"
    assert recorded.python == platform.python_version()
    assert recorded.cpu == describe_cpu().name
    assert recorded.n_cores is not None and recorded.n_cores >= 1
    assert recorded.ram_bytes is not None and recorded.ram_bytes > 0
    assert recorded.gpus == ()


def test_the_system_is_named_by_distribution_and_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"PRETTY_NAME": "Debian\x1b GNU/Linux 12"})
    assert describe_os() == f"Debian GNU/Linux 12, {platform.system()} {platform.release()} {platform.machine()}"


S = 1_000_000_000


def test_setting_the_clock_moves_no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [readings.moment_ns()]
    for jump_s in (86_400, -3600):
        now_ns = time.time_ns() + jump_s * S
        monkeypatch.setattr(time, "time_ns", lambda now_ns=now_ns: now_ns)
        moments.append(readings.moment_ns())
    assert moments == sorted(moments)
    assert moments[-1] - moments[0] < 3600 * S
