"""The machine and the software of a run."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping

import ggbench
from ggbench.machine.drm_gpus import list_drm_gpus
from ggbench.machine.gpus import list_gpus
from ggbench.machine.host import describe_cpu, describe_ram
from ggbench.machine.records import Environment, Gpu


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
    return (
        nvidia
        if {each.lower() for each in backends} <= _WITHOUT_DRM
        else (*nvidia, *list_drm_gpus(len(nvidia)))
    )


_WITHOUT_DRM = {"cpu", "blas", "rpc", "cuda"}


def describe_os() -> str:
    """Return distribution, kernel and architecture: `Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64`."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return kernel
    return f"{''.join(char for char in name if char.isprintable())}, {kernel}"
