"""Readings of the machine: real GPUs' values replayed through pynvml, and the system's own counters."""

from types import SimpleNamespace

import psutil
import pynvml
import pytest

from ggbench.machine import readings
from ggbench.machine.readings import MachineReader, list_gpu_processes, name_processes
from ggbench.machine.records import GpuProcess, GpuReading
from tests.fakes.nvml import FakeNvml, install, replay

MIB = 1 << 20
LLAMA_SERVER = "/root/src/llama.cpp/build/bin/llama-server"


def read(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> tuple[GpuReading, ...]:
    install(monkeypatch, nvml)
    return MachineReader().read().gpus


def test_cards_report_clocks_temperature_power_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = replay("two-a5000")
    first, second = read(monkeypatch, nvml)
    assert first == GpuReading(
        index=0, name="NVIDIA RTX A5000", uuid="GPU-12345678-aaaa-bbbb-cccc-0123456789ab",
        pci_bus_id="00000000:81:00.0", sm_clock_mhz=210, memory_clock_mhz=405, temperature_c=13.0, power_w=6.41,
        used_bytes=(24564 - 1678) * MIB, total_bytes=24564 * MIB, energy_mj=None, throttle=(),
        processes=(GpuProcess(100477, LLAMA_SERVER, 22430 * MIB),),
    )  # fmt: skip
    assert (second.index, second.pci_bus_id, second.power_w) == (1, "00000000:C1:00.0", 13.6)
    assert second.processes == (GpuProcess(100477, LLAMA_SERVER, 17246 * MIB),)


def test_a_chip_with_unified_memory_reports_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, replay("gb10")) == (
        GpuReading(0, "NVIDIA GB10", pci_bus_id="0000000F:01:00.0", temperature_c=35.0, power_w=11.17),
    )


def test_a_zero_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = replay("h200")
    nvml.cards[0] |= {
        "TemperatureV": {"temperature": 0},
        "Temperature": {pynvml.NVML_TEMPERATURE_GPU: 0},
        "PowerUsage": 0,
        "TotalEnergyConsumption": 0,
        "ClockInfo": {pynvml.NVML_CLOCK_SM: 0, pynvml.NVML_CLOCK_MEM: 0},
    }
    (gpu,) = read(monkeypatch, nvml)
    values = (gpu.temperature_c, gpu.power_w, gpu.energy_mj, gpu.sm_clock_mhz, gpu.memory_clock_mhz)
    assert values == (None,) * 5


@pytest.mark.parametrize(
    ("recording", "reasons"),
    [
        pytest.param("two-a5000", (), id="none"),
        pytest.param("rtx-5090", ("sw_power_cap",), id="a power cap, which an idle GeForce may claim too"),
    ],
)
def test_throttle_reasons_are_read(monkeypatch: pytest.MonkeyPatch, recording: str, reasons: tuple[str, ...]) -> None:
    assert read(monkeypatch, replay(recording))[0].throttle == reasons


def test_a_list_with_invalid_pids_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pynvml reported these in https://github.com/XuehaiPan/nvitop/issues/75."""
    nvml = replay("rtx-2080-windows")
    pids = [1184, 0, 4294967295, 4294967295, 16040, 0, 4294967295, 4294967295, 19984]
    nvml.cards[0] |= {"ComputeRunningProcesses_v3": [{"pid": pid} for pid in pids]}
    del nvml.cards[0]["GraphicsRunningProcesses_v3"]
    (gpu,) = read(monkeypatch, nvml)
    assert gpu.processes is None


def test_a_process_on_several_gpus_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, replay("rtx-2080-windows", "rtx-2080-windows"))  # one card put twice into a machine
    assert [process.used_bytes for process in list_gpu_processes([0, 1])] == [None] * 4
    install(monkeypatch, replay("two-a5000"))
    assert list_gpu_processes([0, 1]) == (GpuProcess(100477, LLAMA_SERVER, (22430 + 17246) * MIB),)
    assert name_processes(list_gpu_processes([0, 1])) == "llama-server (pid 100477, 38.7 GiB)"
    assert name_processes(list_gpu_processes([1])) == "llama-server (pid 100477, 16.8 GiB)"


def test_a_machine_without_a_gpu_has_processors_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    times = [
        SimpleNamespace(_asdict=lambda: {"user": 10.0, "idle": 30.0, "iowait": 0.0, "guest": 10.0}, idle=30.0),
        SimpleNamespace(_asdict=lambda: {"user": 11.5, "idle": 32.0, "iowait": 0.5, "guest": 11.5}, idle=32.0),
    ]
    times[1].iowait = 0.5
    monkeypatch.setattr(psutil, "cpu_times", lambda: times.pop(0))
    reader = MachineReader()
    first, second = reader.read(), reader.read()
    assert (first.cpu_share, second.cpu_share) == (None, 0.375)
    assert first.gpus == second.gpus == ()
    assert second.used_bytes is not None and second.total_bytes is not None
    assert 0 < second.used_bytes < second.total_bytes
    assert first.at_ns <= second.at_ns


def test_processes_are_named_by_size_and_without_what_steers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose name cannot be decoded is listed all the same; those of other GPUs are not."""
    many = [GpuProcess(pid, f"/opt/p\x1b[2J{pid} --flag", pid << 20) for pid in range(5)]
    assert name_processes(many) == (
        "p[2J4 (pid 4, 4.00 MiB), p[2J3 (pid 3, 3.00 MiB), p[2J2 (pid 2, 2.00 MiB) and 2 more"
    )
    nvml = replay("two-a5000")
    nvml.process_names[100477] = b"\xf8\x95\xa0\x81\x8e"
    assert read(monkeypatch, nvml)[0].processes == (GpuProcess(100477, None, 22430 << 20),)
    assert list_gpu_processes([]) == ()


def test_the_load_is_that_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPUs were busy for 5 of 8 s: 1 with this process, 2 with a child of it that ended, 2 with others."""
    busy_and_total_s, own_s = iter([(100.0, 1000.0), (105.0, 1008.0)]), iter([(3.0, 1.0, 0, 0), (3.5, 1.5, 1.5, 0.5)])
    monkeypatch.setattr(readings, "cpu_seconds", lambda: next(busy_and_total_s))
    monkeypatch.setattr("os.times", lambda: next(own_s))
    assert readings.OthersWatch().share(0) == 2 / 8
