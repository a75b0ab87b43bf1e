"""Hardware figures used by the theory, in one of two conventions: datasheets' (si) or the article's.

Datasheets give bandwidth and compute in powers of ten; the article reads the same numbers as powers of two, which is 7
and 10 percent more, and reads the KV cache once for each token of a prompt. Every result names its convention.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from ggbench.machine.gpus import gpu_bandwidth
from ggbench.machine.known_gpus import KnownGpu, recognize_gpu
from ggbench.machine.records import Gpu
from ggbench.units import GIB


class KvReads(enum.StrEnum):
    """How often prefill reads the KV cache of the prompt from memory."""

    ONCE = "once"
    """Once for the whole prompt: the limit of flash attention, which shares reads between tokens."""
    EACH_TOKEN = "each_token"
    """Once for each token, which reads all positions up to its own (the article, section 4.3)."""


class Convention(enum.StrEnum):
    """What G and T mean in bandwidth, compute and parameters, and how prefill reads KV. Memory is in GiB in both."""

    SI = "si"
    ARTICLE = "article"

    @property
    def is_binary(self) -> bool:
        """Whether G is 2^30 and T 2^40."""
        return self is Convention.ARTICLE

    @property
    def giga(self) -> int:
        """Value of the prefix G."""
        return GIB if self.is_binary else 10**9

    @property
    def tera(self) -> int:
        """Value of the prefix T."""
        return 1 << 40 if self.is_binary else 10**12

    @property
    def kv_reads(self) -> KvReads:
        """How often prefill reads the KV cache."""
        return KvReads.EACH_TOKEN if self is Convention.ARTICLE else KvReads.ONCE

    @property
    def meaning(self) -> str:
        """Description in words."""
        return (
            "GB/s is 2^30 bytes/s, TFLOPS 2^40 flop/s, B 2^30 parameters; compute is the GPU's FP16 rate without "
            "tensor cores; in prefill each token reads all KV before it"
            if self is Convention.ARTICLE
            else "GB/s is 10^9 bytes/s, TFLOPS 10^12 flop/s, B 10^9 parameters, as in datasheets; compute is the GPU's "
            "dense FP16 tensor rate; prefill reads the KV cache once"
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """Memory, bandwidth and compute rate of a machine, each with its source; None is unknown."""

    name: str
    convention: Convention
    memory_bytes: int | None = None
    memory_source: str = ""
    bandwidth_bytes_per_s: float | None = None
    bandwidth_source: str = ""
    compute_flop_per_s: float | None = None
    compute_source: str = ""


def known_hardware(gpu: KnownGpu, convention: Convention) -> Hardware:
    """Return the figures of a GPU of the shipped table in this convention.

    The article's figure for the RTX 4090, 82.58 TFLOPS, is the rate without tensor cores, so its convention uses that
    rate for every GPU, and the tensor rate if it is unknown.
    """
    tflops, rate, source = gpu.fp16_tensor_tflops, "FP16 tensor cores, dense", gpu.fp16_tensor_source
    if convention.is_binary and gpu.fp16_tflops is not None:
        tflops, rate, source = gpu.fp16_tflops, "FP16 without tensor cores", gpu.fp16_source
    return Hardware(
        name=gpu.name,
        convention=convention,
        memory_bytes=round(gpu.memory_gib * GIB),
        memory_source=gpu.memory_source,
        bandwidth_bytes_per_s=gpu.bandwidth_gb_s * convention.giga,
        bandwidth_source=gpu.bandwidth_source,
        compute_flop_per_s=tflops * convention.tera,
        compute_source=f"{rate}; {source}",
    )


def driver_hardware(gpu: Gpu, convention: Convention) -> Hardware:
    """Return the figures of a GPU of this machine: memory and bandwidth from its driver, compute from the table."""
    known = recognize_gpu(gpu.name, gpu.total_bytes)
    hardware = Hardware(gpu.name, convention)
    if known is not None:
        hardware = replace(known_hardware(known, convention), name=gpu.name)
    if gpu.total_bytes:
        hardware = replace(hardware, memory_bytes=gpu.total_bytes, memory_source="NVML")
    if reported := gpu_bandwidth(gpu):
        rate = reported.bytes_per_s / 1e9 * convention.giga
        hardware = replace(hardware, bandwidth_bytes_per_s=rate, bandwidth_source=reported.source)
    return hardware
