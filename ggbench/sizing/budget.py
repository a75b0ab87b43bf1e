"""The memory to keep within: for a plan a card by name, a size or this machine's; for a search what is free here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, UsageError
from ggbench.machine.bandwidth import cached_bandwidth, known_bandwidth
from ggbench.machine.gpus import find_cuda_gpu, find_gpu, gpu_bandwidth, visible_gpus
from ggbench.machine.host import describe_cpu, describe_ram
from ggbench.machine.records import Gpu
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.plan_record import Budget, DeviceMemory
from ggbench.stats.decode_timing import Bandwidth
from ggbench.text import in_words
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
"""The most that is kept of main memory; of a smaller one it is the share below.

With 256 MiB kept free, decodes at 231,000 tokens took 56 s, 166 s and over 250 s on 24 GiB without swap.
"""
CPU_RESERVE_SHARE = 4
"""A quarter: of a container of 1 GiB 256 MiB, of which ggbench and its worker take some 120 before any buffer."""
BESIDE_BUFFERS_BYTES = 64 * MIB
"""What a context takes of a limit besides its buffers: graphs, cell tables; some 50 MiB measured."""


class _Reserve(msgspec.Struct, frozen=True):
    """What one kind of memory does not give to weights and context."""

    default_bytes: int
    why: str
    process_bytes: int
    """Of the default, what the process that allocates takes itself; the rest is kept free."""
    besides_bytes: int
    """What that process takes besides its buffers, where a limit counts it too."""

    def budget(
        self,
        device: str,
        on_gpu: bool,
        free_bytes: int,
        free_source: str,
        limit_bytes: int | None,
        reserve_bytes: int | None,
    ) -> Budget:
        """Of what is free; of the limit where there is one that leaves the default reserve free as well."""
        besides = self.besides_bytes
        is_limited = limit_bytes is not None and limit_bytes <= free_bytes - self.default_bytes
        if reserve_bytes is not None:
            is_limited = limit_bytes is not None and limit_bytes < free_bytes
            kept, why = reserve_bytes, "given"
            if besides:
                why += f", and {format_bytes(besides)} for what llama.cpp's process takes besides its buffers"
        elif is_limited:
            kept, why = 0, "a --memory-limit is for weights and context alone"
            if besides:
                why = "for what llama.cpp's process takes besides its buffers, which a --memory-limit includes"
        else:
            besides = self.process_bytes
            kept, why = self.default_bytes - besides, self.why
        return Budget(
            device=device,
            on_gpu=on_gpu,
            memory_bytes=limit_bytes if is_limited and limit_bytes is not None else free_bytes,
            memory_source="given as --memory-limit" if is_limited else free_source,
            reserve_bytes=kept + besides,
            reserve_source=why,
            process_bytes=besides,
        )


_OF_A_CARD = _Reserve(
    CARD_RESERVE_BYTES,
    "for driver and CUDA: what the longest contexts that loaded on an RTX 4090 left unused",
    process_bytes=CARD_RESERVE_BYTES,
    besides_bytes=0,
)
_OF_A_GPU = _Reserve(
    FREE_RESERVE_BYTES,
    "for CUDA, as much as llama.cpp's --fit-target leaves free",
    process_bytes=FREE_RESERVE_BYTES,
    besides_bytes=0,
)


def given_budget(
    *,
    gpu: str | None,
    vram_bytes: int | None,
    reserve_bytes: int | None,
    bandwidth: Bandwidth | None,
    limit_bytes: int | None = None,
) -> Budget:
    """A card that need not be here: a known one by its name, a size, or a known one with another size.

    `limit_bytes` is a `--memory-limit`. Raises UnknownName for a card, UsageError where neither is given, or where the
    reserve leaves nothing.
    """
    if gpu is None:
        if vram_bytes is None:
            raise UsageError("no memory to plan for", "name a card with --gpu, or a size with --vram")
        budget = _OF_A_CARD.budget("a GPU of the given size", True, vram_bytes, "given", limit_bytes, reserve_bytes)
        return replace(_with_room(budget), bandwidth=bandwidth, is_here=False)
    known = find_gpu(gpu)
    memory_bytes, source = round(known.memory_gib * GIB), known.memory_source
    if vram_bytes is not None:
        memory_bytes, source = vram_bytes, "given"
    budget = _OF_A_CARD.budget(known.name, True, memory_bytes, source, limit_bytes, reserve_bytes)
    rate = bandwidth or Bandwidth(known.bandwidth_gb_s * 1e9, known.bandwidth_source)
    return replace(_with_room(budget), bandwidth=rate, is_here=False)


def _with_room(budget: Budget) -> Budget:
    """Return the budget. Raises UsageError where its reserve leaves nothing."""
    if budget.usable_bytes:
        return budget
    kept, memory = format_bytes(budget.reserve_bytes), format_bytes(budget.memory_bytes)
    raise UsageError(f"a reserve of {kept} leaves nothing of {memory}", "give a smaller --reserve; 0 for none")


def machine_budget(
    *,
    n_gpu_layers: int,
    main_gpu: int | None,
    threads: int,
    reserve_bytes: int | None,
    bandwidth: Bandwidth | None,
    limit_bytes: int | None = None,
    measures: bool = True,
) -> Budget:
    """What is free on this machine's GPU; of its main memory where it has none, or where no layer is offloaded.

    `limit_bytes` is a `--memory-limit`. Measures the bandwidth of main memory the first time, which takes a second or
    two, unless `measures` is false. Raises UsageError for a GPU that is not here.
    """
    gpus = visible_gpus() if n_gpu_layers else ()
    if gpus and (main_gpu or 0) >= len(gpus):
        raise UsageError(f"there is no GPU {main_gpu} here", f"there are {format_count(len(gpus))}, counted from 0")
    gpu = gpus[main_gpu or 0] if gpus else None
    free = None if gpu is None else gpu.free_bytes if gpu.free_bytes is not None else gpu.total_bytes
    if gpu is None or free is None:
        budget = _in_main_memory(limit_bytes, reserve_bytes)
        return replace(budget, bandwidth=bandwidth or (cached_bandwidth if measures else known_bandwidth)(threads))
    free_source = "NVML" if gpu.free_bytes is None else "free at this moment, NVML"
    if len(gpus) > 1:
        free_source += f"; GPU {gpu.index} of {len(gpus)} alone"
    budget = _OF_A_GPU.budget(gpu.name, True, free, free_source, limit_bytes, reserve_bytes)
    return replace(budget, bandwidth=bandwidth or gpu_bandwidth(gpu))


def devices_budget(
    devices: Sequence[DeviceMemory], *, limit_bytes: int | None, reserve_bytes: int | None, is_real: bool = False
) -> Budget:
    """What several devices of several machines have free; a limit and a reserve are of each.

    Without a reserve GPUs of this machine keep llama.cpp's margin, unless allocations are real; a server reports what
    it exposes.
    """
    margin = 0 if is_real else FREE_RESERVE_BYTES
    kept = tuple(
        replace(
            device,
            free_bytes=device.free_bytes if limit_bytes is None else min(limit_bytes, device.free_bytes),
            reserve_bytes=reserve_bytes if reserve_bytes is not None else 0 if device.server else margin,
        )
        for device in devices
    )
    names = [device.server or device.device for device in kept]
    return Budget(
        device=in_words(list(dict.fromkeys(names))),
        on_gpu=True,
        memory_bytes=sum(device.free_bytes for device in kept),
        memory_source="given as --memory-limit for each" if limit_bytes else "free at this moment, as each reports",
        reserve_bytes=sum(device.free_bytes - device.usable_bytes for device in kept),
        reserve_source="given for each" if reserve_bytes is not None else "none of what an RPC server exposes",
        devices=kept,
    )


def _in_main_memory(limit_bytes: int | None, reserve_bytes: int | None) -> Budget:
    ram = describe_ram()
    why = "for the process that runs the model and for the system: a quarter of main memory, at most 1 GiB"
    default_bytes = min(CPU_RESERVE_BYTES, ram.total_bytes // CPU_RESERVE_SHARE)
    reserve = _Reserve(default_bytes, why, min(default_bytes, BESIDE_BUFFERS_BYTES), BESIDE_BUFFERS_BYTES)
    device = f"{describe_cpu().name}, main memory"
    return reserve.budget(device, False, ram.available_bytes, "available at this moment", limit_bytes, reserve_bytes)


class SearchBudget(msgspec.Struct, frozen=True):
    """The memory that a search may take: of all GPUs in use together, else main memory."""

    planned: Budget
    """As `plan` counts it; of several GPUs their sum."""
    held_bytes: int
    """What the worker can take, besides its buffers included; at least what is planned."""
    free_bytes: int
    """Before anything was loaded."""
    worker_limit_bytes: int | None
    """What the worker is held to, on each GPU; None leaves a GPU as it is. Main memory is always held, or overcommit
    would lie."""
    worker_reserve_bytes: int = 0
    """What the worker sets aside on each GPU in addition."""
    gpus: tuple[Gpu, ...] = ()
    """Those in use, as they were before anything was loaded; empty where NVML does not know them."""
    warning: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether it is the memory of GPUs."""
        return self.planned.on_gpu

    @property
    def place(self) -> Literal["GPU memory", "main memory", "memory of the devices"]:
        """For people."""
        if self.planned.devices:
            return "memory of the devices"
        return "GPU memory" if self.on_gpu else "main memory"


