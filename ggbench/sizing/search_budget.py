"""The memory that a search for the largest context may take: of the GPUs that llama.cpp uses, else main memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ggbench.errors import DoesNotFit
from ggbench.machine.gpus import find_cuda_gpu
from ggbench.machine.memory import describe_ram
from ggbench.records.machine import Gpu
from ggbench.records.setup import LlamaSetup
from ggbench.sizing.budget import CPU_RESERVE_BYTES
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.units import format_bytes


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
