"""Memory budgets: a described machine or this one for a plan; free memory for a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.build import gpu_backends, offload_devices
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, UsageError
from ggbench.machine.bandwidth import cached_bandwidth, known_bandwidth
from ggbench.machine.description import Machine, MainMemory
from ggbench.machine.gpus import find_cuda_gpu, gpu_bandwidth, visible_gpus
from ggbench.machine.host import describe_cpu, describe_ram
from ggbench.machine.known_devices import recognize_device
from ggbench.machine.profile import MachineProfile
from ggbench.machine.records import Gpu
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory
from ggbench.stats.decode_timing import Bandwidth
from ggbench.text import in_words
from ggbench.units import GIB, MIB, format_bytes, format_count

CARD_RESERVE_BYTES = 1280 * MIB
"""Reserve, given a card's total memory.

Source: the article, table 6.3.9. At the longest contexts that loaded on its 24 GiB RTX 4090 without flash attention,
llama.cpp's buffers leave 1.2 to 1.7 GiB unused in 46 quants (1.2 to 1.25 in smaller models, tried in finer steps).
"""
FREE_RESERVE_BYTES = GIB
"""Reserve, given a GPU's free memory. Source: the default of llama.cpp's `--fit-target`."""
CPU_RESERVE_BYTES = GIB
"""The largest reserve of main memory.

