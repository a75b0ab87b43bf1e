"""Hardware figures used by the theory, read as the article reads them: G is 2^30 and T 2^40.

Datasheets give bandwidth and compute in powers of ten, so these are 7 and 10 percent more than a datasheet says.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ggbench.machine.gpus import KnownGpu, gpu_bandwidth, recognize_gpu
from ggbench.machine.records import Gpu
from ggbench.units import GIB

GIGA, TERA = GIB, 1 << 40
MEANING = (
    "GB/s is 2^30 bytes/s, TFLOPS 2^40 flop/s, B 2^30 parameters; compute is the GPU's FP16 rate without tensor cores; "
    "in prefill each token reads all KV before it"
)


class Hardware(msgspec.Struct, frozen=True):
    """Memory, bandwidth and compute rate of a machine, each with its source; None is unknown."""

    name: str
    memory_bytes: int | None = None
    memory_source: str = ""
    bandwidth_bytes_per_s: float | None = None
    bandwidth_source: str = ""
    compute_flop_per_s: float | None = None
    compute_source: str = ""


def known_hardware(gpu: KnownGpu) -> Hardware:
    """Return the figures of a GPU of the shipped table.

    The article's figure for the RTX 4090, 82.58 TFLOPS, is the rate without tensor cores, so that rate is used for
    every GPU, and the tensor rate if it is unknown.
    """
    tflops, rate, source = gpu.fp16_tensor_tflops, "FP16 tensor cores, dense", gpu.fp16_tensor_source
    if gpu.fp16_tflops is not None:
        tflops, rate, source = gpu.fp16_tflops, "FP16 without tensor cores", gpu.fp16_source
    return Hardware(
        name=gpu.name,
        memory_bytes=round(gpu.memory_gib * GIB),
        memory_source=gpu.memory_source,
        bandwidth_bytes_per_s=gpu.bandwidth_gb_s * GIGA,
        bandwidth_source=gpu.bandwidth_source,
        compute_flop_per_s=tflops * TERA,
        compute_source=f"{rate}; {source}",
    )


def driver_hardware(gpu: Gpu) -> Hardware:
    """Return the figures of a GPU of this machine: memory and bandwidth from its driver, compute from the table."""
    known = recognize_gpu(gpu.name, gpu.total_bytes)
    hardware = Hardware(gpu.name)
    if known is not None:
        hardware = replace(known_hardware(known), name=gpu.name)
    if gpu.total_bytes:
        hardware = replace(hardware, memory_bytes=gpu.total_bytes, memory_source="NVML")
    if reported := gpu_bandwidth(gpu):
        rate = reported.bytes_per_s / 1e9 * GIGA
        hardware = replace(hardware, bandwidth_bytes_per_s=rate, bandwidth_source=reported.source)
    return hardware
