"""The memory to keep within: for a plan a card by name, a size or this machine's; for a search what is free here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ggbench.errors import DoesNotFit, UsageError
from ggbench.machine.bandwidth import cached_bandwidth
from ggbench.machine.cpu import describe_cpu
from ggbench.machine.gpus import find_cuda_gpu, gpu_bandwidth, visible_gpus
from ggbench.machine.known_gpus import find_gpu
from ggbench.machine.memory import describe_ram
from ggbench.records.machine import Gpu
from ggbench.records.plan import Budget
from ggbench.records.setup import LlamaSetup
from ggbench.records.speed import Bandwidth
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.units import GIB, MIB, format_bytes, format_count

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


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """The memory that weights and context may take: of all GPUs in use together, else main memory."""

    on_gpu: bool
    free_bytes: int
    """Before anything was loaded."""
    budget_bytes: int
    reserve_bytes: int
    """Kept out of the budget, of each GPU."""
    worker_limit_bytes: int | None
    """What the worker is held to, on each GPU; None leaves a GPU as it is. Main memory is always held, or overcommit
    would lie."""
    worker_reserve_bytes: int = 0
    """What the worker sets aside on each GPU in addition."""
    gpus: tuple[Gpu, ...] = ()
    """Those in use, as they were before anything was loaded; empty where NVML does not know them."""
    warning: str = ""

    @property
    def place(self) -> Literal["GPU memory", "main memory"]:
        """For people."""
        return "GPU memory" if self.on_gpu else "main memory"


def search_budget(
    dry: DryAllocator, context: DryContext | None, gpus: Sequence[Gpu], setup: LlamaSetup, reserve_bytes: int | None
) -> SearchBudget:
    """The budget of a model that was loaded dry, with a dry context of it; None where llama.cpp would not make one.

    `gpus` are NVML's as they were before the dry worker took some of their memory. Raises DoesNotFit where nothing is
    left to take.
    """
    found = tuple(find_cuda_gpu(gpus, *device) for device in dry.gpu_devices)
    used = tuple(gpu for gpu in found if gpu is not None)
    # Of a model that llama.cpp does not load dry, only what NVML reports of the GPUs is known.
    computes_on_gpu = bool(used) if context is None else context.device_compute_bytes > 0
    limit_bytes = setup.memory_limit_bytes
    if not setup.n_gpu_layers or not computes_on_gpu:
        return main_memory_budget(limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    n_gpus = max(1, len(found))
    return gpu_budget(
        used if len(used) == len(found) else (),
        [dry.free_bytes // n_gpus] * n_gpus,
        limit_bytes=limit_bytes,
        reserve_bytes=reserve_bytes,
    )


def gpu_budget(
    gpus: Sequence[Gpu], reported_bytes: Sequence[int], *, limit_bytes: int | None, reserve_bytes: int | None
) -> SearchBudget:
    """What is free on these GPUs at this moment, or the limit of each, whichever is less, without its reserve.

    No reserve is kept unless it is given: real allocations need no allowance for what a driver takes. `reported_bytes`
    is what llama.cpp finds free on each, for GPUs that NVML does not know. Raises DoesNotFit where nothing is left.
    """
    known = tuple(free for gpu in gpus if (free := gpu.free_bytes or gpu.total_bytes))
    each_free = known if gpus and len(known) == len(gpus) else tuple(reported_bytes)
    reserve = reserve_bytes or 0
    most = [free if limit_bytes is None else min(free or limit_bytes, limit_bytes) for free in each_free]
    return SearchBudget(
        on_gpu=True,
        free_bytes=sum(each_free),
        budget_bytes=_without_reserve(most, reserve, "GPU memory"),
        reserve_bytes=reserve,
        worker_limit_bytes=limit_bytes,
        worker_reserve_bytes=reserve,
        gpus=tuple(gpus) if len(known) == len(gpus) else (),
        warning=_lower_than_asked(min(each_free), limit_bytes),
    )


def main_memory_budget(*, limit_bytes: int | None, reserve_bytes: int | None) -> SearchBudget:
    """What is available at this moment or the limit, whichever is less, without the reserve.

    Unless given, a reserve is kept where there is no limit. Raises DoesNotFit where nothing is left.
    """
    free_bytes = describe_ram().available_bytes
    if reserve_bytes is None:
        reserve_bytes = CPU_RESERVE_BYTES if limit_bytes is None else 0
    most = free_bytes if limit_bytes is None else min(limit_bytes, free_bytes or limit_bytes)
    budget_bytes = _without_reserve([most], reserve_bytes, "main memory")
    return SearchBudget(
        on_gpu=False,
        free_bytes=free_bytes,
        budget_bytes=budget_bytes,
        reserve_bytes=reserve_bytes,
        worker_limit_bytes=budget_bytes,
        warning=_lower_than_asked(free_bytes, limit_bytes),
    )


def taken_bytes(budget: SearchBudget, gpus: Sequence[Gpu]) -> int | None:
    """How much less the GPUs of a budget have free than before; None where NVML does not report each."""
    free_now = {gpu.index: gpu.free_bytes for gpu in gpus}
    total_bytes = 0
    for before in budget.gpus:
        free_bytes, after_bytes = before.free_bytes, free_now.get(before.index)
        if free_bytes is None or after_bytes is None:
            return None
        if budget.worker_limit_bytes is not None:
            free_bytes = min(free_bytes, budget.worker_limit_bytes)
        # The worker's ballast is no part of what it needed.
        total_bytes += free_bytes - budget.worker_reserve_bytes - after_bytes
    return total_bytes if total_bytes > 0 else None


def _without_reserve(most_bytes: Sequence[int], reserve_bytes: int, place: str) -> int:
    left_bytes = sum(max(0, each - reserve_bytes) for each in most_bytes)
    if left_bytes == 0 and not reserve_bytes:
        raise DoesNotFit(f"nothing of {place} is free", "close what holds it")
    if left_bytes == 0:
        raise DoesNotFit(
            f"of {format_bytes(sum(most_bytes))} of {place} a reserve of {format_bytes(reserve_bytes)} leaves nothing",
            "give a smaller --reserve, or close what holds the memory",
        )
    return left_bytes


def _lower_than_asked(free_bytes: int, limit_bytes: int | None) -> str:
    if limit_bytes is None or not free_bytes or free_bytes >= limit_bytes:
        return ""
    return f"only {format_bytes(free_bytes)} are free, so the limit of {format_bytes(limit_bytes)} is lower here"
