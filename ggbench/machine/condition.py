"""The state of CPU, main memory, NVIDIA's driver and ggbench's folders, which affect measurements."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

import ggbench
from ggbench.machine.drm_gpus import list_drm_gpus
from ggbench.machine.gpus import describe_gpu, list_gpus, nvml_problem, open_nvml, visible_gpus
from ggbench.machine.host import (
    PROC,
    SYSFS,
    cpu_quota,
    describe_cpu,
    describe_ram,
    memory_limits,
    read_number,
    read_text,
)
from ggbench.machine.readings import OthersWatch, read_gpus
from ggbench.machine.records import Environment, Gpu, GpuProcess


class CpuState(msgspec.Struct, frozen=True):
    """The CPU, and what slows it; None means unknown."""

    name: str
    n_cores: int
    """Physical cores that this process may use."""
    n_cpus: int
    """Logical CPUs of the whole machine."""
    quota_cpus: float | None
    """CPU time that the container may use, in CPUs; None without a limit."""
    instructions: frozenset[str]
    """Instruction sets by the kernel's names, such as `avx512f`; empty if unknown."""
    governors: tuple[str, ...] = ()
    """Distinct governors of the frequency scaling."""
    scaling_driver: str | None = None
    energy_preference: str | None = None
    busy_share: float | None = None
    """Share of all CPUs used by other programs while watched, 0 to 1."""
    is_on_battery: bool | None = None


class MemoryState(msgspec.Struct, frozen=True):
    """Main memory and its limits; None means no limit, or unknown."""

    total_bytes: int
    available_bytes: int
    """Memory that can be allocated without swapping, within the container's limit."""
    container_limit_bytes: int | None
    swap_total_bytes: int
    swap_used_bytes: int
    address_space_limit_bytes: int | None
    """`ulimit -v`."""
    locked_limit_bytes: int | None
    """`ulimit -l`, which `--mlock` needs."""
    overcommit: int | None
    """`vm.overcommit_memory`: 2 grants only what exists."""
    huge_pages: str | None
    """Transparent huge pages: `always`, `madvise` or `never`."""


class GpuState(msgspec.Struct, frozen=True):
    gpu: Gpu
    compute_capability: tuple[int, int] | None
    """E.g. (8, 9); None if unknown."""
    processes: tuple[GpuProcess, ...] | None
    throttle: tuple[str, ...] | None
    """Throttle reasons, by nvidia-smi's names."""


class GpuDriver(msgspec.Struct, frozen=True):
    version: str | None = None
    cuda_version: tuple[int, int] | None = None
    """The newest CUDA that this driver runs."""
    problem: str = ""
    """Why NVML does not respond; empty if it does, or if no NVIDIA GPU is on the bus."""
    gpus: tuple[GpuState, ...] = ()
    n_visible: int = 0
    """GPUs left visible by CUDA_VISIBLE_DEVICES."""


_CHOSEN = re.compile(r"\[(\w+)\]")
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
"""The class of PCI display controllers, including 3D controllers without an output."""


def describe_cpu_state(proc: Path = PROC, sysfs: Path = SYSFS, *, watch: OthersWatch | None = None) -> CpuState:
    """Return the CPU's state, with the load seen by `watch`, if any."""
    import psutil

    cpu = describe_cpu(proc, sysfs)
    scaling = sorted((sysfs / "devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    governors = {text for each in scaling if (text := read_text(each / "scaling_governor"))}
    battery = psutil.sensors_battery()
    return CpuState(
        name=cpu.name,
        n_cores=cpu.n_cores,
        n_cpus=os.cpu_count() or 1,
        quota_cpus=cpu_quota(proc, sysfs),
        instructions=_instructions(proc),
        governors=tuple(sorted(governors)),
        scaling_driver=read_text(scaling[0] / "scaling_driver") if scaling else None,
        energy_preference=read_text(scaling[0] / "energy_performance_preference") if scaling else None,
        busy_share=None if watch is None else watch.share(),
        is_on_battery=None if battery is None or battery.power_plugged is None else not battery.power_plugged,
    )


def describe_memory_state(proc: Path = PROC, sysfs: Path = SYSFS) -> MemoryState:
    import psutil

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    limits = [each.limit_bytes for each in memory_limits(proc, sysfs) if each.limit_bytes < memory.total]
    soft = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_MEMLOCK)]
    address_space, locked = (None if limit == resource.RLIM_INFINITY else limit for limit in soft)
    chosen = _CHOSEN.search(read_text(sysfs / "kernel/mm/transparent_hugepage/enabled") or "")
    return MemoryState(
        total_bytes=memory.total,
        available_bytes=describe_ram(proc, sysfs).available_bytes,
        container_limit_bytes=min(limits, default=None),
        swap_total_bytes=swap.total,
        swap_used_bytes=swap.used,
        address_space_limit_bytes=address_space,
        locked_limit_bytes=locked,
        overcommit=read_number(proc / "sys/vm/overcommit_memory"),
        huge_pages=None if chosen is None else chosen[1],
    )


