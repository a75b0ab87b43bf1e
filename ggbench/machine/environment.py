"""The environment stored with every run: versions, system and hardware."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import ggbench
from ggbench.machine.cpu import describe_cpu
from ggbench.machine.gpus import list_gpus
from ggbench.machine.memory import describe_ram
from ggbench.machine.records import Environment


def environment(versions: Mapping[str, str]) -> Environment:
    """Describe where and with what a run is measured; `versions` are those that its engine reports."""
    cpu = describe_cpu()
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
        gpus=list_gpus(),
        llama_cpp_commit=versions.get("llama_cpp_commit", ""),
        server=versions.get("server", ""),
        transformers=versions.get("transformers", ""),
    )


def describe_os() -> str:
    """Return distribution, kernel and architecture: `Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64`."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return kernel
    return f"{''.join(char for char in name if char.isprintable())}, {kernel}"
