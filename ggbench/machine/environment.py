"""The machine as a whole: what plans count with, and what every run records of where it was measured."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import ggbench
from ggbench.machine.cpu import Cpu, describe_cpu
from ggbench.machine.gpus import list_gpus
from ggbench.machine.memory import describe_ram
from ggbench.records.machine import Environment, Gpu


@dataclass(frozen=True, slots=True)
class Machine:
    """What this computer has for a model, at the moment of asking."""

    cpu: Cpu
    ram_bytes: int
    ram_available_bytes: int
    gpus: tuple[Gpu, ...] = ()


def detect_machine() -> Machine:
    """The CPU, memory and GPUs that this process may use."""
    ram = describe_ram()
    return Machine(describe_cpu(), ram.total_bytes, ram.available_bytes, list_gpus())


def environment(llama_cpp_python: str, llama_cpp: str, system_info: str) -> Environment:
    """Where and with what a run is measured; the caller, who loaded it, passes what llama.cpp says of itself."""
    machine = detect_machine()
    return Environment(
        ggbench=ggbench.__version__,
        python=platform.python_version(),
        llama_cpp_python=llama_cpp_python,
        llama_cpp=llama_cpp,
        system_info=system_info,
        os=describe_os(),
        cpu=machine.cpu.name,
        n_cores=machine.cpu.n_cores,
        ram_bytes=machine.ram_bytes,
        gpus=machine.gpus,
    )


def describe_os() -> str:
    """Distribution, kernel and architecture: `Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64`."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return kernel
    return f"{''.join(char for char in name if char.isprintable())}, {kernel}"
