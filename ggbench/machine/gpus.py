"""NVIDIA GPUs as reported by NVML, NVIDIA's management library, and their peak memory bandwidth.

Chips and drivers support different queries, so a failed query loses only its own value.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from ggbench.machine.host import SYSFS, read_text
from ggbench.machine.records import Gpu
from ggbench.stats.decode_timing import Bandwidth


class Nvml:
    """An NVML session. Handles and results are pynvml's types."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml

    def query(self, name: str, *args: object) -> Any:  # noqa: ANN401 - pynvml has no types
        """Call a pynvml function; None if NVML or this driver does not support it."""
        function = getattr(self._pynvml, name, None)  # pynvml removes functions that NVIDIA retires
        try:
            return None if function is None else function(*args)
        except (self._pynvml.NVMLError, UnicodeDecodeError):
            # pynvml decodes names as UTF-8, but under WSL they may not be (cuda-python pull request 2118).
            return None

    def identity(self, index: int, handle: Any) -> dict[str, Any]:  # noqa: ANN401
        pci = self.query("nvmlDeviceGetPciInfo", handle)
        return {
            "index": index,
            "name": self.query("nvmlDeviceGetName", handle) or "NVIDIA GPU",
            "uuid": self.query("nvmlDeviceGetUUID", handle),
            "pci_bus_id": None if pci is None else pci.busId,
        }

    def devices(self) -> Iterator[tuple[int, Any]]:
        """Yield index and handle of every GPU in NVML's order, the order of the PCI bus; lost GPUs are skipped."""
        for index in range(self.query("nvmlDeviceGetCount") or 0):
            handle = self.query("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                yield index, handle

    def constant(self, name: str) -> int:
        return int(getattr(self._pynvml, name))

    def close(self) -> None:
        """Shut down this session; NVML counts sessions, so others stay open."""
        self.query("nvmlShutdown")


def open_nvml() -> Nvml | None:
    """Open NVML, to be closed by the caller; None if there is no driver."""
    with warnings.catch_warnings():
        # The retired distribution `pynvml` emits a FutureWarning on import where it is installed too.
        warnings.simplefilter("ignore", FutureWarning)
        import pynvml
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return Nvml(pynvml)


_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
"""The class of PCI display controllers, including 3D controllers without an output."""


def driver_problem() -> str:
    """Return why NVML cannot be opened, e.g. `Driver/library version mismatch`; empty if it can, or without a card.

    NVML's library is part of the driver, so without one it is `NVML Shared Library Not Found`.
    """
    import pynvml

    devices = (SYSFS / "bus/pci/devices").glob("*")
    cards = [each for each in devices if read_text(each / "vendor") == _NVIDIA]
    if not any((read_text(each / "class") or "").startswith(_DISPLAY_CLASS) for each in cards):
        return ""
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return str(error)
    return ""


def list_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs in PCI bus order, regardless of CUDA_VISIBLE_DEVICES; none without a driver."""
    nvml = open_nvml()
    if nvml is None:
        return ()
    with contextlib.closing(nvml):
        return tuple(describe_gpu(nvml, index, handle) for index, handle in nvml.devices())


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs visible to CUDA programs: all, or those in CUDA_VISIBLE_DEVICES, in its order.

    Source: the environment variables in the CUDA programming guide. Entries are indices, UUIDs or UUID prefixes; an
    entry that matches no GPU ends the list. MIG instances are left out. Indices are interpreted as NVML's.
    """
    return tuple(gpu for gpu in cuda_devices(list_gpus()) if gpu is not None)


def cuda_devices(gpus: Sequence[Gpu]) -> tuple[Gpu | None, ...]:
    """Return CUDA's devices in order, like `visible_gpus`, but with None for each MIG instance."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return tuple(gpus)
    devices: list[Gpu | None] = []
    for name in (name.strip() for name in names.split(",")):
        found = _named(gpus, name)
        if found is None and not name.upper().startswith("MIG-"):
            break
        devices.append(found)
    return tuple(devices)


def find_cuda_gpu(gpus: Sequence[Gpu], device: str, device_id: str | None) -> Gpu | None:
    """Return the GPU that llama.cpp calls `device` (`CUDA0`): found by its PCI bus id or UUID, else by its number.

    None if that is ambiguous: several GPUs in CUDA's default order (fastest first), and no id.
    """
    if device_id is not None:
        return next((gpu for gpu in gpus if _has_id(gpu, device_id)), None)
    match = re.fullmatch(r"CUDA(\d+)", device)
    devices = cuda_devices(gpus)
    if match is None or int(match[1]) >= len(devices):
        return None
    number, names = int(match[1]), os.environ.get("CUDA_VISIBLE_DEVICES", "").upper().split(",")
    is_by_uuid = any(name.strip().startswith("GPU-") for name in names[number : number + 1])
    has_known_order = len(gpus) <= 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return devices[number] if is_by_uuid or has_known_order else None


def _has_id(gpu: Gpu, device_id: str) -> bool:
    """Return whether the GPU has this PCI bus id or UUID, in CUDA's spelling.

    CUDA writes the domain of a bus id with four digits where NVML uses eight, and some tools omit the UUID's `GPU-`.
    """
    if ":" in device_id:
        return gpu.pci_bus_id is not None and _bus_id_parts(gpu.pci_bus_id) == _bus_id_parts(device_id)
    return gpu.uuid is not None and _plain_uuid(gpu.uuid) == _plain_uuid(device_id)


def _named(gpus: Sequence[Gpu], name: str) -> Gpu | None:
    """Return the GPU of a CUDA_VISIBLE_DEVICES entry; None if it matches none or several."""
    if name.isdecimal():
        return gpus[int(name)] if int(name) < len(gpus) else None
    if not name.upper().startswith("GPU-"):
        return None
    begins = [gpu for gpu in gpus if gpu.uuid and _plain_uuid(gpu.uuid).startswith(_plain_uuid(name))]
    return begins[0] if len(begins) == 1 else None


def _bus_id_parts(bus_id: str) -> list[str]:
    return [part.lstrip("0") for part in bus_id.lower().replace(".", ":").split(":")]


def _plain_uuid(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def gpu_bandwidth(gpu: Gpu) -> Bandwidth | None:
    """Return a GPU's peak memory bandwidth: bus width x memory clock x 2; None if the driver does not report them.

    NVML's memory clock is half the data rate per pin for both GDDR and HBM: 384 bit x 10501 MHz gives the 1008 GB/s of
    the RTX 4090's datasheet, 5120 bit x 1593 MHz the 2039 GB/s of the A100 80GB SXM's.
    """
    if not gpu.bus_width_bits or not gpu.memory_clock_mhz:
        return None
    return Bandwidth(
        bytes_per_s=gpu.bus_width_bits / 8 * gpu.memory_clock_mhz * 1e6 * 2,
        source=f"NVML: {gpu.bus_width_bits} bit x {gpu.memory_clock_mhz} MHz x 2",
    )


def describe_gpu(nvml: Nvml, index: int, handle: Any) -> Gpu:  # noqa: ANN401 - pynvml has no types
    memory = nvml.query("nvmlDeviceGetMemoryInfo", handle)
    return Gpu(
        **nvml.identity(index, handle),
        total_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        bus_width_bits=nvml.query("nvmlDeviceGetMemoryBusWidth", handle) or None,
        memory_clock_mhz=nvml.query("nvmlDeviceGetMaxClockInfo", handle, nvml.constant("NVML_CLOCK_MEM"))
        or None,
        driver=nvml.query("nvmlSystemGetDriverVersion"),
    )
