"""The checks of `ggbench doctor`: each finds something that the user can change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Literal

from ggbench.decisions.doctor.checkup import Checkup, Finding
from ggbench.engines.llama.build import LlamaBuild, pip_command
from ggbench.errors import TESTED_BINDING
from ggbench.machine.readings import name_processes
from ggbench.show.words import say
from ggbench.units import GIB, MIB, format_bytes

_NATIVE = pip_command("-DGGML_NATIVE=on")
_LEAST_FREE_BYTES, _LITTLE_FREE_BYTES = 256 * MIB, 5 * GIB
_MUCH_GPU_BYTES, _MUCH_GPU_SHARE = GIB, 0.05


def findings(checkup: Checkup) -> tuple[Finding, ...]:
    """Return what the checks find, problems first."""
    found = [finding for check in _CHECKS for finding in check(checkup)]
    return tuple(sorted(found, key=lambda each: each.severity != "problem"))


def _finding(
    severity: Literal["problem", "advice"], code: str, key: str, command: str = "", **values: str
) -> Finding:
    return Finding(code, severity, say(f"finding.{key}", **values), say(f"mend.{key}", **values), command)


_problem = functools.partial(_finding, "problem")
_advice = functools.partial(_finding, "advice")


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
    for gpu in checkup.gpus:
        used_bytes, total_bytes = gpu.used_bytes or 0, gpu.total_bytes or 0
        if used_bytes > max(_MUCH_GPU_BYTES, _MUCH_GPU_SHARE * total_bytes):
            by = name_processes(gpu.processes or ()) or "unknown programs"
            sizes = {"used": format_bytes(used_bytes), "total": format_bytes(total_bytes)}
            yield _advice("busy", "busy_gpu", gpu=gpu.name, by=by, **sizes)


def _disk(checkup: Checkup) -> Iterator[Finding]:
    for folder in checkup.folders:
        if not folder.is_writable:
            yield _problem("disk", "folder", name=folder.name, path=folder.path, variable=folder.variable)
    free_bytes = min((each.free_bytes for each in checkup.folders if each.free_bytes is not None), default=None)
    if free_bytes is not None and free_bytes < _LITTLE_FREE_BYTES:
        make = _problem if free_bytes < _LEAST_FREE_BYTES else _advice
        names = [f"{each.name} ({each.path})" for each in checkup.folders if each.free_bytes == free_bytes]
        caches = ", ".join(each.path for each in checkup.folders[1:])
        shown = {"folders": " and ".join(names), "caches": caches}
        yield make("disk", "disk", free=format_bytes(free_bytes), **shown)


def _results(checkup: Checkup) -> Iterator[Finding]:
    results = checkup.results
    if results.problem:
        yield _problem("results", "results", problem=results.problem, hint=results.hint)


_CHECKS: tuple[Callable[[Checkup], Iterator[Finding]], ...] = (
    _llama, _instructions, _backend, _driver, _busy, _disk, _results,
)  # fmt: skip
