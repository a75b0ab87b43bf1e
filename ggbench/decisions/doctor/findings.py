"""The ten checks of `ggbench doctor`: each finds something that the user can change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ggbench.decisions.doctor.checkup import Checkup
from ggbench.engines.llama.build import pip_command
from ggbench.machine.readings import BUSY_SHARE, name_processes
from ggbench.units import GIB, MIB, format_bytes, format_percent


class Finding(msgspec.Struct, frozen=True):
    """Something that the user can change."""

    code: str
    """Stable, e.g. `disk`."""
    severity: Literal["problem", "advice"]
    """A problem makes something fail; advice makes measurements faster or more reliable."""
    message: str
    hint: str
    command: str = ""
    """What to type to mend it; empty if no single command does."""


_NATIVE = pip_command("-DGGML_NATIVE=on")
_SETTLED_DRIVERS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose governor `powersave` raises the clock on demand. Source: the kernel's admin-guide/pm/intel_pstate."""
_SLOW_GOVERNORS = ("powersave", "conservative")
_HELD_DOWN = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_LEAST_FREE_BYTES, _LITTLE_FREE_BYTES = 256 * MIB, 5 * GIB
_MUCH_GPU_BYTES, _MUCH_GPU_SHARE = GIB, 0.05


def findings(checkup: Checkup) -> tuple[Finding, ...]:
    """Return what the checks find, problems first."""
    found = [finding for check in CHECKS for finding in check(checkup)]
    return tuple(sorted(found, key=lambda each: each.severity != "problem"))


def _problem(code: str, message: str, hint: str, command: str = "") -> Finding:
    return Finding(code, "problem", message, hint, command)


def _advice(code: str, message: str, hint: str, command: str = "") -> Finding:
    return Finding(code, "advice", message, hint, command)


def _llama(checkup: Checkup) -> Iterator[Finding]:
    llama = checkup.llama_cpp
    if not llama.is_installed:
        hint = "install it; in a checkout: ./scripts/setup"
        yield _problem("llama", llama.problem, hint, "pip install llama-cpp-python")
    elif llama.problem:
        hint = "update the GPU's driver, or build it again; in a checkout: ./scripts/setup"
        yield _problem("llama", f"llama.cpp cannot be loaded: {llama.problem}", hint, _NATIVE)


def _instructions(checkup: Checkup) -> Iterator[Finding]:
    if checkup.unused_instructions:
        message = f"llama.cpp was compiled without {', '.join(checkup.unused_instructions)}, which this CPU has"
        hint = "compile it on this machine; in a checkout: ./scripts/setup"
        yield _advice("llama.instructions", message, hint, _NATIVE)


def _backend(checkup: Checkup) -> Iterator[Finding]:
    llama = checkup.llama_cpp
    if checkup.gpus and llama.backends and "CUDA" not in llama.backends and not llama.sees_gpu:
        message = f"llama.cpp was compiled without CUDA, so {checkup.gpus[0].name} is not used"
        hint = "compile it for CUDA; in a checkout: ./scripts/setup --backend cuda"
        yield _advice("gpu.backend", message, hint, pip_command("-DGGML_CUDA=on"))


def _driver(checkup: Checkup) -> Iterator[Finding]:
    llama = checkup.llama_cpp
    if checkup.driver_problem:
        yield _problem(
            "gpu.driver",
            f"this machine has an NVIDIA GPU, but its driver does not respond: {checkup.driver_problem}",
            "restart the machine if the driver was updated, else install NVIDIA's driver (in a container start it with "
            "--gpus all); `nvidia-smi` must list the GPU",
        )
    elif checkup.gpus and "CUDA" in llama.backends and not llama.sees_gpu:
        yield _problem(
            "gpu.driver",
            f"llama.cpp was compiled with CUDA but sees no GPU; driver {checkup.driver} lists {checkup.gpus[0].name}",
            "unset CUDA_VISIBLE_DEVICES if it hides the GPU, else update NVIDIA's driver or restart the machine",
        )


def _busy(checkup: Checkup) -> Iterator[Finding]:
    share = checkup.others_share
    if share is not None and share >= BUSY_SHARE:
        hint = "close them before measuring, or they will distort the results; `top` lists them"
        yield _advice("busy", f"other programs use {format_percent(share)} of the CPU", hint)
    for gpu in checkup.gpus:
        used_bytes, total_bytes = gpu.used_bytes or 0, gpu.total_bytes or 0
        if used_bytes > max(_MUCH_GPU_BYTES, _MUCH_GPU_SHARE * total_bytes):
            used = f"{format_bytes(used_bytes)} of {format_bytes(total_bytes)} of {gpu.name} are in use"
            hint = "close unneeded programs before measuring: they take memory and bandwidth"
            yield _advice("busy", ": ".join(filter(None, (used, name_processes(gpu.processes or ())))), hint)


def _clocks(checkup: Checkup) -> Iterator[Finding]:
    governor, _, driver = checkup.governor.partition(", ")
    if governor in _SLOW_GOVERNORS and driver not in _SETTLED_DRIVERS:
        message = f"the CPU's frequency governor is {governor}, which keeps clocks low"
        yield _advice("clocks", message, "set it to performance", "sudo cpupower frequency-set -g performance")
    for gpu in checkup.gpus:
        if held := [reason for reason in gpu.throttle or () if reason in _HELD_DOWN]:
            message = f"the clocks of {gpu.name} are throttled: {', '.join(held)}"
            yield _advice("clocks", message, "check its cooling and power supply")


def _memory(checkup: Checkup) -> Iterator[Finding]:
    if checkup.container_limit_bytes is not None:
        limit, whole = format_bytes(checkup.container_limit_bytes), format_bytes(checkup.total_bytes)
        hint = "raise its limit for larger models: docker run --memory, systemd-run -p MemoryMax"
        yield _advice("memory.limit", f"the container is limited to {limit} of {whole}", hint)


def _disk(checkup: Checkup) -> Iterator[Finding]:
    caches = [
        f"{each.path} ({format_bytes(each.used_bytes)})" for each in checkup.folders[1:] if each.used_bytes
    ]
    for folder in checkup.folders:
        if not folder.is_writable:
            hint = f"change its permissions, or point {folder.variable} at a folder that can"
            yield _problem("disk", f"the folder of {folder.name} ({folder.path}) cannot be written", hint)
    free_bytes = min((each.free_bytes for each in checkup.folders if each.free_bytes is not None), default=None)
    if free_bytes is not None and free_bytes < _LITTLE_FREE_BYTES:
        make = _problem if free_bytes < _LEAST_FREE_BYTES else _advice
        names = [f"{each.name} ({each.path})" for each in checkup.folders if each.free_bytes == free_bytes]
        message = f"{format_bytes(free_bytes)} are free on the disk of {' and '.join(names)}"
        yield make("disk", message, f"free some space; caches may be deleted: {', '.join(caches) or 'none'}")


def _results(checkup: Checkup) -> Iterator[Finding]:
    if checkup.results.problem:
        yield _problem("results", checkup.results.problem, checkup.results.hint)


def _hub(checkup: Checkup) -> Iterator[Finding]:
    if checkup.hub_problem:
        message = f"no model can be found or downloaded on the Hub: {checkup.hub_problem}"
        yield _advice("hub", message, "unset HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE and HF_ENDPOINT")


CHECKS: tuple[Callable[[Checkup], Iterator[Finding]], ...] = (
    _llama, _instructions, _backend, _driver, _busy, _clocks, _memory, _disk, _results, _hub,
)  # fmt: skip