def search_budget(
    dry: DryAllocator,
    context: DryContext | None,
    gpus: Sequence[Gpu],
    setup: LlamaConfig,
    reserve_bytes: int | None,
    devices: Sequence[DeviceMemory] = (),
) -> SearchBudget:
    """The budget of a model that was loaded dry, with a dry context of it; None where llama.cpp would not make one.

    `gpus` are NVML's as they were before the dry worker took some of their memory, `devices` those of a setup with RPC
    servers. Raises DoesNotFit where nothing is
    left to take.
    """
    if devices:
        limit_bytes = setup.memory_limit_bytes
        planned = devices_budget(devices, limit_bytes=limit_bytes, reserve_bytes=reserve_bytes, is_real=True)
        _check_any_left(planned.usable_bytes, planned, "memory of the devices")
        return SearchBudget(
            planned=planned,
            held_bytes=planned.usable_bytes,
            free_bytes=sum(device.free_bytes for device in devices),
            worker_limit_bytes=limit_bytes,
            worker_reserve_bytes=reserve_bytes or 0,
        )
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
    unreported = 0 if limit_bytes is None else limit_bytes + FREE_RESERVE_BYTES
    budgets = [
        _OF_A_GPU.budget("", True, each or unreported, "free on the GPU", limit_bytes, reserve_bytes)
        for each in each_free
    ]
    held = sum(_held_bytes(each, limit_bytes) for each in budgets)
    planned = replace(
        budgets[0],
        memory_bytes=sum(each.memory_bytes for each in budgets),
        reserve_bytes=sum(each.memory_bytes - each.usable_bytes for each in budgets),
        process_bytes=sum(each.process_bytes for each in budgets),
    )
    _check_any_left(held, planned, "GPU memory")
    return SearchBudget(
        planned=planned,
        held_bytes=held,
        free_bytes=sum(each_free),
        worker_limit_bytes=limit_bytes,
        worker_reserve_bytes=reserve_bytes or 0,
        gpus=tuple(gpus) if len(known) == len(gpus) else (),
        warning=_lower_than_asked(min(each_free), limit_bytes),
    )


