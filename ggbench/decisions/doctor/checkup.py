"""The machine as `ggbench doctor` describes it, without measuring or changing anything."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import ggbench
from ggbench import paths
from ggbench.engines.llama.build import LlamaBuild, describe_llama_build
from ggbench.hub.access import hub_cache_folder
from ggbench.machine.bandwidth import known_bandwidth
from ggbench.machine.environment import describe_os
from ggbench.machine.gpus import driver_problem, open_nvml
from ggbench.machine.host import PROC, default_threads, describe_cpu, describe_ram, read_text
from ggbench.machine.readings import read_gpus
from ggbench.machine.records import GpuReading
from ggbench.record import Record
from ggbench.runs.store.health import StoreHealth, inspect_store
from ggbench.stats.decode_timing import Bandwidth


class Folder(Record):
    """A folder written by ggbench, and its disk."""

    name: str
    variable: str
    """Environment variable that moves it, such as `XDG_DATA_HOME`."""
    path: str
    free_bytes: int | None
    """Free bytes on its disk, for this user; None if unknown."""
    is_writable: bool


class Finding(Record):
    """Something that the user can change."""

    code: str
    """Stable, e.g. `disk`."""
    severity: Literal["problem", "advice"]
    """A problem makes something fail; advice makes measurements faster or more reliable."""
    message: str
    hint: str
    command: str = ""
    """What to type to mend it; empty if no single command does."""


class Checkup(Record, kw_only=True):
    """The machine, and ggbench on it."""

    ggbench: str
    python: str
    os: str
    llama_cpp: LlamaBuild
    unused_instructions: tuple[str, ...] = ()
    """Instruction sets of this CPU that llama.cpp was not compiled for, by its names."""
    cpu: str
    n_cores: int
    """Physical cores that this process may use."""
    total_bytes: int
    """Main memory, within the container's limit."""
    available_bytes: int
    """Memory that can be allocated without swapping."""
    driver: str = ""
    """Version of NVIDIA's driver; empty without one."""
    driver_problem: str = ""
    """Why it does not respond, if the machine has a card of NVIDIA's."""
    gpus: tuple[GpuReading, ...] = ()
    """NVIDIA's GPUs."""
    folders: tuple[Folder, ...]
    results: StoreHealth
    bandwidth: Bandwidth | None = None
    """Measured bandwidth of main memory; None before the first run."""
    findings: tuple[Finding, ...] = ()
    """Problems first."""


INSTRUCTIONS = {
    "AVX2": "avx2", "F16C": "f16c", "FMA": "fma", "AVX_VNNI": "avx_vnni", "AVX512": "avx512f",
    "AVX512_VNNI": "avx512_vnni", "AVX512_BF16": "avx512_bf16",
    "NEON": "asimd", "DOTPROD": "asimddp", "MATMUL_INT8": "i8mm", "SVE": "sve",
}  # fmt: skip
"""llama.cpp's features by the kernel's names; scripts/setup leaves AMX out on purpose. Source: ggml-cpu.cpp's features,
arch/x86 and arm's flags in Linux."""


def check_machine() -> Checkup:
    """Return the state of this machine, without findings."""
    cpu, ram = describe_cpu(), describe_ram()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(describe_llama_build)  # a process, which takes memory of GPUs until it ends
        folders, results = _folders(), inspect_store()
        llama = asked.result()
    driver, gpus = _gpus()
    return Checkup(
        ggbench=ggbench.__version__,
        python=platform.python_version(),
        os=describe_os(),
        llama_cpp=llama,
        unused_instructions=unused_instructions(llama),
        cpu=cpu.name,
        n_cores=cpu.n_cores,
        total_bytes=ram.total_bytes,
        available_bytes=ram.available_bytes,
        driver=driver,
        driver_problem=driver_problem(),
        gpus=gpus,
        folders=folders,
        results=results,
        bandwidth=known_bandwidth(default_threads()),
    )


def unused_instructions(llama: LlamaBuild) -> tuple[str, ...]:
    """Return the instruction sets of the first CPU (`flags` on x86, `Features` on Arm) that llama.cpp does not use."""
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", read_text(PROC / "cpuinfo") or "", re.MULTILINE)
    flags, used = match[1].split() if match else (), llama.features
    return tuple(name for name, flag in INSTRUCTIONS.items() if used and flag in flags and name not in used)


def _gpus() -> tuple[str, tuple[GpuReading, ...]]:
    nvml = open_nvml()
    if nvml is None:
        return "", ()
    with contextlib.closing(nvml):
        return nvml.query("nvmlSystemGetDriverVersion") or "", read_gpus(nvml)


def _folders() -> tuple[Folder, ...]:
    return (
        describe_folder("results", "XDG_DATA_HOME", paths.results_file().parent),
        describe_folder("caches", "XDG_CACHE_HOME", paths.caches_dir()),
        describe_folder("Hugging Face's cache", "HF_HOME", hub_cache_folder()),
    )


def describe_folder(name: str, variable: str, folder: Path) -> Folder:
    """Describe a folder; if it does not exist, its disk is that of the nearest folder above."""
    import psutil

    nearest = next((each for each in (folder, *folder.absolute().parents) if os.path.lexists(each)), Path("/"))
    free_bytes = None
    with contextlib.suppress(OSError):
        free_bytes = psutil.disk_usage(str(nearest)).free
    is_writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Folder(name, variable, str(folder), free_bytes, is_writable)
