"""AMD's and Intel's GPUs by the files of their Linux drivers, which add memory, clocks, temperature, power and energy.

Sources: the kernel's "GPU Power/Thermal Controls and Monitoring" of amdgpu, and its ABI documents
sysfs-driver-intel-i915-hwmon, sysfs-driver-intel-xe-hwmon and sysfs-driver-intel-xe-freq; i915's own clocks are in
`gt/gt0`. A missing file loses only its own value. Clocks' reasons and processes are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ggbench.machine.host import SYSFS, read_number, read_text
from ggbench.machine.records import Gpu, GpuReading

_DRIVERS = {"amdgpu": "AMD GPU", "i915": "Intel GPU", "xe": "Intel GPU"}
_CORE_CLOCKS = ("gt/gt0/rps_act_freq_mhz", "device/tile0/gt0/freq0/act_freq")
"""Clock files of i915 and xe, below the card's folder, in MHz."""


def list_drm_gpus(first_index: int = 0) -> tuple[Gpu, ...]:
    """Return the GPUs of these drivers in the order of their PCI addresses, numbered from `first_index` on."""
    found = []
    for index, (address, card) in enumerate(_cards(), first_index):
        device, driver = card / "device", _driver(card)
        total = read_number(device / "mem_info_vram_total")
        used = read_number(device / "mem_info_vram_used")
        found.append(
            Gpu(
                index=index,
                name=_name(card),
                uuid=None,
                pci_bus_id=address,
                total_bytes=total,
                free_bytes=None if total is None or used is None else total - used,
                bus_width_bits=None,
                memory_clock_mhz=None,
                driver=driver,
            )
        )
    return tuple(found)


def read_drm_gpus(first_index: int = 0) -> tuple[GpuReading, ...]:
    """Read the same GPUs at one moment."""
    return tuple(_read(index, address, card) for index, (address, card) in enumerate(_cards(), first_index))


def _read(index: int, address: str, card: Path) -> GpuReading:
    device = card / "device"
    sensors = next(iter(sorted((device / "hwmon").glob("hwmon*"))), device / "hwmon")
    power_uw = read_number(sensors / "power1_average") or read_number(sensors / "power1_input")
    energy_uj, temperature = read_number(sensors / "energy1_input"), read_number(sensors / "temp1_input")
    hertz = [read_number(sensors / f"freq{number}_input") for number in (1, 2)]
    core_mhz, memory_mhz = (None if not rate else rate // 1_000_000 for rate in hertz)
    clocks = (read_number(card / name) for name in _CORE_CLOCKS)
    return GpuReading(
        index=index,
        name=_name(card),
        pci_bus_id=address,
        sm_clock_mhz=core_mhz or next(filter(None, clocks), None),
        memory_clock_mhz=memory_mhz,
        temperature_c=None if not temperature else temperature / 1e3,
        power_w=None if not power_uw else power_uw / 1e6,
        used_bytes=read_number(device / "mem_info_vram_used"),
        total_bytes=read_number(device / "mem_info_vram_total"),
        shared_bytes=read_number(device / "mem_info_gtt_used"),
        energy_mj=None if not energy_uj else energy_uj // 1000,
    )


def _cards() -> Iterator[tuple[str, Path]]:
    """Yield PCI address and folder of each card of these drivers, in the order of the addresses."""
    cards = [card for card in (SYSFS / "class/drm").glob("card*") if card.name[4:].isdigit()]
    found = [((card / "device").resolve().name, card) for card in cards if _driver(card) in _DRIVERS]
    yield from sorted(found)


def _driver(card: Path) -> str:
    return (card / "device/driver").resolve().name


def _name(card: Path) -> str:
    """Return the product's name, or the vendor with the PCI device's number: `AMD GPU 0x744c`."""
    product = read_text(card / "device/product_name")
    return product or f"{_DRIVERS[_driver(card)]} {read_text(card / 'device/device') or ''}".strip()
