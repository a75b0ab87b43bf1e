"""Examine this machine for `ggbench doctor`, without measuring or changing anything.

A finding is something that the user can act on.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

import ggbench
from ggbench import paths
from ggbench.engines.llama.build import KILLED, LlamaBuild, build_command, describe_llama_build
from ggbench.errors import GgbenchError
from ggbench.hub.access import HubLogin, describe_login, hub_cache_folder
from ggbench.machine.bandwidth import is_from_busy_machine, known_bandwidth
from ggbench.machine.condition import (
    CpuState,
    DataFolder,
    GpuDriver,
    GpuState,
    MemoryState,
    describe_cpu_state,
    describe_gpu_driver,
    describe_memory_state,
    describe_os,
    describe_place,
)
from ggbench.machine.host import default_threads
from ggbench.machine.readings import BUSY_SHARE, OthersWatch, name_processes
from ggbench.runs.store.health import StoreHealth, inspect_store
from ggbench.show.anonymous import Paths
from ggbench.stats.decode_timing import Bandwidth
from ggbench.text import in_words
from ggbench.units import GIB, MIB, counted, format_bytes, format_number, format_percent


class Calibration(msgspec.Struct, frozen=True):
    """Measurements made once on this machine, for forecasts and limits."""

    bandwidth: Bandwidth | None
    """Bandwidth of main memory; None before the first run."""
    is_busy: bool = False
    """Whether it was measured on a busy machine, hence too low."""
    shares: str | None = None
    """Share of the bandwidth that models reach here; None before two have run."""


class Checkup(msgspec.Struct, frozen=True):
    ggbench: str
    python: str
    os: str
    llama: LlamaBuild
    cpu: CpuState
    memory: MemoryState
    driver: GpuDriver
    places: tuple[DataFolder, ...]
    store: StoreHealth
    hub: HubLogin
    calibration: Calibration


def check_machine() -> Checkup:
    """Return the whole state; anything unknown is None or has a reason."""
    watch = OthersWatch()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(describe_llama_build)  # a process, which takes memory of GPUs until it ends
        store = inspect_store()
        places, calibration, llama = _places(), _calibration(store), asked.result()
    return Checkup(
        ggbench=ggbench.__version__,
        python=platform.python_version(),
        os=describe_os(),
        llama=llama,
        cpu=describe_cpu_state(watch=watch),
        memory=describe_memory_state(),
        driver=describe_gpu_driver(),
        places=places,
        store=store,
        hub=describe_login(),
        calibration=calibration,
    )


def _calibration(store: StoreHealth) -> Calibration:
    bandwidth = known_bandwidth(default_threads())
    if bandwidth is None:
        return Calibration(None)
    is_readable = bool(store.n_runs) and not store.problem and store.version == store.newest_version
    return Calibration(bandwidth, is_from_busy_machine(bandwidth), _shares() if is_readable else None)


def _shares() -> str | None:
    from ggbench.decisions.known_speeds import KnownSpeeds
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.runs.store.database import Store
    from ggbench.sizing.budget import machine_budget

    with contextlib.suppress(GgbenchError, PackageNotFoundError), Store.open() as opened:
        budget = machine_budget(LlamaConfig(), measures=False)
        shares = KnownSpeeds(opened, budget).shares(LlamaConfig())
        return None if shares is None else shares.source
    return None


def _places() -> tuple[DataFolder, ...]:
    caches, moved_by = paths.caches_dir(), "XDG_CACHE_HOME"
    inside = sorted(caches.iterdir()) if caches.is_dir() and os.access(caches, os.R_OK | os.X_OK) else []
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:  # it is full
        temporary = Path(os.environ.get("TMPDIR", "/tmp"))
    return (
        describe_place("results", "XDG_DATA_HOME", paths.results_file().parent),
        describe_place("caches", moved_by, caches),
        *(describe_place(each.name, moved_by, each, is_disposable=True) for each in inside if each.is_dir()),
        describe_place("Hugging Face's cache", "HF_HOME", hub_cache_folder(os.environ)),
        describe_place("temporary files", "TMPDIR", temporary, counts=False),
    )


Severity = Literal["problem", "advice"]


class Finding(msgspec.Struct, frozen=True):
    """Something that the user can change."""

    code: str
    """Stable, e.g. `cpu.governor`."""
    severity: Severity
    """A problem makes something fail; advice makes measurements faster or more reliable."""
    message: str
    hint: str


LEAST_VERSION = (0, 3, 36)
"""The oldest llama-cpp-python that works."""

INSTRUCTIONS = {
    "AVX": "avx", "AVX2": "avx2", "F16C": "f16c", "FMA": "fma", "BMI2": "bmi2", "AVX_VNNI": "avx_vnni",
    "AVX512": "avx512f", "AVX512_VBMI": "avx512vbmi", "AVX512_VNNI": "avx512_vnni", "AVX512_BF16": "avx512_bf16",
    "NEON": "asimd", "DOTPROD": "asimddp", "FP16_VA": "asimdhp", "MATMUL_INT8": "i8mm", "SVE": "sve", "SME": "sme",
}  # fmt: skip
"""llama.cpp's features by the kernel's names. Source: ggml-cpu.cpp's features, arch/x86 and arm's flags in Linux."""
AMX, AMX_INSTRUCTION = "AMX_INT8", "amx_int8"

_NATIVE = "-DGGML_NATIVE=on"
_SETTLED_DRIVERS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose governor `powersave` raises the clock on demand. Source: the kernel's admin-guide/pm/intel_pstate."""
_SLOW_GOVERNORS, _SLOW_PREFERENCES = ("powersave", "conservative"), ("power", "balance_power")
_HELD_DOWN = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs")
_LEAST_FREE_BYTES, _LITTLE_FREE_BYTES = 256 * MIB, 5 * GIB
_MUCH_GPU_BYTES, _MUCH_GPU_SHARE = GIB, 0.05
_LITTLE_MEMORY_SHARE = 0.25


