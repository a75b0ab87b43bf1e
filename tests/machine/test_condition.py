"""The state of a machine from made-up kernel files and from NVML as real cards answered it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from ggbench.machine import readings
from ggbench.machine.condition import describe_cpu_state, describe_gpu_driver, describe_memory_state, describe_place
from ggbench.machine.readings import Program, programs_that_hold_memory
from ggbench.machine.records import GpuProcess
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
    state = describe_cpu_state(proc, sysfs)
    assert state.name == "A CPU"
    assert state.instructions == {"fpu", "avx2", "avx512f"}
    assert (state.governors, state.scaling_driver) == (("performance", "powersave"), "intel_pstate")
    assert (state.energy_preference, state.busy_share) == ("balance_power", None)
    (proc / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")  # as Arm has them
    assert describe_cpu_state(proc, sysfs).instructions == {"fp", "asimd", "asimddp", "i8mm"}


def test_the_load_is_that_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPUs were busy for 5 of 8 s: 1 with this process, 2 with a child of it that ended, 2 with others."""
    busy_and_total_s, own_s = iter([(100.0, 1000.0), (105.0, 1008.0)]), iter([(3.0, 1.0, 0, 0), (3.5, 1.5, 1.5, 0.5)])
    monkeypatch.setattr(readings, "cpu_seconds", lambda: next(busy_and_total_s))
    monkeypatch.setattr("os.times", lambda: next(own_s))
    assert readings.OthersWatch().share(0) == 2 / 8


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


GIB, MIB = 1 << 30, 1 << 20
ME = psutil.Process().username()


def process(pid: int, name: str | None, rss: int, shared: int = 0, user: str = ME) -> SimpleNamespace:
    memory = SimpleNamespace(rss=rss, shared=shared)
    return SimpleNamespace(pid=pid, info={"name": name, "username": user, "memory_info": memory})


PROCESSES = (
    process(os.getpid(), "ggbench", 9 * GIB), process(os.getppid(), "bash", 9 * GIB),
    process(-11, "browser", 2 * GIB, GIB), process(-12, "browser", 2 * GIB, GIB), process(-13, "editor", 5 * GIB),
    process(-14, "daemon", 8 * GIB, user="another"), process(-15, "small", 127 * MIB),
    process(-16, None, 200 * MIB), process(-17, "last", 150 * MIB),
)  # fmt: skip


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def process_iter(attrs: Sequence[str]) -> Iterator[SimpleNamespace]:
        assert set(attrs) == {"name", "username", "memory_info"}
        return iter(PROCESSES)

    monkeypatch.setattr(psutil, "process_iter", process_iter)


def test_a_persons_own_programs_are_named_by_what_they_hold_alone() -> None:
    assert programs_that_hold_memory(on_gpu=False) == (
        Program("editor", (-13,), 5 * GIB),
        Program("browser", (-11, -12), 2 * GIB),
        Program("an unnamed process", (-16,), 200 * MIB),
    )


def test_on_a_gpu_its_own_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    on_card = (GpuProcess(-11, "browser", GIB), GpuProcess(-14, "daemon", GIB), GpuProcess(-13, "editor", None))
    monkeypatch.setattr(readings, "list_gpu_processes", lambda indices: on_card if indices == [1] else ())
    assert programs_that_hold_memory(on_gpu=True, gpu_index=1) == (Program("browser", (-11, -12), GIB),)
    assert programs_that_hold_memory(on_gpu=True) == ()


def test_files_count_once_and_links_not_at_all(tmp_path: Path) -> None:
    blob = tmp_path / "blobs/a"
    blob.parent.mkdir()
    blob.write_bytes(os.urandom(1 << 20))
    (tmp_path / "again").hardlink_to(blob)
    (tmp_path / "link").symlink_to(blob)
    (tmp_path / "loop").symlink_to(tmp_path)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    place = describe_place("caches", "XDG_CACHE_HOME", tmp_path)
    assert place.used_bytes is not None
    assert 1 << 20 <= place.used_bytes < (1 << 20) + (1 << 16)
    assert place.is_writable
    assert place.file_system


def test_a_missing_folder_has_the_disk_of_the_nearest_above(tmp_path: Path) -> None:
    place = describe_place("results", "XDG_DATA_HOME", tmp_path / "a/b/c")
    assert (place.used_bytes, place.is_writable) == (0, True)
    assert place.disk == tmp_path.stat().st_dev
    assert place.free_bytes is not None
    assert abs(place.free_bytes - psutil.disk_usage(str(tmp_path)).free) < 1 << 30
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path, is_link: bool) -> None:
    blocking = tmp_path / "blocking"
    blocking.symlink_to(tmp_path / "missing") if is_link else blocking.touch()
    place = describe_place("results", "XDG_DATA_HOME", blocking / "ggbench")
    assert (place.is_writable, place.disk) == (False, tmp_path.stat().st_dev)
