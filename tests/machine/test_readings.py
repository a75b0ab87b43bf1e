"""What the machine is doing, read through a stand-in for pynvml and the system's own counters."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from ggbench.machine.readings import MachineReader, list_gpu_processes, name_processes
from ggbench.machine_records import GpuProcess, GpuReading
from tests.fakes.nvml import GB10, RTX_4090, FakeNvml, install


def test_a_card_tells_clocks_heat_power_energy_and_who_holds_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are MHz, degrees, watts, bytes and millijoules; a program in both of NVML's lists is told once."""
    nvml = FakeNvml([RTX_4090])
    install(monkeypatch, nvml)

    with MachineReader() as reader:
        reading = reader.read()

    assert reading.gpus == (
        GpuReading(
            index=0,
            name="NVIDIA GeForce RTX 4090",
            uuid="GPU-3a1f6f2e-0c44-2f6b-9a42-6d0a1f4b7c11",
            pci_bus_id="00000000:01:00.0",
            sm_clock_mhz=2520,
            memory_clock_mhz=10251,
            temperature_c=71.0,
            power_w=318.45,
            used_bytes=926744576,
            total_bytes=25757220864,
            energy_mj=48_120_733,
            throttle=("sw_power_cap",),
            processes=(GpuProcess(911, None, 314_572_800), GpuProcess(4242, "/usr/bin/python3.11", 6_442_450_944)),
        ),
    )
    assert nvml.sessions == 0


def test_a_session_of_nvml_outlives_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings once a second do not start NVML once a second; closing ends the session, and twice is no error."""
    nvml = FakeNvml([RTX_4090])
    install(monkeypatch, nvml)
    reader = MachineReader()

    reader.read()
    reader.read()

    assert nvml.sessions == 1
    reader.close()
    reader.close()
    assert nvml.sessions == 0


def test_what_a_chip_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a refusal nor a 0 that a virtual GPU says for lack of an answer becomes a number."""
    zeros = {"Temperature": 0, "PowerUsage": 0, "TotalEnergyConsumption": 0, "ClockInfo": {1: 0, 2: 0}}
    install(monkeypatch, FakeNvml([GB10, {**GB10, **zeros}]))

    with MachineReader() as reader:
        refused, zero = reader.read().gpus

    told = {"name": "NVIDIA GB10", "uuid": GB10["UUID"], "pci_bus_id": "0000000F:01:00.0"}
    assert refused == GpuReading(index=0, **told)
    assert zero == GpuReading(index=1, **told)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        pytest.param(0x000, (), id="nothing holds the clocks down"),
        pytest.param(0x001, (), id="an idle GPU is not slowed"),
        pytest.param(0x064, ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown"), id="several at once"),
        pytest.param(0x8000, ("reason_0x8000",), id="a reason from a later driver"),
    ],
)
def test_throttle_reasons_have_nvidia_smis_names(
    monkeypatch: pytest.MonkeyPatch, bits: int, names: tuple[str, ...]
) -> None:
    """Each bit that is set is a name; no reason is another answer than no knowledge."""
    install(monkeypatch, FakeNvml([{**RTX_4090, "CurrentClocksEventReasons": bits}]))

    with MachineReader() as reader:
        assert reader.read().gpus[0].throttle == names


def test_an_older_driver_is_asked_by_the_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttle reasons come from drivers that do not know them as event reasons."""
    card = {**RTX_4090, "CurrentClocksThrottleReasons": 0x08}
    del card["CurrentClocksEventReasons"]
    install(monkeypatch, FakeNvml([card]))

    with MachineReader() as reader:
        assert reader.read().gpus[0].throttle == ("hw_slowdown",)


def test_a_machine_without_a_gpu_has_processors_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU's share is what was used between two readings, and unknown in the first."""
    install(monkeypatch, None)
    times = [
        SimpleNamespace(_asdict=lambda: {"user": 10.0, "idle": 30.0, "iowait": 0.0, "guest": 10.0}, idle=30.0),
        SimpleNamespace(_asdict=lambda: {"user": 11.5, "idle": 32.0, "iowait": 0.5, "guest": 11.5}, idle=32.0),
    ]
    times[1].iowait = 0.5
    monkeypatch.setattr(psutil, "cpu_times", lambda: times.pop(0))

    with MachineReader() as reader:
        first, second = reader.read(), reader.read()

    assert (first.cpu_share, second.cpu_share) == (None, 0.375)
    assert first.gpus == second.gpus == ()
    assert second.used_bytes is not None and second.total_bytes is not None
    assert 0 < second.used_bytes < second.total_bytes
    assert first.at_ns <= second.at_ns


def test_programs_are_named_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's name without folder or control characters, the largest first, and how many more there are."""
    install(monkeypatch, FakeNvml([RTX_4090]))
    assert name_processes(list_gpu_processes()) == (
        "python3.11 (pid 4242, 6.00 GiB), a program without a name (pid 911, 300.0 MiB)"
    )
    many = [GpuProcess(pid, f"C:\\apps\\p\x1b[2J{pid}.exe --flag", None) for pid in range(5)]
    assert name_processes(many) == "p[2J0.exe (pid 0), p[2J1.exe (pid 1), p[2J2.exe (pid 2) and 2 more"
    assert name_processes([]) == ""


def test_gpus_that_cuda_does_not_see_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a hidden GPU are not told, nor is there an error without NVML."""
    install(monkeypatch, FakeNvml([RTX_4090]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert list_gpu_processes() == ()
    install(monkeypatch, None)
    assert list_gpu_processes() == ()
