"""NVIDIA GPUs as NVML describes them, and the bandwidth that follows.

NVML leaves out different facts on different chips, so each is asked for by itself and a refusal costs only that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from ggbench.records import Bandwidth, Gpu

T = TypeVar("T")


def list_gpus() -> tuple[Gpu, ...]:
    """All GPUs of the machine in NVML's order, that of the PCI bus; CUDA_VISIBLE_DEVICES does not change it.

    Empty where there is no GPU, no driver or no NVML.
    """
    try:
        with warnings.catch_warnings():
            # Where the retired distribution `pynvml` is installed too, it warns of itself at this import.
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        count = _ask(pynvml, pynvml.nvmlDeviceGetCount) or 0
        gpus = (_describe(pynvml, index) for index in range(count))
        return tuple(gpu for gpu in gpus if gpu is not None)
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)


def is_bus_id(gpu: Gpu, bus_id: str) -> bool:
    """Whether the GPU sits at this PCI bus id; CUDA writes the domain with four digits where NVML has eight."""

    def parts(text: str) -> list[str]:
        return [part.lstrip("0") for part in text.lower().replace(".", ":").split(":")]

    return gpu.pci_bus_id is not None and parts(gpu.pci_bus_id) == parts(bus_id)


def gpu_bandwidth(gpu: Gpu) -> Bandwidth | None:
    """Peak bandwidth of a GPU's memory: bus width x memory clock x 2; None where the driver does not say.

    NVML's memory clock is half the data rate of a pin for GDDR and HBM alike: 384 bit x 10501 MHz gives the 1008 GB/s
    of the RTX 4090's datasheet, 5120 bit x 1593 MHz the 2039 GB/s of the A100 80GB SXM's.
    """
    if not gpu.bus_width_bits or not gpu.memory_clock_mhz:
        return None
    return Bandwidth(
        bytes_per_s=gpu.bus_width_bits / 8 * gpu.memory_clock_mhz * 1e6 * 2,
        source=f"NVML: {gpu.bus_width_bits} bit x {gpu.memory_clock_mhz} MHz x 2",
    )


def _describe(pynvml: ModuleType, index: int) -> Gpu | None:
    handle = _ask(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    memory = _ask(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = _ask(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    return Gpu(
        index=index,
        name=_ask(pynvml, pynvml.nvmlDeviceGetName, handle) or "NVIDIA GPU",
        uuid=_ask(pynvml, pynvml.nvmlDeviceGetUUID, handle),
        pci_bus_id=None if pci is None else pci.busId,
        total_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        bus_width_bits=_ask(pynvml, pynvml.nvmlDeviceGetMemoryBusWidth, handle) or None,
        memory_clock_mhz=_ask(pynvml, pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM) or None,
        driver=_ask(pynvml, pynvml.nvmlSystemGetDriverVersion),
    )


def _ask(pynvml: ModuleType, question: Callable[..., T], *args: object) -> T | None:
    """The answer, or None where NVML has none."""
    try:
        return question(*args)
    except pynvml.NVMLError:
        return None
