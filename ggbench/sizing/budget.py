"""The memory to plan for or allocate in: of a described machine, or of this one with the RPC servers that it uses."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, EstimateMemory
from ggbench.engines.llama.build import LlamaDevice, gpu_backends, offload_devices
from ggbench.engines.llama.rpc import offload_devices_with
from ggbench.errors import DoesNotFit, UsageError
from ggbench.machine.bandwidth import cached_bandwidth, known_bandwidth
from ggbench.machine.description import Device, Machine
from ggbench.machine.gpus import find_cuda_gpu, gpu_bandwidth, list_gpus, visible_gpus
from ggbench.machine.host import default_threads, describe_cpu, describe_ram
from ggbench.machine.known_devices import recognize_device
from ggbench.machine.records import Gpu
from ggbench.record import Record
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB, format_bytes

PROCESS_RESERVE_BYTES = 305 * MIB
"""What llama.cpp's process takes of a GPU beside its buffers, at most: 239 to 305 MiB on CUDA in public reports.

The article's RTX 4090 (table 6.3.9) left 1.2 to 1.7 GiB of 24 GiB unused at the longest contexts that loaded: it shows
24,080 MiB, the contexts were tried in coarse steps, and without flash attention a longer one needs much more.
"""
SCREEN_RESERVE_BYTES = 256 * MIB
"""What a desktop takes of the first card, rounded: of two in a log of llama.cpp (an RTX 5070 Ti and an RTX 5060 Ti)
the first has 275 MiB less free at the start. Browsers take some hundred MiB more.
"""
CPU_RESERVE_BYTES = GIB
"""The largest reserve of main memory.

With 256 MiB kept free, decodes at 231,000 tokens took 56 s, 166 s and over 250 s on 24 GiB without swap.
"""
DESKTOP_RESERVE_BYTES = 4 * GIB
"""The largest reserve of a described main memory, for the system and other programs: an assumption.

In a log of llama.cpp 114.6 of a DGX Spark's 121.69 GiB are available.
"""
_FREE = "free at the moment"
_ASSUMED_RATE = Bandwidth(51.2e9, "assumed: DDR4-3200 in two channels", "DDR4-3200")
_ASSUMED_HOST = DeviceMemory(
    HOST_DEVICE,
    32 * GIB,
    4 * GIB,
    "main memory",
    bandwidth=replace(
        _ASSUMED_RATE, source=f"size and rate {_ASSUMED_RATE.source}", assumed="32 GiB of DDR4-3200"
    ),
)
"""Main memory beside a described GPU of which nothing is said."""
_DESKTOP = "for the system and other programs: a quarter of main memory, at most 4 GiB"
CPU_RESERVE_SHARE = 4
"""Reserve a quarter of a small memory: of 1 GiB, 256 MiB, as ggbench and its worker use 120 MiB before any buffer."""
BESIDE_BUFFERS_BYTES = 64 * MIB
"""Bytes of a context outside its buffers: graphs, cell tables; some 50 MiB measured."""


class Reserve(Record):
    """Memory that weights and context cannot use, for one kind of memory."""

    default_bytes: int
    why: str
    besides_bytes: int = 0
    """Bytes of the allocating process outside its buffers, if a limit includes them; else all of the reserve is its."""

    def kept_of(self, memory: DeviceMemory, reserve_bytes: int | None) -> DeviceMemory:
        """Return a memory with its reserve."""
        process_bytes = self.besides_bytes or self.default_bytes
        kept_bytes, why = max(0, self.default_bytes - process_bytes), self.why
        if reserve_bytes is not None:
            kept_bytes, process_bytes, why = reserve_bytes, self.besides_bytes, "given"
        return replace(
            memory,
            reserve_bytes=kept_bytes + process_bytes,
            reserve_source=why,
            process_bytes=process_bytes,
        )


def _limited(memory: DeviceMemory, limit_bytes: int | None) -> DeviceMemory:
    """Return a memory as if there were no more of it than a --memory-limit."""
    if limit_bytes is None or limit_bytes >= memory.free_bytes:
        return memory
    return replace(memory, free_bytes=limit_bytes, memory_source="given as --memory-limit")


_PROCESS = Reserve(PROCESS_RESERVE_BYTES, "for llama.cpp's process")
_SCREEN = Reserve(PROCESS_RESERVE_BYTES + SCREEN_RESERVE_BYTES, "for llama.cpp's process and a desktop")
_FREE_GPU = Reserve(GIB, "as much as llama.cpp's --fit-target leaves free")
"""Source: the default of llama.cpp's `--fit-target`."""