With 256 MiB kept free, decodes at 231,000 tokens took 56 s, 166 s and over 250 s on 24 GiB without swap.
"""
DESKTOP_RESERVE_BYTES = 4 * GIB
"""The largest reserve of a described main memory, for the system and other programs: an assumption."""
_DESKTOP = "for the system and other programs: a quarter of main memory, at most 4 GiB"
CPU_RESERVE_SHARE = 4
"""Reserve a quarter of a small memory: of 1 GiB, 256 MiB, as ggbench and its worker use 120 MiB before any buffer."""
BESIDE_BUFFERS_BYTES = 64 * MIB
"""Bytes of a context outside its buffers: graphs, cell tables; some 50 MiB measured."""


class _Reserve(msgspec.Struct, frozen=True):
    """Memory that weights and context cannot use, for one kind of memory."""

    default_bytes: int
    why: str
    process_bytes: int
    """The part of the default reserve that the allocating process itself uses; the rest stays free."""
    besides_bytes: int = 0
    """Bytes of that process outside its buffers, if a limit includes them."""

    def budget(
        self,
        device: str,
        on_gpu: bool,
        free_bytes: int,
        free_source: str,
        limit_bytes: int | None,
        reserve_bytes: int | None,
    ) -> Budget:
        """Return the budget for the free memory, or for the limit if that also leaves the default reserve free."""
        besides = self.besides_bytes
        is_limited = limit_bytes is not None and limit_bytes <= free_bytes - self.default_bytes
        if reserve_bytes is not None:
            is_limited = limit_bytes is not None and limit_bytes < free_bytes
            kept, why = reserve_bytes, "given"
            if besides:
                why += f", and {format_bytes(besides)} for llama.cpp's process"
        elif is_limited:
            kept, why = 0, "for llama.cpp's process" if besides else "--memory-limit is only for weights and context"
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


_CARD = _Reserve(
    CARD_RESERVE_BYTES,
    "for driver and runtime: unused at the longest contexts that loaded on an RTX 4090",
    CARD_RESERVE_BYTES,
)
_GPU = _Reserve(FREE_RESERVE_BYTES, "as much as llama.cpp's --fit-target leaves free", FREE_RESERVE_BYTES)


def described_budget(machine: Machine, *, reserve_bytes: int | None, limit_bytes: int | None = None) -> Budget:
    """Return the memory of a described machine: of its GPUs, or main memory if it has none.

    `limit_bytes` is a `--memory-limit`; it and `reserve_bytes` apply to each GPU. Raises UsageError if there is no
    memory to plan for, or the reserve leaves nothing.
    """
    host = _described_host(machine, reserve_bytes if not machine.devices else None, limit_bytes)
    if not machine.devices:
        if host is None or machine.host is None:
            raise UsageError("no memory to plan for", "name a card with --gpu, or the size of main memory with --ram")
        return replace(host, bandwidth=machine.host.bandwidth, is_here=False)
    each = [
        (_CARD if device.shared_bytes is None else _GPU).budget(
            device.name, True, device.memory_bytes, device.memory_source, limit_bytes, reserve_bytes
        )
        for device in machine.devices
    ]
    if not all(budget.usable_bytes for budget in each):
        kept, memory = format_bytes(each[0].reserve_bytes), format_bytes(each[0].memory_bytes)
        raise UsageError(f"a reserve of {kept} uses up {memory}", "lower --reserve; 0 for none")
    seen: Counter[str] = Counter()
    devices = []
    for device, budget in zip(machine.devices, each, strict=True):
        devices.append(
            DeviceMemory(
                f"{device.backend}{seen[device.backend]}",
                "",
                budget.memory_bytes,
                budget.reserve_bytes,
                device.name,
                device.backend,
                device.bandwidth,
            )
        )
        seen[device.backend] += 1
    return _of_devices(devices, each, None if host is None else _as_host(host, machine.host), is_here=False)


def profiled_budget(
    profile: MachineProfile, setup: LlamaConfig, *, reserve_bytes: int | None, limit_bytes: int | None = None
) -> Budget:
    """Return the memory of the machine of a profile: of its GPUs, or main memory without any or no layers on them.

    Raises as `described_budget`, and UsageError for a main GPU that it does not have.
    """
    machine = profile.machine()
    if not setup.n_gpu_layers:
        machine = replace(machine, devices=())
    elif machine.devices and setup.main_gpu is not None:
        machine = machine.only(setup.main_gpu)
    budget = described_budget(machine, reserve_bytes=reserve_bytes, limit_bytes=limit_bytes)
    device = budget.device if machine.devices else f"{profile.host.name}, main memory"
    return replace(budget, device=device, profile=profile)


def _described_host(machine: Machine, reserve_bytes: int | None, limit_bytes: int | None) -> Budget | None:
    """Return the main memory of a described machine; None if unknown.

    If a GPU shares it, the part that the GPU cannot use.
    """
    memory_bytes = None if machine.host is None else machine.host.memory_bytes
    source = "given"
    shared = [device for device in machine.devices if device.shared_bytes is not None]
    if shared:
        memory_bytes, source = (shared[0].shared_bytes or 0) - shared[0].memory_bytes, "not the GPU's share"
    if not memory_bytes:  # or the GPU may take all of it
        return None
    default_bytes = min(DESKTOP_RESERVE_BYTES, memory_bytes // CPU_RESERVE_SHARE)
    reserve = _Reserve(default_bytes, _DESKTOP, min(default_bytes, BESIDE_BUFFERS_BYTES), BESIDE_BUFFERS_BYTES)
    limit_bytes = None if machine.devices else limit_bytes
    return reserve.budget("main memory", False, memory_bytes, source, limit_bytes, reserve_bytes)


def _as_host(budget: Budget, host: MainMemory | None) -> DeviceMemory:
    bandwidth = None if host is None else host.bandwidth
    return DeviceMemory(HOST_DEVICE, "", budget.memory_bytes, budget.reserve_bytes, "main memory", bandwidth=bandwidth)


def _of_devices(
    devices: Sequence[DeviceMemory], each: Sequence[Budget], host: DeviceMemory | None, *, is_here: bool
) -> Budget:
    """Return the sum of several GPUs' budgets."""
    counts = Counter(device.name for device in devices)
    names = [name if count == 1 else f"{count} x {name}" for name, count in counts.items()]
    bandwidths = {device.bandwidth for device in devices}
    return Budget(
        device=in_words(names),
        on_gpu=True,
        memory_bytes=sum(budget.memory_bytes for budget in each),
        memory_source=in_words(list(dict.fromkeys(budget.memory_source for budget in each))),
        reserve_bytes=sum(budget.reserve_bytes for budget in each),
        reserve_source=each[0].reserve_source + (", of each" if len(each) > 1 else ""),
        process_bytes=sum(budget.process_bytes for budget in each),
        bandwidth=bandwidths.pop() if len(bandwidths) == 1 else None,
        devices=tuple(devices),
        host=host,
        is_here=is_here,
    )


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
    """Return the free memory of this machine's GPUs, or its main memory without a GPU or offloaded layers.

    `limit_bytes` is a `--memory-limit`; it and `reserve_bytes` apply to each GPU; `bandwidth` replaces the GPUs' own.
    Measures the bandwidth of main memory the first time, which takes a second or two, unless `measures` is false.
    Raises UsageError for a GPU that is not here.
    """
    devices = devices_here() if n_gpu_layers else ()
    if devices and main_gpu is not None:
        if main_gpu >= len(devices):
            found = f"GPUs here: {format_count(len(devices))}, counted from 0"
            raise UsageError(f"this machine has no GPU {main_gpu}", found)
        devices = devices[main_gpu : main_gpu + 1]
    in_main_memory = _in_main_memory(limit_bytes if not devices else None, reserve_bytes if not devices else None)
    if not devices:
        measured = bandwidth or (cached_bandwidth if measures else known_bandwidth)(threads)
        return replace(in_main_memory, bandwidth=measured)
    each = [
        _GPU.budget(device.name, True, device.free_bytes, "free at the moment", limit_bytes, reserve_bytes)
        for device in devices
    ]
    kept = [
        replace(
            device,
            free_bytes=budget.memory_bytes,
            reserve_bytes=budget.reserve_bytes,
            bandwidth=bandwidth or device.bandwidth,
        )
        for device, budget in zip(devices, each, strict=True)
    ]
    host = MainMemory(None, known_bandwidth(threads))
    return _of_devices(kept, each, _as_host(in_main_memory, host), is_here=True)


