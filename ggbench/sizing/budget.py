"""The memory that a plan has to keep within: a card by name, a size, this machine's GPU, or its main memory."""

from __future__ import annotations

from ggbench.errors import UsageError
from ggbench.records.plan import Budget
from ggbench.records.speed import Bandwidth
from ggbench.units import GIB, MIB, format_count

CARD_RESERVE_BYTES = 1280 * MIB
"""Of a card's whole memory.

Source: the article, table 6.3.9. At the longest contexts that loaded on its 24 GiB RTX 4090, flash attention off, what
llama.cpp's buffers leave is 1.2 to 1.7 GiB over 46 quants, in the smaller models, whose steps are fine, 1.2 to 1.25.
"""
FREE_RESERVE_BYTES = GIB
"""Of what a GPU has free, the driver's own share being taken already.

Source: the margin that llama.cpp's own fitting leaves on each device, the default of its `--fit-target`.
"""
CPU_RESERVE_BYTES = GIB
"""Of main memory, for the process that llama.cpp runs in, 60 MiB measured without any buffer, and for everything else.

With 256 MiB kept free, decodes at 231,000 tokens took 56 s, 166 s and over 250 s on 24 GiB without swap.
"""
BESIDE_BUFFERS_BYTES = 64 * MIB
"""What a context takes of a limit besides its buffers: graphs, cell tables; some 50 MiB measured."""


def given_budget(
    *, gpu: str | None, vram_bytes: int | None, reserve_bytes: int | None, bandwidth: Bandwidth | None
) -> Budget:
    """A card that need not be here: a known one by its name, a size, or a known one with another size.

    Raises UnknownName for a card, UsageError where neither is given.
    """
    if gpu is None:
        if vram_bytes is None:
            raise UsageError("no memory to plan for", "name a card with --gpu, or a size with --vram")
        return _card("a GPU of the given size", vram_bytes, "given", reserve_bytes, bandwidth)
    from ggbench.machine.known_gpus import find_gpu

    known = find_gpu(gpu)
    memory_bytes, source = round(known.memory_gib * GIB), known.memory_source
    if vram_bytes is not None:
        memory_bytes, source = vram_bytes, "given"
    stated = Bandwidth(known.bandwidth_gb_s * 1e9, known.bandwidth_source)
    return _card(known.name, memory_bytes, source, reserve_bytes, bandwidth or stated)


def machine_budget(
    *, n_gpu_layers: int, main_gpu: int | None, threads: int, reserve_bytes: int | None, bandwidth: Bandwidth | None
) -> Budget:
    """What is free on this machine's GPU; of its main memory where it has none, or where no layer is offloaded.

    May measure the bandwidth of main memory, which takes a second or two the first time. Raises UsageError for a GPU
    that is not here.
    """
    from ggbench.machine.gpus import gpu_bandwidth, visible_gpus

    gpus = visible_gpus() if n_gpu_layers else ()
    if not gpus:
        return _in_main_memory(threads, reserve_bytes, bandwidth)
    if (main_gpu or 0) >= len(gpus):
        raise UsageError(f"there is no GPU {main_gpu} here", f"there are {format_count(len(gpus))}, counted from 0")
    gpu = gpus[main_gpu or 0]
    free = gpu.free_bytes if gpu.free_bytes is not None else gpu.total_bytes
    if free is None:
        return _in_main_memory(threads, reserve_bytes, bandwidth)
    reserved, why = _reserve(
        reserve_bytes, FREE_RESERVE_BYTES, "for CUDA, as much as llama.cpp's --fit-target leaves free"
    )
    free_source = "NVML" if gpu.free_bytes is None else "free at this moment, NVML"
    if len(gpus) > 1:
        free_source += f"; GPU {gpu.index} of {len(gpus)} alone"
    return Budget(gpu.name, True, free, free_source, reserved, why, bandwidth or gpu_bandwidth(gpu))


def _card(
    device: str, memory_bytes: int, source: str, reserve_bytes: int | None, bandwidth: Bandwidth | None
) -> Budget:
    reserved, why = _reserve(
        reserve_bytes,
        CARD_RESERVE_BYTES,
        "for driver and CUDA; published searches on an RTX 4090 ended with so much unused",
    )
    return Budget(device, True, memory_bytes, source, reserved, why, bandwidth)


def _reserve(given_bytes: int | None, default_bytes: int, why: str) -> tuple[int, str]:
    """Bytes with where they come from."""
    return (default_bytes, why) if given_bytes is None else (given_bytes, "given")


def _in_main_memory(threads: int, reserve_bytes: int | None, bandwidth: Bandwidth | None) -> Budget:
    from ggbench.machine.bandwidth import cached_bandwidth
    from ggbench.machine.cpu import describe_cpu
    from ggbench.machine.memory import describe_ram

    reserved, why = _reserve(reserve_bytes, CPU_RESERVE_BYTES, "for the process that llama.cpp runs in, and the system")
    return Budget(
        device=f"{describe_cpu().name}, main memory",
        on_gpu=False,
        memory_bytes=describe_ram().available_bytes,
        memory_source="available at this moment",
        reserve_bytes=reserved,
        reserve_source=why,
        bandwidth=bandwidth or cached_bandwidth(threads),
    )
