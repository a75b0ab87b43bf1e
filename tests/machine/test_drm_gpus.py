"""AMD's and Intel's GPUs, read from planted driver files."""

from pathlib import Path

import pytest

from ggbench.machine.drm_gpus import list_drm_gpus, read_drm_gpus


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.machine.drm_gpus.SYSFS", tmp_path)


def plant(sysfs: Path, number: int, driver: str, address: str, files: dict[str, str]) -> None:
    """Write a card as the kernel lays it out: `class/drm/card0`, with links to the PCI device and its driver."""
    device, card = sysfs / "devices" / address, sysfs / f"class/drm/card{number}"
    for folder in (device, card, sysfs / "bus/pci/drivers" / driver):
        folder.mkdir(parents=True)
    (device / "driver").symlink_to(sysfs / "bus/pci/drivers" / driver)
    (card / "device").symlink_to(device)
    (sysfs / f"class/drm/card{number}-DP-1").mkdir()
    for name, text in files.items():
        file = card / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def test_a_radeon_reports_memory_clocks_heat_and_power(tmp_path: Path) -> None:
    sensors = "device/hwmon/hwmon3/"
    plant(tmp_path, 1, "amdgpu", "0000:03:00.0", {
        "device/device": "0x744c",
        "device/mem_info_vram_total": str(24 << 30), "device/mem_info_vram_used": str(1 << 30),
        "device/mem_info_gtt_used": str(5 << 20),
        f"{sensors}temp1_input": "61000", f"{sensors}power1_average": "213000000",
        f"{sensors}freq1_input": "2371000000", f"{sensors}freq2_input": "1249000000",
    })  # fmt: skip
    [gpu], [reading] = list_drm_gpus(2), read_drm_gpus(2)
    assert (gpu.index, gpu.name, gpu.pci_bus_id, gpu.driver) == (2, "AMD GPU 0x744c", "0000:03:00.0", "amdgpu")
    assert (gpu.total_bytes, gpu.free_bytes) == (24 << 30, 23 << 30)
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz, reading.temperature_c) == (2371, 1249, 61.0)
    assert (reading.power_w, reading.energy_mj, reading.used_bytes) == (213.0, None, 1 << 30)
    assert reading.shared_bytes == 5 << 20


def test_an_arc_reports_its_clock_and_energy(tmp_path: Path) -> None:
    plant(tmp_path, 0, "xe", "0000:0b:00.0", {
        "device/device": "0xe20b", "device/tile0/gt0/freq0/act_freq": "2850",
        "device/hwmon/hwmon5/energy1_input": "81234567",
    })  # fmt: skip
    [reading] = read_drm_gpus()
    assert (reading.name, reading.sm_clock_mhz, reading.energy_mj) == ("Intel GPU 0xe20b", 2850, 81234)
    assert (reading.temperature_c, reading.total_bytes) == (None, None)


def test_integrated_graphics_and_other_drivers(tmp_path: Path) -> None:
    plant(tmp_path, 1, "nvidia", "0000:01:00.0", {})
    plant(tmp_path, 0, "i915", "0000:00:02.0", {"device/device": "0x46a6", "gt/gt0/rps_act_freq_mhz": "1300"})
    [reading] = read_drm_gpus()
    assert (reading.pci_bus_id, reading.sm_clock_mhz) == ("0000:00:02.0", 1300)


def test_a_machine_without_graphics() -> None:
    assert (list_drm_gpus(), read_drm_gpus()) == ((), ())
