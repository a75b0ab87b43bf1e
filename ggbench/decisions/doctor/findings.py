"""The ten checks of `ggbench doctor`: each finds something that the user can change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import Checkup
from ggbench.engines.llama.build import LlamaBuild, pip_command
from ggbench.errors import TESTED_BINDING
from ggbench.machine.readings import BUSY_SHARE, name_processes
from ggbench.show.words import say
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


def _problem(code: str, key: str, command: str = "", **values: str) -> Finding:
    return Finding(code, "problem", say(f"finding.{key}", **values), say(f"mend.{key}", **values), command)


def _advice(code: str, key: str, command: str = "", **values: str) -> Finding:
    return replace(_problem(code, key, command, **values), severity="advice")


def _llama(checkup: Checkup) -> Iterator[Finding]:
    llama = checkup.llama_cpp
    if not llama.is_installed:
        yield _problem("llama", "missing", "pip install llama-cpp-python", problem=llama.problem)
    elif llama.problem:
        yield _problem("llama", "broken", _NATIVE, problem=llama.problem)
    elif changes := "; ".join(_changes(llama)):
        install, version = f"pip install {TESTED_BINDING}", llama.llama_cpp_python
        yield _advice("llama.binding", "binding", install, version=version, changes=changes)


def _changes(llama: LlamaBuild) -> Iterator[str]:
    """Yield how a llama.cpp differs from the one that ggbench was tested with."""
    for key, names in {"new": llama.new_fields, "gone": llama.gone_fields}.items():
        if names:
            yield say(f"binding.{key}", fields=", ".join(names))
    if llama.interface_problem:
        yield say("binding.interface", problem=llama.interface_problem)


def _instructions(checkup: Checkup) -> Iterator[Finding]:
    if checkup.unused_instructions:
        names = ", ".join(checkup.unused_instructions)
        yield _advice("llama.instructions", "instructions", _NATIVE, names=names)


def _backend(checkup: Checkup) -> Iterator[Finding]:
    llama = checkup.llama_cpp
    if checkup.gpus and llama.backends and "CUDA" not in llama.backends and not llama.sees_gpu:
        yield _advice("gpu.backend", "backend", pip_command("-DGGML_CUDA=on"), gpu=checkup.gpus[0].name)


def _driver(checkup: Checkup) -> Iterator[Finding]:
    llama = checkup.llama_cpp
    if checkup.driver_problem:
        yield _problem("gpu.driver", "driver", problem=checkup.driver_problem)
    elif checkup.gpus and "CUDA" in llama.backends and not llama.sees_gpu:
        yield _problem("gpu.driver", "unseen", driver=checkup.driver, gpu=checkup.gpus[0].name)


def _busy(checkup: Checkup) -> Iterator[Finding]:
    share = checkup.others_share
    if share is not None and share >= BUSY_SHARE:
        yield _advice("busy", "busy", share=format_percent(share))
    for gpu in checkup.gpus:
        used_bytes, total_bytes = gpu.used_bytes or 0, gpu.total_bytes or 0
        if used_bytes > max(_MUCH_GPU_BYTES, _MUCH_GPU_SHARE * total_bytes):
            by = name_processes(gpu.processes or ()) or "unknown programs"
            sizes = {"used": format_bytes(used_bytes), "total": format_bytes(total_bytes)}
            yield _advice("busy", "busy_gpu", gpu=gpu.name, by=by, **sizes)


def _clocks(checkup: Checkup) -> Iterator[Finding]:
    governor, _, driver = checkup.governor.partition(", ")
    if governor in _SLOW_GOVERNORS and driver not in _SETTLED_DRIVERS:
        yield _advice("clocks", "governor", "sudo cpupower frequency-set -g performance", governor=governor)
    for gpu in checkup.gpus:
        if held := [reason for reason in gpu.throttle or () if reason in _HELD_DOWN]:
            yield _advice("clocks", "throttled", gpu=gpu.name, reasons=", ".join(held))


def _memory(checkup: Checkup) -> Iterator[Finding]:
    if checkup.container_limit_bytes is not None:
        limit, whole = format_bytes(checkup.container_limit_bytes), format_bytes(checkup.total_bytes)
        yield _advice("memory.limit", "container", limit=limit, whole=whole)


def _disk(checkup: Checkup) -> Iterator[Finding]:
    for folder in checkup.folders:
        if not folder.is_writable:
            yield _problem("disk", "folder", name=folder.name, path=folder.path, variable=folder.variable)
    free_bytes = min((each.free_bytes for each in checkup.folders if each.free_bytes is not None), default=None)
    if free_bytes is not None and free_bytes < _LITTLE_FREE_BYTES:
        make = _problem if free_bytes < _LEAST_FREE_BYTES else _advice
        names = [f"{each.name} ({each.path})" for each in checkup.folders if each.free_bytes == free_bytes]
        caches = [
            f"{each.path} ({format_bytes(each.used_bytes)})" for each in checkup.folders[1:] if each.used_bytes
        ]
        shown = {"folders": " and ".join(names), "caches": ", ".join(caches) or "none"}
        yield make("disk", "disk", free=format_bytes(free_bytes), **shown)


def _results(checkup: Checkup) -> Iterator[Finding]:
    results = checkup.results
    if results.problem:
        yield _problem("results", "results", problem=results.problem, hint=results.hint)


def _hub(checkup: Checkup) -> Iterator[Finding]:
    if checkup.hub_problem:
        yield _advice("hub", "hub", problem=checkup.hub_problem)


CHECKS: tuple[Callable[[Checkup], Iterator[Finding]], ...] = (
    _llama, _instructions, _backend, _driver, _busy, _clocks, _memory, _disk, _results, _hub,
)  # fmt: skip
