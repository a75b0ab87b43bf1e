"""The machine as a whole: input for plans, and the environment stored with every run."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

import ggbench
from ggbench.machine.cpu import Cpu, describe_cpu
from ggbench.machine.gpus import list_gpus
from ggbench.machine.memory import describe_ram
from ggbench.records.machine import Environment, Gpu


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware available for a model at the time of the call."""

    cpu: Cpu
    ram_bytes: int
    ram_available_bytes: int
    gpus: tuple[Gpu, ...] = ()


def detect_machine() -> Machine:
    """Return the CPU, memory and GPUs available to this process."""
    ram = describe_ram()
    return Machine(describe_cpu(), ram.total_bytes, ram.available_bytes, list_gpus())


def environment(versions: Mapping[str, str]) -> Environment:
    """Describe where and with what a run is measured; `versions` are those that its engine reports."""
    machine = detect_machine()
    return Environment(
        ggbench=ggbench.__version__,
        python=platform.python_version(),
        llama_cpp_python=versions.get("llama_cpp_python", ""),
        llama_cpp=versions.get("llama_cpp", ""),
        system_info=versions.get("system_info", ""),
        os=describe_os(),
        cpu=machine.cpu.name,
        n_cores=machine.cpu.n_cores,
        ram_bytes=machine.ram_bytes,
        gpus=machine.gpus,
    )


def describe_os() -> str:
    """Return distribution, kernel and architecture: `Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64`."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return kernel
    return f"{''.join(char for char in name if char.isprintable())}, {kernel}"