def findings(checkup: Checkup, paths: Paths, own: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Return the findings, problems first; `paths` decides how folders are shown, also those in `own` findings."""
    found = [
        *_of_llama(checkup.llama, checkup.cpu),
        *_of_driver(checkup.driver, checkup.llama),
        *(each for gpu in checkup.driver.gpus for each in _of_gpu(gpu, checkup.llama)),
        *_of_cpu(checkup.cpu),
        *_of_memory(checkup.memory),
        *_of_places(checkup.places, paths),
        *_of_store(checkup, paths),
        *_of_hub(checkup.hub, paths),
        *(replace(each, message=paths.without(each.message), hint=paths.without(each.hint)) for each in own),
    ]
    if checkup.calibration.is_busy:
        message = "the memory bandwidth was measured on a busy machine, so limits are too low"
        hint = "run any measurement on an idle machine: the bandwidth is then measured again"
        found.append(Finding("calibration.busy", "advice", message, hint))
    return tuple(sorted(found, key=lambda each: each.severity != "problem"))


def missing_instructions(llama: LlamaBuild, cpu: CpuState) -> tuple[str, ...]:
    """Return the instruction sets of this CPU that llama.cpp was not compiled for, except AMX."""
    features = llama.features_of("CPU")
    if not features:
        return ()
    return tuple(name for name, flag in INSTRUCTIONS.items() if flag in cpu.instructions and name not in features)


def problem(code: str, message: str, hint: str) -> Finding:
    return Finding(code, "problem", message, hint)


def advice(code: str, message: str, hint: str) -> Finding:
    return Finding(code, "advice", message, hint)


def _of_llama(llama: LlamaBuild, cpu: CpuState) -> Iterator[Finding]:
    if not llama.is_installed:
        yield problem("llama.missing", llama.problem, "run ./scripts/setup, or pip install llama-cpp-python")
        return
    if llama.problem:
        hint = "install NVIDIA's driver; for the CPU alone: " if "libcuda.so" in llama.problem else "build it again: "
        if llama.problem.startswith(KILLED):  # nearly always by a driver that was asked for its devices
            hint = "update the GPU's driver (VK_LOADER_DRIVERS_DISABLE='*' hides Vulkan's), or build it again: "
        yield problem("llama.broken", f"llama.cpp cannot be loaded: {llama.problem}", hint + build_command(_NATIVE))
        return
    version = tuple(int(part) for part in llama.llama_cpp_python.split(".")[:3] if part.isdecimal())
    if version < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        hint = f'run ./scripts/setup, or pip install "llama-cpp-python>={least}"'
        yield problem("llama.old", f"llama-cpp-python {llama.llama_cpp_python} is older than {least}", hint)
    if missing := missing_instructions(llama, cpu):
        message = f"llama.cpp was compiled without {', '.join(missing)}, which this CPU has"
        yield advice("llama.instructions", message, f"compile it here: {build_command(_NATIVE)}")
    if AMX in llama.features_of("CPU"):
        yield advice(
            "llama.amx",
            "llama.cpp was compiled with AMX, whose code crashes on some CPUs (llama.cpp issue 20824)",
            "if a run ends in a segmentation fault, ./scripts/setup builds without it",
        )


def _of_driver(driver: GpuDriver, llama: LlamaBuild) -> Iterator[Finding]:
    if driver.problem:
        yield problem(
            "gpu.driver",
            f"this machine has an NVIDIA GPU, but its driver does not respond: {driver.problem}",
            "restart the machine if the driver was updated, else install NVIDIA's driver (in a container start it with "
            "--gpus all); `nvidia-smi` must list the GPU",
        )
    if not driver.gpus or llama.problem:
        return
    if not driver.n_visible:
        yield advice("gpu.hidden", "CUDA_VISIBLE_DEVICES hides every GPU", "unset it to measure on a GPU")
        return
    sees_gpu, name = any(device.is_gpu for device in llama.devices), driver.gpus[0].gpu.name
    names = name if len(driver.gpus) == 1 else f"{name} and {len(driver.gpus) - 1} more"
    if "CUDA" not in llama.backends and not sees_gpu:
        message = f"llama.cpp was compiled without CUDA, so {names} is not used"
        yield advice("llama.cuda", message, f"compile it for CUDA: {build_command('-DGGML_CUDA=on', 'cuda')}")
    if llama.cuda_version and driver.cuda_version and llama.cuda_version[0] > driver.cuda_version[0]:
        built, runs = dotted(llama.cuda_version), dotted(driver.cuda_version)
        yield problem(
            "gpu.driver_old",
            f"llama.cpp was compiled with CUDA {built}, but driver {driver.version} supports at most CUDA {runs}",
            f"update NVIDIA's driver, or compile llama.cpp with CUDA {driver.cuda_version[0]}",
        )
    elif "CUDA" in llama.backends and not sees_gpu:
        yield problem(
            "gpu.unseen",
            f"llama.cpp was compiled with CUDA but sees no GPU, although the driver lists {names}",
            "restart the machine, or update NVIDIA's driver; `nvidia-smi` must work for this user",
        )


def _of_gpu(state: GpuState, llama: LlamaBuild) -> Iterator[Finding]:
    gpu, capability = state.gpu, state.compute_capability
    archs = llama.features_of("CUDA").get("ARCHS", "").split(",")
    compiled = sorted(int(text) for text in archs if text.strip().isdecimal())
    if capability and compiled:
        number = 100 * capability[0] + 10 * capability[1]
        is_newer, has_code = compiled[0] > number, any(n <= number and n // 100 == capability[0] for n in compiled)
        if is_newer or not has_code:
            built = ", ".join(f"{each // 100}.{each % 100 // 10}" for each in compiled)
            effect = "does not run on" if is_newer else "is compiled again when it starts, or fails, on"
            yield Finding(
                "gpu.architecture",
                "problem" if is_newer else "advice",
                f"llama.cpp was compiled for compute capability {built}; it {effect} {gpu.name} ({dotted(capability)})",
                f"compile it here: {build_command(f'-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES={number // 10}')}",
            )
    used = (gpu.total_bytes or 0) - (gpu.free_bytes or 0)
    if gpu.free_bytes is not None and used > max(_MUCH_GPU_BYTES, _MUCH_GPU_SHARE * (gpu.total_bytes or 0)):
        by = f": {name_processes(state.processes)}" if state.processes else ""
        yield advice(
            "gpu.used",
            f"{format_bytes(used)} of {format_bytes(gpu.total_bytes)} of {gpu.name} are in use{by}",
            "close unneeded programs before measuring: they take memory and bandwidth",
        )
    held = [reason for reason in state.throttle or () if reason in _HELD_DOWN]
    if held:
        message = f"the clocks of {gpu.name} are throttled: {', '.join(held)}"
        yield advice("gpu.throttle", message, "check its cooling and power supply")


def _of_cpu(cpu: CpuState) -> Iterator[Finding]:
    slow = [each for each in cpu.governors if each in _SLOW_GOVERNORS]
    if slow and cpu.scaling_driver not in _SETTLED_DRIVERS:
        message = f"the CPU's frequency governor is {', '.join(slow)}, which keeps clocks low"
        yield advice("cpu.governor", message, "sudo cpupower frequency-set -g performance")
    elif cpu.energy_preference in _SLOW_PREFERENCES:
        message = f"the CPU's energy preference is {cpu.energy_preference}, which keeps clocks low"
        yield advice("cpu.governor", message, "powerprofilesctl set performance, or the desktop's performance profile")
    if cpu.is_on_battery:
        yield advice("cpu.battery", "the machine is running on battery, which lowers clocks", "plug it in to measure")
    if cpu.busy_share is not None and cpu.busy_share >= BUSY_SHARE:
        yield advice(
            "cpu.busy",
            f"other programs use {format_percent(cpu.busy_share)} of the CPU",
            "close them before measuring, or they will distort the results; `top` lists them",
        )
    if cpu.quota_cpus is not None and cpu.quota_cpus < cpu.n_cpus:
        yield advice(
            "cpu.quota",
            f"the container may use {format_number(cpu.quota_cpus)} of {counted(cpu.n_cpus, 'CPU')} and pauses above",
            "start it without a limit: docker run without --cpus, systemd-run without CPUQuota",
        )


def _of_memory(memory: MemoryState) -> Iterator[Finding]:
    if memory.huge_pages == "never":
        message = "transparent huge pages are off, which lowers the bandwidth of main memory"
        hint = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        yield advice("memory.huge_pages", message, hint)
    limit = memory.container_limit_bytes
    if limit is not None:
        message = f"the container is limited to {format_bytes(limit)} of {format_bytes(memory.total_bytes)}"
        hint = "raise its limit for larger models: docker run --memory, systemd-run -p MemoryMax"
        yield advice("memory.container", message, hint)
    if memory.address_space_limit_bytes is not None:
        limited = format_bytes(memory.address_space_limit_bytes)
        message = f"the address space is limited to {limited}, but whole models are mapped into it"
        yield problem("memory.address_space", message, "ulimit -v unlimited, in the shell that starts ggbench")
    if memory.overcommit == 2:
        message = "vm.overcommit_memory is 2, so the kernel may refuse memory that would fit"
        yield advice("memory.overcommit", message, "sudo sysctl vm.overcommit_memory=0")
    total = min(memory.total_bytes, limit or memory.total_bytes)
    if memory.available_bytes < _LITTLE_MEMORY_SHARE * total:
        message = f"{format_bytes(memory.available_bytes)} of {format_bytes(total)} of main memory are available"
        hint = "close programs before measuring; `ggbench plan` names the largest"
        yield advice("memory.used", message, hint)


def _of_places(places: Sequence[DataFolder], paths: Paths) -> Iterator[Finding]:
    kept = [place for place in places if not place.is_disposable]
    for place in kept:
        if not place.is_writable:
            yield problem(
                "disk.read_only",
                f"the folder of {place.name} ({paths.shown(place.path)}) cannot be written",
                f"change its permissions, or point {place.variable} at a folder that can",
            )
        if place.name == "results" and place.file_system in _NETWORK_FILE_SYSTEMS:
            message = f"the results are on a network file system ({place.file_system}), where locks may not work"
            yield advice("store.network", message, "point XDG_DATA_HOME at a folder on a local disk")
    for disk in dict.fromkeys(place.disk for place in kept):
        on_disk = [place for place in kept if place.disk == disk]
        free_bytes = on_disk[0].free_bytes
        if free_bytes is None or free_bytes >= _LITTLE_FREE_BYTES:
            continue
        names = in_words([f"{place.name} ({paths.shown(place.path)})" for place in on_disk])
        used = sorted((each for each in places if each.is_disposable), key=lambda each: -(each.used_bytes or 0))
        caches = [
            f"{paths.shown(each.path)} ({each.name}, {format_bytes(each.used_bytes)})"
            for each in used
            if each.used_bytes
        ]
        yield Finding(
            "disk.full",
            "problem" if free_bytes < _LEAST_FREE_BYTES else "advice",
            f"{format_bytes(free_bytes)} are free on the disk of {names}",
            f"free some space; safe to delete: {', '.join(caches) or 'nothing of ggbench'}",
        )


def _of_store(checkup: Checkup, paths: Paths) -> Iterator[Finding]:
    store = checkup.store
    name = paths.shown(store.path)
    if store.is_foreign:
        message = f"{name} is a database of another program"
        yield problem("store.foreign", message, "move it away; ggbench will create its own")
    elif store.problem:
        yield problem(
            "store.damaged",
            f"the results file {name} cannot be used as it is: {paths.without(store.problem)}",
            f"copy it first; `sqlite3 {paths.shell_word(store.path)} .recover` may recover its contents",
        )
    elif store.version is not None and store.version > store.newest_version:
        message = f"the results file has version {store.version}, and this ggbench knows {store.newest_version}"
        yield problem("store.newer", message, "upgrade ggbench; the file stays unchanged")
    if store.n_set_aside:
        message = f"{counted(store.n_set_aside, 'damaged results file')} moved aside and kept next to {name}"
        yield advice("store.set_aside", message, "`sqlite3 FILE .recover` may recover their contents; then delete them")


def _of_hub(hub: HubLogin, paths: Paths) -> Iterator[Finding]:
    if hub.problem:
        yield problem("hub.settings", hub.problem, "unset HF_ENDPOINT, or set it to a URL with https://")
    if hub.is_exposed and hub.token_from is not None:
        message = f"other users can read your Hub token in {paths.shown(hub.token_from)}"
        yield advice("hub.token", message, f"chmod 600 {paths.shell_word(hub.token_from)}")


def dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