def described_budget(machine: Machine, *, reserve_bytes: int | None, limit_bytes: int | None = None) -> Budget:
    """Return the memory of a described machine: of its GPUs, or main memory if it has none.

    `limit_bytes` is a `--memory-limit`; it and `reserve_bytes` apply to each GPU. Raises UsageError if there is no
    memory to plan for, or the reserve leaves nothing.
    """
    host = _described_host(machine, reserve_bytes, limit_bytes)
    if not machine.devices:
        if host is None:
            raise UsageError(
                "no memory to plan for", "name a card with --gpu, or the size of main memory with --ram"
            )
        return Budget(host=host, is_here=False)
    devices = []
    for number, device in enumerate(machine.devices):
        n_before = sum(other.backend == device.backend for other in machine.devices[:number])
        memory = DeviceMemory(
            f"{device.backend}{n_before}",
            device.memory_bytes,
            name=device.name,
            backend=device.backend,
            bandwidth=device.bandwidth,
            is_shared=device.shared_bytes is not None,
            memory_source=device.memory_source,
        )
        devices.append(_reserve_of(device, number).kept_of(_limited(memory, limit_bytes), reserve_bytes))
    if not all(each.usable_bytes for each in devices):
        kept, memory_size = format_bytes(devices[0].reserve_bytes), format_bytes(devices[0].free_bytes)
        raise UsageError(f"a reserve of {kept} uses up {memory_size}", "lower --reserve; 0 for none")
    return Budget(tuple(devices), host, is_here=False)


def _reserve_of(device: Device, number: int) -> Reserve:
    """Return the reserve of a described GPU: the first draws the screen, and one that may take all of main memory
    leaves some to the system.
    """
    if device.shared_bytes == device.memory_bytes:
        return _of_main_memory(device.memory_bytes, DESKTOP_RESERVE_BYTES, _DESKTOP)
    if number or device.is_headless or device.shared_bytes is not None:
        return _PROCESS
    return _SCREEN