def describe_gpu_driver(sysfs: Path = SYSFS, environ: Mapping[str, str] = os.environ) -> GpuDriver:
    """Return NVIDIA's driver with its GPUs, and the problem if the PCI bus has a card but NVML does not respond."""
    nvml = open_nvml()
    if nvml is None:
        return GpuDriver(problem=nvml_problem() if _has_nvidia_card(sysfs) else "")
    with contextlib.closing(nvml):
        readings = {each.index: each for each in read_gpus(nvml)}
        states = tuple(
            GpuState(
                gpu=describe_gpu(nvml, index, handle),
                compute_capability=nvml.query("nvmlDeviceGetCudaComputeCapability", handle),
                processes=readings[index].processes,
                throttle=readings[index].throttle,
            )
            for index, handle in nvml.devices()
        )
        cuda = nvml.query("nvmlSystemGetCudaDriverVersion_v2")
        return GpuDriver(
            version=nvml.query("nvmlSystemGetDriverVersion"),
            # NVML writes 12.8 as 12080.
            cuda_version=(int(cuda) // 1000, int(cuda) % 1000 // 10) if cuda else None,
            gpus=states,
            n_visible=len(visible_gpus(environ)),
        )


def _instructions(proc: Path) -> frozenset[str]:
    """Return the instruction sets of the first CPU: x86 lists them as `flags`, Arm as `Features`."""
    for line in (read_text(proc / "cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _has_nvidia_card(sysfs: Path) -> bool:
    devices = (sysfs / "bus/pci/devices").glob("*")
    return any(
        read_text(each / "vendor") == _NVIDIA and (read_text(each / "class") or "").startswith(_DISPLAY_CLASS)
        for each in devices
    )


def environment(versions: Mapping[str, str]) -> Environment:
    """Return the environment of a run; `versions` are those that its engine reports."""
    cpu, backends = describe_cpu(), tuple(versions.get("backends", "").split())
    return Environment(
        ggbench=ggbench.__version__,
        python=platform.python_version(),
        llama_cpp_python=versions.get("llama_cpp_python", ""),
        llama_cpp=versions.get("llama_cpp", ""),
        system_info=versions.get("system_info", ""),
        os=describe_os(),
        cpu=cpu.name,
        n_cores=cpu.n_cores,
        ram_bytes=describe_ram().total_bytes,
        gpus=gpus_of(backends),
        llama_cpp_commit=versions.get("llama_cpp_commit", ""),
        backends=backends,
        build_flags=versions.get("build_flags", ""),
        server=versions.get("server", ""),
        transformers=versions.get("transformers", ""),
    )


def gpus_of(backends: Collection[str]) -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs and, if one of llama.cpp's backends may use them, AMD's and Intel's."""
    nvidia = list_gpus()
    return nvidia if {each.lower() for each in backends} <= _WITHOUT_DRM else (*nvidia, *list_drm_gpus(len(nvidia)))


_WITHOUT_DRM = {"cpu", "blas", "rpc", "cuda"}


def describe_os() -> str:
    """Return distribution, kernel and architecture: `Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64`."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return kernel
    return f"{''.join(char for char in name if char.isprintable())}, {kernel}"


class DataFolder(msgspec.Struct, frozen=True):
    """A folder written by ggbench, and its disk."""

    name: str
    """Name, such as `results`."""
    variable: str
    """Environment variable that relocates it, such as `XDG_DATA_HOME`."""
    path: str
    used_bytes: int | None
    """Bytes of the files in it; None if unknown, 0 if it does not exist yet."""
    free_bytes: int | None
    """Free bytes on its disk, for this user."""
    disk: int | None
    """Device number, equal for folders on the same disk."""
    file_system: str | None
    """E.g. `ext4` or `nfs4`."""
    is_writable: bool
    is_disposable: bool
    """Whether ggbench can recreate its contents."""


def describe_place(
    name: str, variable: str, folder: Path, *, is_disposable: bool = False, counts: bool = True
) -> DataFolder:
    """Describe a folder; if it does not exist, its disk is that of the nearest folder above. `counts` sums up file
    sizes.
    """
    import psutil

    nearest = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    existing = next((each for each in (nearest, *nearest.absolute().parents) if each.is_dir()), None)
    free_bytes = None
    if existing is not None:
        try:
            free_bytes = psutil.disk_usage(str(existing)).free
        except OSError:
            existing = None
    return DataFolder(
        name=name,
        variable=variable,
        path=str(folder),
        used_bytes=_used_bytes(folder) if counts else None,
        free_bytes=free_bytes,
        disk=None if existing is None else existing.stat().st_dev,
        file_system=None if existing is None else _file_system(existing),
        is_writable=existing is not None and nearest.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        is_disposable=is_disposable,
    )


def _used_bytes(folder: Path) -> int | None:
    """Sum up the files below a folder, each inode once, without following links; 0 for a missing folder."""
    seen: set[tuple[int, int]] = set()
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        key = status.st_dev, status.st_ino
                        total += 0 if key in seen else status.st_blocks * 512  # a sparse file takes less
                        seen.add(key)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return total


def _file_system(folder: Path) -> str | None:
    import psutil

    target = folder.resolve()
    found = [each for each in psutil.disk_partitions(all=True) if target.is_relative_to(each.mountpoint)]
    return max(found, key=lambda each: len(each.mountpoint)).fstype or None if found else None
