"""The state of a machine from made-up kernel files and from NVML as real cards answered it."""

from pathlib import Path

import pynvml
import pytest

from ggbench.machine.condition import describe_cpu_state, describe_gpu_driver, describe_memory_state
from tests.fakes.nvml import FakeNvml, install, replay


def tree(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "proc", root / "sys"


def test_the_cpu_has_its_governors_and_instructions(tmp_path: Path) -> None:
    """Every governor once, as of a chip whose efficiency cores differ; instructions are those of the first CPU."""
    cpus = "sys/devices/system/cpu/cpu"
    proc, sysfs = tree(
        tmp_path,
        {
            "proc/cpuinfo": "model name : A CPU\nflags : fpu avx2 avx512f\n\nmodel name : A CPU\nflags : fpu\n",
            f"{cpus}0/cpufreq/scaling_governor": "powersave\n",
            f"{cpus}0/cpufreq/scaling_driver": "intel_pstate\n",
            f"{cpus}0/cpufreq/energy_performance_preference": "balance_power\n",
            f"{cpus}1/cpufreq/scaling_governor": "powersave\n",
            f"{cpus}2/cpufreq/scaling_governor": "performance\n",
        },
    )

    state = describe_cpu_state(proc, sysfs, watch_s=0)

    assert state.name == "A CPU"
    assert state.instructions == {"fpu", "avx2", "avx512f"}
    assert (state.governors, state.scaling_driver) == (("performance", "powersave"), "intel_pstate")
    assert (state.energy_preference, state.busy_share) == ("balance_power", None)


def test_memory_has_its_limits(tmp_path: Path) -> None:
    proc, sysfs = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1048576\n",
            "sys/fs/cgroup/memory.current": "48576\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
            "proc/sys/vm/overcommit_memory": "2\n",
        },
    )

    state = describe_memory_state(proc, sysfs)

    assert (state.container_limit_bytes, state.available_bytes) == (1048576, 1000000)
    assert (state.huge_pages, state.overcommit) == ("never", 2)
    assert state.total_bytes > 1048576


def test_a_driver_reports_its_cuda_and_its_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvml = replay("two-a5000")
    nvml.cuda_version = 13010
    for card in nvml.cards:
        card["CudaComputeCapability"] = (8, 6)
    install(monkeypatch, nvml)

    driver = describe_gpu_driver(tmp_path, {"CUDA_VISIBLE_DEVICES": "1"})

    assert (driver.cuda_version, driver.n_visible, driver.problem) == ((13, 1), 1, "")
    assert driver.version is not None
    assert driver.version.startswith("590.")
    assert [each.compute_capability for each in driver.gpus] == [(8, 6), (8, 6)]
    assert all(each.processes and "llama-server" in (each.processes[0].name or "") for each in driver.gpus)
    assert nvml.sessions == 0


CARD = {"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n"}
SOUND_OF_A_CARD = {**CARD, "sys/bus/pci/devices/0000:01:00.0/class": "0x040300\n"}


@pytest.mark.parametrize(
    ("nvml", "files", "problem"),
    [
        pytest.param(None, CARD, "NVML Shared Library Not Found", id="no driver"),
        pytest.param(FakeNvml([], init_status=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), CARD,
                     "RM has detected an NVML/RM version mismatch.", id="driver updated while it ran"),
        pytest.param(None, {}, "", id="no card"),
        pytest.param(None, SOUND_OF_A_CARD, "", id="the card's sound device alone"),
    ],
)  # fmt: skip
def test_a_card_without_a_working_driver_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvml: FakeNvml | None, files: dict[str, str], problem: str
) -> None:
    install(monkeypatch, nvml)

    driver = describe_gpu_driver(tree(tmp_path, files)[1], {})

    assert (driver.gpus, driver.problem) == ((), problem)
