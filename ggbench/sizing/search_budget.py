"""The memory that a search for the largest context may use: what is free now, without what must stay free."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import find_cuda_gpu, list_gpus, visible_gpus
from ggbench.machine.host import describe_ram
from ggbench.machine.records import Gpu
from ggbench.sizing.budget import FREE_RESERVE_BYTES, GPU_RESERVE, main_memory_here, servers_budget
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.fit import Fitter
from ggbench.sizing.plan_record import Budget
from ggbench.sizing.projectors import Projector
from ggbench.units import KV_CELLS, format_bytes


class SearchBudget(msgspec.Struct, frozen=True):
    """The memory that a search may use: all GPUs in use together, or main memory if none is."""

    planned: Budget
    """The budget of a plan, summed over GPUs."""
    held_bytes: int
    """Bytes that the worker can allocate in total; at least the planned ones."""
    free_bytes: int
    worker_limit_bytes: int | None
    """Limit of the worker on each GPU, None for no limit. Main memory is always limited, since Linux overcommits."""
    worker_reserve_bytes: int = 0
    """Bytes of ballast that the worker allocates on each GPU."""
    gpus: tuple[Gpu, ...] = ()
    """GPUs in use, read before anything was loaded; empty if NVML does not know them."""
    warning: str = ""

    @property
    def on_gpu(self) -> bool:
        return self.planned.on_gpu

    @property
    def place(self) -> Literal["GPU memory", "main memory"]:
        return "GPU memory" if self.on_gpu else "main memory"


def search_budget(
    dry: DryAllocator,
    context: DryContext | None,
    gpus: Sequence[Gpu],
    setup: LlamaConfig,
    reserve_bytes: int | None,
    servers: Budget | None,
) -> SearchBudget:
    """Return the budget for a model loaded dry; `context` is its dry context, None if llama.cpp refused one.

    `gpus` are NVML's readings and `servers` the `servers_budget` from before the dry worker started. Raises DoesNotFit
    if nothing is left.
    """
    limit_bytes = setup.memory_limit_bytes
    if servers is not None:
        free_bytes = [device.free_bytes for device in servers.devices]
        budget = gpu_budget((), free_bytes, limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
        return replace(budget, planned=servers)
    found = tuple(find_cuda_gpu(gpus, *device) for device in dry.gpu_devices)
    used = tuple(gpu for gpu in found if gpu is not None)
    # llama.cpp did not load the model dry, so only NVML's report of the GPUs is available
    computes_on_gpu = bool(used) if context is None else context.device_compute_bytes > 0
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
    """Return the smaller of the free memory of these GPUs and the limit of each, without the reserve.

    Without a given reserve none is kept: real allocations need no allowance for the driver. `reported_bytes` is the
    free memory of each by llama.cpp, for GPUs that NVML does not know. Raises DoesNotFit if nothing is left.
    """
    known = [gpu.free_bytes or gpu.total_bytes or 0 for gpu in gpus]
    if not all(known):
        known, gpus = [], ()
    each_free = known or reported_bytes
    unreported = 0 if limit_bytes is None else limit_bytes + FREE_RESERVE_BYTES
    budgets = [
        GPU_RESERVE.budget("", True, each or unreported, "free on the GPU", limit_bytes, reserve_bytes)
        for each in each_free
    ]
    held = sum(_held_bytes(each, limit_bytes) for each in budgets)
    planned = _summed(budgets)
    _check_any_left(held, planned, "GPU memory")
    return SearchBudget(
        planned=planned,
        held_bytes=held,
        free_bytes=sum(each_free),
        worker_limit_bytes=limit_bytes,
        worker_reserve_bytes=reserve_bytes or 0,
        gpus=tuple(gpus),
        warning=_lower_than_asked(min(each_free), limit_bytes),
    )


def _summed(budgets: Sequence[Budget]) -> Budget:
    return replace(
        budgets[0],
        memory_bytes=sum(each.memory_bytes for each in budgets),
        reserve_bytes=sum(each.memory_bytes - each.usable_bytes for each in budgets),
        process_bytes=sum(each.process_bytes for each in budgets),
    )


def main_memory_budget(*, limit_bytes: int | None, reserve_bytes: int | None) -> SearchBudget:
    """Return the lesser of free memory and the limit, without the reserve. Raises DoesNotFit if nothing is left."""
    planned, ram = main_memory_here(limit_bytes, reserve_bytes), describe_ram()
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
    """Return the bytes that an engine without a dry allocator may use: on the GPUs that its program lists, or else on
    the first visible one, or in main memory.

    Raises DoesNotFit if nothing is left.
    """
    gpus = visible_gpus() if setup.may_use_gpu else ()
    listed = setup.listed_gpus() if setup.may_use_gpu else {}
    if listed is None:
        gpus, listed = gpus[:1], {gpu.name: 0 for gpu in gpus[:1]}
    else:
        gpus = tuple(gpu for name in listed if (gpu := find_cuda_gpu(gpus, name, None)) is not None)
    limit_bytes = setup.memory_limit_bytes
    if not listed:
        return main_memory_budget(limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    gpus = gpus if len(gpus) == len(listed) else ()
    budget = gpu_budget(gpus, tuple(listed.values()), limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    if not budget.worker_reserve_bytes:
        return budget
    held_bytes = min(budget.worker_limit_bytes or budget.held_bytes, budget.held_bytes)
    return replace(budget, worker_limit_bytes=held_bytes, worker_reserve_bytes=0)


def beside_projector(budget: SearchBudget, projector: Projector) -> SearchBudget:
    """Return the budget minus a projector, which no worker loads; each GPU gives an equal share.

    Raises DoesNotFit if nothing is left.
    """
    planned, held = budget.planned.beside_projector(projector), budget.held_bytes - projector.needed_bytes
    if held <= 0:
        needed, free = (
            format_bytes(projector.needed_bytes),
            f"{format_bytes(budget.held_bytes)} of {budget.place}",
        )
        hint = "omit --mmproj, or close programs that use the memory"
        raise DoesNotFit(f"the projector needs {needed}, but only {free} are available", hint)
    if not budget.on_gpu:
        return replace(budget, planned=planned, held_bytes=held, worker_limit_bytes=held)
    share = -(-projector.needed_bytes // max(1, len(budget.gpus)))
    return replace(
        budget, planned=planned, held_bytes=held, worker_reserve_bytes=budget.worker_reserve_bytes + share
    )


@contextlib.contextmanager
def free_fitter(launch: Callable[[], Engine], file: ModelFile, setup: LlamaConfig) -> Iterator[Fitter | None]:
    """Yield what fits setups like this one, which has n_ctx and threads, into the memory that is free, by a dry worker.

    None if llama.cpp does not load the model dry, as the real load will report why. Linux overcommits, so a real
    context would not fail even if it does not fit. Raises DoesNotFit if no memory is free at all.
    """
    servers, gpus = servers_budget(setup, None), list_gpus()  # before the dry worker uses some of their memory
    with DryAllocator(launch(), setup, () if servers is None else servers.devices) as dry:
        try:
            dry.load(file, file.paths[0])
            least = dry.context(KV_CELLS)
        except EngineEnded:
            yield None
            return
        found = search_budget(dry, least, gpus, setup, None, servers)
        budget = found.planned
        if found.on_gpu:  # a real allocation there needs no reserve for the driver
            budget = replace(budget, reserve_bytes=budget.memory_bytes - found.held_bytes)
        yield Fitter(file, file.paths[0], budget, dry)


def obstacle(fitter: Fitter | None, setup: LlamaConfig) -> str:
    """Return why a setup cannot be tried; empty if it fits, as far as is known."""
    if fitter is None:
        return ""
    try:
        fit = fitter.fit(setup)
    except EngineEnded as end:
        return f"llama.cpp refuses it: {end.ending.reason}"
    if fit.placement.weight_bytes is None or fit.is_enough:
        return ""
    place = "GPU memory" if fit.budget.on_gpu else "main memory"
    free = f"{format_bytes(fit.budget.usable_bytes)} are free for it"
    return f"needs {format_bytes(fit.taken_bytes)} of {place}, but {free}"


def taken_bytes(budget: SearchBudget, gpus: Sequence[Gpu]) -> int | None:
    """Return by how much the free memory of a budget's GPUs has shrunk; None if NVML does not report each."""
    free_now = {gpu.index: gpu.free_bytes for gpu in gpus}
    total_bytes = 0
    for before in budget.gpus:
        free_bytes, after_bytes = before.free_bytes, free_now.get(before.index)
        if free_bytes is None or after_bytes is None:
            return None
        if budget.worker_limit_bytes is not None:
            free_bytes = min(free_bytes, budget.worker_limit_bytes)
        total_bytes += free_bytes - budget.worker_reserve_bytes - after_bytes  # minus the worker's ballast
    return total_bytes if total_bytes > 0 else None


def _held_bytes(budget: Budget, limit_bytes: int | None) -> int:
    """Return the memory that need not stay free: a search may use the part that a plan sets aside for the process."""
    held = max(0, budget.memory_bytes - budget.kept_bytes)
    return held if limit_bytes is None else min(held, limit_bytes)


def _check_any_left(held_bytes: int, budget: Budget, place: str) -> None:
    if held_bytes:
        return
    if not budget.memory_bytes or not budget.kept_bytes:
        raise DoesNotFit(f"no {place} is free", "close programs that use it")
    kept, memory = format_bytes(budget.kept_bytes), format_bytes(budget.memory_bytes)
    hint = "lower --reserve, or close programs that use the memory"
    raise DoesNotFit(f"a reserve of {kept} uses up {memory} of {place}", hint)


def _lower_than_asked(free_bytes: int, limit_bytes: int | None) -> str:
    if limit_bytes is None or not free_bytes or free_bytes >= limit_bytes:
        return ""
    return f"only {format_bytes(free_bytes)} are free, less than the limit of {format_bytes(limit_bytes)}"