def main_memory_budget(*, limit_bytes: int | None, reserve_bytes: int | None) -> SearchBudget:
    """What is available at this moment or the limit, whichever is less, without the reserve.

    Raises DoesNotFit where nothing is left.
    """
    planned, ram = _in_main_memory(limit_bytes, reserve_bytes), describe_ram()
    held = _held_bytes(planned, limit_bytes)
    _check_any_left(held, planned, "main memory")
    return SearchBudget(
        planned=planned,
        held_bytes=held,
        free_bytes=ram.available_bytes,
        worker_limit_bytes=held,
        warning=_lower_than_asked(planned.memory_bytes, limit_bytes),
    )


def budget_by_theory(setup: EngineConfig, reserve_bytes: int | None) -> SearchBudget:
    """What an engine that sizes nothing dry may take: of the first GPU where one is visible and wanted, else of main
    memory.

    Raises DoesNotFit where nothing is left.
    """
    gpus = visible_gpus()[:1] if setup.may_use_gpu else ()
    limit_bytes = setup.memory_limit_bytes
    if not gpus:
        return main_memory_budget(limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    budget = gpu_budget(gpus, [0], limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    if not budget.worker_reserve_bytes:
        return budget
    held_bytes = min(budget.worker_limit_bytes or budget.held_bytes, budget.held_bytes)
    return replace(budget, worker_limit_bytes=held_bytes, worker_reserve_bytes=0)


def beside_projector(budget: SearchBudget, mmproj_bytes: int) -> SearchBudget:
    """Return the budget with room for a projector, which no worker loads: of several GPUs an equal share on each.

    Raises DoesNotFit where nothing is left.
    """
    planned, held = replace(budget.planned, mmproj_bytes=mmproj_bytes), budget.held_bytes - mmproj_bytes
    if held <= 0:
        taken, place = format_bytes(mmproj_bytes), budget.place
        hint = "omit --mmproj, or close programs that use the memory"
        raise DoesNotFit(f"a projector of {taken} leaves nothing of {format_bytes(budget.held_bytes)} of {place}", hint)
    if not budget.on_gpu:
        return replace(budget, planned=planned, held_bytes=held, worker_limit_bytes=held)
    share = -(-mmproj_bytes // max(1, len(budget.gpus)))
    return replace(budget, planned=planned, held_bytes=held, worker_reserve_bytes=budget.worker_reserve_bytes + share)


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


def _held_bytes(budget: Budget, limit_bytes: int | None) -> int:
    """What is not kept free: a search may reach into what a plan sets aside for the process."""
    held = max(0, budget.memory_bytes - budget.kept_bytes)
    return held if limit_bytes is None else min(held, limit_bytes)


def _check_any_left(held_bytes: int, budget: Budget, place: str) -> None:
    if held_bytes:
        return
    if not budget.memory_bytes or not budget.kept_bytes:
        raise DoesNotFit(f"no {place} is free", "close programs that use it")
    kept, memory = format_bytes(budget.kept_bytes), format_bytes(budget.memory_bytes)
    hint = "give a smaller --reserve, or close programs that use the memory"
    raise DoesNotFit(f"a reserve of {kept} leaves nothing of {memory} of {place}", hint)


def _lower_than_asked(free_bytes: int, limit_bytes: int | None) -> str:
    if limit_bytes is None or not free_bytes or free_bytes >= limit_bytes:
        return ""
    return f"only {format_bytes(free_bytes)} are free, less than the limit of {format_bytes(limit_bytes)}"