def devices_here() -> tuple[DeviceMemory, ...]:
    """Return the GPUs that llama.cpp would use here, with their free memory; none without a GPU.

    ggml lists those of its compiled-in backends, and NVML adds its data. Without a GPU backend, the NVIDIA GPUs listed
    by NVML are returned, as a CUDA build would use them.
    """
    gpus = visible_gpus()
    listed = offload_devices() if gpu_backends() else ()
    if not listed:
        return tuple(
            DeviceMemory(f"CUDA{n}", "", free, 0, gpu.name, "CUDA", gpu_bandwidth(gpu))
            for n, gpu in enumerate(gpus)
            if (free := gpu.free_bytes if gpu.free_bytes is not None else gpu.total_bytes)
        )
    found = []
    for device in listed:
        gpu = find_cuda_gpu(gpus, device.name, device.device_id) if device.backend == "CUDA" else None
        known = recognize_device(device.description, device.total_bytes)
        rate = None if known is None else Bandwidth(known.bandwidth_gb_s * 1e9, known.bandwidth_source)
        free_bytes = device.free_bytes if gpu is None or gpu.free_bytes is None else gpu.free_bytes
        if gpu is not None:
            rate = gpu_bandwidth(gpu) or rate
        found.append(DeviceMemory(device.name, "", free_bytes, 0, device.description, bandwidth=rate))
    return tuple(found)


def devices_budget(
    devices: Sequence[DeviceMemory], *, limit_bytes: int | None, reserve_bytes: int | None, is_real: bool = False
) -> Budget:
    """Return the free memory of devices on several machines; a limit and a reserve apply to each.

    Without a reserve, GPUs of this machine keep llama.cpp's margin unless allocations are real.
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
        memory_source="--memory-limit, for each" if limit_bytes else "free at the moment, as each reports",
        reserve_bytes=sum(device.free_bytes - device.usable_bytes for device in kept),
        reserve_source="given for each" if reserve_bytes is not None else "nothing kept of an RPC server's memory",
        devices=kept,
    )


def _in_main_memory(limit_bytes: int | None, reserve_bytes: int | None) -> Budget:
    ram = describe_ram()
    why = "for the worker process and the system: a quarter of main memory, at most 1 GiB"
    default_bytes = min(CPU_RESERVE_BYTES, ram.total_bytes // CPU_RESERVE_SHARE)
    reserve = _Reserve(default_bytes, why, min(default_bytes, BESIDE_BUFFERS_BYTES), BESIDE_BUFFERS_BYTES)
    device = f"{describe_cpu().name}, main memory"
    return reserve.budget(device, False, ram.available_bytes, "available at this moment", limit_bytes, reserve_bytes)


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
    def place(self) -> Literal["GPU memory", "main memory", "memory of the devices"]:
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
    """Return the budget for a model loaded dry; `context` is its dry context, None if llama.cpp refused one.

    `gpus` are NVML's readings from before the dry worker started, `devices` those of a setup with RPC servers. Raises
    DoesNotFit if nothing is left.
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
    # llama.cpp did not load the model dry, so only NVML's report of the GPUs is available
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
    """Return the smaller of the free memory of these GPUs and the limit of each, without the reserve.

    Without a given reserve none is kept: real allocations need no allowance for the driver. `reported_bytes` is the
    free memory of each by llama.cpp, for GPUs that NVML does not know. Raises DoesNotFit if nothing is left.
    """
    known = tuple(free for gpu in gpus if (free := gpu.free_bytes or gpu.total_bytes))
    each_free = known if gpus and len(known) == len(gpus) else tuple(reported_bytes)
    unreported = 0 if limit_bytes is None else limit_bytes + FREE_RESERVE_BYTES
    budgets = [
        _GPU.budget("", True, each or unreported, "free on the GPU", limit_bytes, reserve_bytes) for each in each_free
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
    """Return the lesser of free memory and the limit, without the reserve. Raises DoesNotFit if nothing is left."""
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


def beside_projector(budget: SearchBudget, mmproj_bytes: int) -> SearchBudget:
    """Return the budget minus a projector, which no worker loads; each GPU gives an equal share.

    Raises DoesNotFit if nothing is left.
    """
    planned, held = replace(budget.planned, mmproj_bytes=mmproj_bytes), budget.held_bytes - mmproj_bytes
    if held <= 0:
        needed, free = format_bytes(mmproj_bytes), f"{format_bytes(budget.held_bytes)} of {budget.place}"
        hint = "omit --mmproj, or close programs that use the memory"
        raise DoesNotFit(f"the projector needs {needed}, but only {free} are available", hint)
    if not budget.on_gpu:
        return replace(budget, planned=planned, held_bytes=held, worker_limit_bytes=held)
    share = -(-mmproj_bytes // max(1, len(budget.gpus)))
    return replace(budget, planned=planned, held_bytes=held, worker_reserve_bytes=budget.worker_reserve_bytes + share)


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