def _of_main_memory(total_bytes: int, most_bytes: int, why: str) -> Reserve:
    return Reserve(min(most_bytes, total_bytes // CPU_RESERVE_SHARE), why, BESIDE_BUFFERS_BYTES)


def _of_desktop(memory: DeviceMemory, reserve_bytes: int | None) -> DeviceMemory:
    """Return a main memory with what is kept of it, which all of its programs share."""
    return _of_main_memory(memory.free_bytes, DESKTOP_RESERVE_BYTES, _DESKTOP).kept_of(memory, reserve_bytes)


def _described_host(
    machine: Machine, reserve_bytes: int | None, limit_bytes: int | None
) -> DeviceMemory | None:
    """Return the main memory of a described machine; None if unknown.

    If a GPU shares it, the part that the GPU cannot use. The limit and the given reserve are of GPUs if there are any.
    """
    if machine.host is None or machine.host.memory_bytes is None:
        return None
    shared_bytes = sum(device.memory_bytes for device in machine.devices if device.shared_bytes is not None)
    free_bytes = machine.host.memory_bytes - shared_bytes
    if free_bytes <= 0:  # the GPU may take all of it
        return None
    if machine.devices:
        reserve_bytes = limit_bytes = None
    memory = DeviceMemory(
        HOST_DEVICE, free_bytes, name="main memory", bandwidth=machine.host.bandwidth, memory_source="given"
    )
    return _of_desktop(_limited(memory, limit_bytes), reserve_bytes)


def with_main_memory(budget: Budget) -> Budget:
    """Return the budget with the size and the bandwidth of main memory beside GPUs assumed if they are unknown."""
    shared = next((device for device in budget.devices if device.is_shared), None)
    if not budget.on_gpu or (shared and budget.host is None):
        return budget
    host, rate = budget.host or _ASSUMED_HOST, _ASSUMED_RATE
    if shared is not None and shared.bandwidth is not None:
        rate = replace(shared.bandwidth, source=f"the GPU's: {shared.bandwidth.source}")
    return replace(budget, host=replace(host, bandwidth=host.bandwidth or rate))


def host_text(budget: Budget) -> str:
    """Return the main memory beside GPUs, `32.0 GiB assumed`; empty without GPUs, or if nothing is known of it."""
    if budget.beside is None:
        return ""
    assumed = " assumed" if budget.beside.bandwidth == _ASSUMED_HOST.bandwidth else ""
    return f"{format_bytes(budget.beside.free_bytes)}{assumed}"


def machine_budget(
    setup: EngineConfig,
    *,
    reserve_bytes: int | None = None,
    bandwidth: Bandwidth | None = None,
    measures: bool = True,
) -> Budget:
    """Return the free memory of the setup's RPC servers and this machine's GPUs, or its main memory without either or
    without offloaded layers.

    The setup's memory limit and `reserve_bytes` apply to each device; `bandwidth` replaces the devices' own. Measures
    the bandwidth of main memory the first time, which takes a second or two, unless `measures` is false. Raises
    UsageError for a GPU that is not here, and like `offload_devices_with`.
    """
    devices, threads = _devices_of(setup), default_threads()
    if devices and bandwidth is not None:
        devices = [replace(device, bandwidth=bandwidth) for device in devices]
        bandwidth = None
    if bandwidth is None:
        is_measured = measures and not devices
        bandwidth = (cached_bandwidth if is_measured else known_bandwidth)(threads)
    return _budget_here(setup, devices, reserve_bytes, bandwidth)


def free_budget(setup: EngineConfig, reserve_bytes: int | None) -> Budget:
    """Return the memory that real allocations may take, of GPUs only those that the engine can use.

    To be read before a worker takes some of it; an RPC server also has one client. Raises DoesNotFit if none is left,
    and like `machine_budget`.
    """
    listed = setup.listed_gpus() if setup.may_use_gpu else {}
    if listed is None:
        devices = list(_devices_of(setup))
        if setup.unsupported(EstimateMemory):
            devices = devices[:1]  # of another program nothing is known
        else:
            devices = [device for device in devices if not device.backend]
    else:
        gpus = list_gpus()
        devices = [
            _with_nvml(DeviceMemory(name, free_bytes, memory_source=_FREE), find_cuda_gpu(gpus, name, None))
            for name, free_bytes in listed.items()
        ]
    budget = _budget_here(setup, devices, reserve_bytes, known_bandwidth(default_threads()))
    if not budget.held_bytes:
        hint = "lower --reserve, or close programs that use the memory"
        raise DoesNotFit(f"no {budget.place} is free", hint)
    return budget


def _budget_here(
    setup: EngineConfig, devices: Sequence[DeviceMemory], reserve_bytes: int | None, bandwidth: Bandwidth | None
) -> Budget:
    """Return the budget of these GPUs beside main memory of this bandwidth, or of main memory without any."""
    ram, limit_bytes = describe_ram(), setup.memory_limit_bytes
    why = "for the worker process and the system: a quarter of main memory, at most 1 GiB"
    reserve = _of_main_memory(ram.total_bytes, CPU_RESERVE_BYTES, why)
    host = DeviceMemory(
        HOST_DEVICE,
        ram.available_bytes,
        name=f"{describe_cpu().name}, main memory",
        bandwidth=bandwidth,
        memory_source="available at this moment",
    )
    limited = host if devices else _limited(host, limit_bytes)
    if limited is not host:
        return Budget(host=_of_desktop(limited, reserve_bytes))
    if not devices:
        return Budget(host=reserve.kept_of(host, reserve_bytes))
    gpus = tuple(_FREE_GPU.kept_of(_limited(device, limit_bytes), reserve_bytes) for device in devices)
    shared_bytes = sum(device.free_bytes for device in gpus if device.is_shared)
    if shared_bytes >= host.free_bytes:
        return Budget(gpus)
    host = replace(host, name="main memory", free_bytes=host.free_bytes - shared_bytes)
    return Budget(gpus, reserve.kept_of(host, None))


def _devices_of(setup: EngineConfig) -> Sequence[DeviceMemory]:
    """Return the devices that a setup puts layers on; none without offloaded layers. Raises as `machine_budget`."""
    devices = devices_here(setup.rpc_servers) if setup.may_use_gpu else ()
    used = setup.used_gpus([each.ggml_name for each in devices])
    return [each for each in devices if each.ggml_name in used]


def devices_here(servers: Sequence[str] = ()) -> tuple[DeviceMemory, ...]:
    """Return the devices of RPC servers and the GPUs that llama.cpp would use here, with their free memory.

    ggml lists those of its compiled-in backends, and NVML adds its data. Without any, the NVIDIA GPUs listed by NVML
    are returned, as a CUDA build would use them. Raises like `offload_devices_with`.
    """
    gpus, listed = visible_gpus(), tuple[LlamaDevice, ...]()
    if servers:
        listed = offload_devices_with(servers)
    elif gpu_backends():
        listed = offload_devices()
    if listed:
        return tuple(_listed_device(device, gpus) for device in listed)
    return tuple(
        DeviceMemory(
            f"CUDA{number}",
            gpu.free_bytes,
            name=gpu.name,
            backend="CUDA",
            bandwidth=gpu_bandwidth(gpu),
            memory_source=_FREE,
        )
        for number, gpu in enumerate(_as_cuda_counts(gpus))
        if gpu.free_bytes
    )


def _as_cuda_counts(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return GPUs in CUDA's order: by default it guesses which is the fastest, here the one with the most bandwidth.

    Source: CUDA_DEVICE_ORDER in the CUDA programming guide.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return gpus

    def rate(gpu: Gpu) -> float:
        bandwidth = gpu_bandwidth(gpu)
        return 0.0 if bandwidth is None else bandwidth.bytes_per_s

    return sorted(gpus, key=rate, reverse=True)


def _listed_device(device: LlamaDevice, gpus: Sequence[Gpu]) -> DeviceMemory:
    """Return a device that ggml lists, with what NVML or its name say of it."""
    found = DeviceMemory(device.buffers, device.free_bytes, name=device.description, memory_source=_FREE)
    if known := recognize_device(device.description, device.total_bytes):
        rate = Bandwidth(known.bandwidth_gb_s * 1e9, known.bandwidth_source, known.assumed_memory)
        found = replace(found, bandwidth=rate, is_shared=known.is_unified)
    is_cuda = device.backend == "CUDA"
    return _with_nvml(found, find_cuda_gpu(gpus, device.name, device.device_id) if is_cuda else None)


def _with_nvml(device: DeviceMemory, gpu: Gpu | None) -> DeviceMemory:
    """Return a device with what NVML says of it."""
    if gpu is None:
        return device
    free_bytes = device.free_bytes if gpu.free_bytes is None else gpu.free_bytes
    return replace(device, free_bytes=free_bytes, bandwidth=gpu_bandwidth(gpu) or device.bandwidth)
