"""The figures of a machine that the theory needs, in one of two conventions of what GB and TFLOPS mean.

Datasheets count bandwidth and compute in powers of ten; the article takes the same numbers for powers of two, which is
7 and 10 percent more. A result without its convention could not be told apart from one in the other.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ggbench.machine.gpus import gpu_bandwidth
from ggbench.machine.known_gpus import KnownGpu, recognize_gpu
from ggbench.machine_records import Gpu
from ggbench.units import GIB


class Convention(enum.StrEnum):
    """What G and T stand for in bandwidth, compute and parameters. Memory is in GiB in both."""

    SI = "si"
    ARTICLE = "article"

    @property
    def is_binary(self) -> bool:
        """Whether G is 2^30 and T 2^40."""
        return self is Convention.ARTICLE

    @property
    def giga(self) -> int:
        """What G stands for."""
        return GIB if self.is_binary else 10**9

    @property
    def tera(self) -> int:
        """What T stands for."""
        return 1 << 40 if self.is_binary else 10**12

    @property
    def meaning(self) -> str:
        """In words."""
        return (
            "GB/s is 2^30 bytes/s, TFLOPS 2^40 flop/s, B 2^30 parameters; a GPU's compute is its FP16 rate without "
            "tensor cores"
            if self.is_binary
            else "GB/s is 10^9 bytes/s, TFLOPS 10^12 flop/s, B 10^9 parameters, as datasheets have it; a GPU's compute "
            "is its dense FP16 tensor rate"
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine as three figures, each with where it comes from; None is unknown."""

    name: str
    convention: Convention
    memory_bytes: int | None = None
    memory_source: str = ""
    bandwidth_bytes_per_s: float | None = None
    bandwidth_source: str = ""
    compute_flop_per_s: float | None = None
    compute_source: str = ""


def known_hardware(gpu: KnownGpu, convention: Convention) -> Hardware:
    """A GPU of the shipped table in this convention.

    The article's own figure for the RTX 4090, 82.58 TFLOPS, is the rate without tensor cores, so its convention takes
    that rate of every GPU; where it is not known, the tensor rate.
    """
    without_tensor_cores = convention.is_binary and gpu.fp16_tflops is not None
    tflops = gpu.fp16_tflops if without_tensor_cores else gpu.fp16_tensor_tflops
    rate = "FP16 without tensor cores" if without_tensor_cores else "FP16 tensor cores, dense"
    source = gpu.fp16_source if without_tensor_cores else gpu.fp16_tensor_source
    return Hardware(
        name=gpu.name,
        convention=convention,
        memory_bytes=round(gpu.memory_gib * GIB),
        memory_source=gpu.memory_source,
        bandwidth_bytes_per_s=gpu.bandwidth_gb_s * convention.giga,
        bandwidth_source=gpu.bandwidth_source,
        compute_flop_per_s=None if tflops is None else tflops * convention.tera,
        compute_source=f"{rate}; {source}",
    )


def driver_hardware(gpu: Gpu, convention: Convention) -> Hardware:
    """A GPU of this machine: memory and bandwidth as its driver says, compute where the shipped table has the GPU."""
    known = recognize_gpu(gpu.name, gpu.total_bytes)
    listed = Hardware(gpu.name, convention) if known is None else known_hardware(known, convention)
    told = gpu_bandwidth(gpu)
    return Hardware(
        name=gpu.name,
        convention=convention,
        memory_bytes=gpu.total_bytes or listed.memory_bytes,
        memory_source="NVML" if gpu.total_bytes else listed.memory_source,
        bandwidth_bytes_per_s=told.bytes_per_s / 1e9 * convention.giga if told else listed.bandwidth_bytes_per_s,
        bandwidth_source=told.source if told else listed.bandwidth_source,
        compute_flop_per_s=listed.compute_flop_per_s,
        compute_source=listed.compute_source,
    )
