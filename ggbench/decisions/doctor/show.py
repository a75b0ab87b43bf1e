"""Show what `ggbench doctor` found: the worst first, with what mends it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ggbench.decisions.doctor.checkup import Checkup
from ggbench.show.answer import Answer, Facts
from ggbench.show.document import Document
from ggbench.show.words import say
from ggbench.units import counted, format_bandwidth, format_bytes

DOCTOR = Document("doctor", "doctor", "This machine as ggbench sees it, with advice.", Checkup)


def checkup_answer(checkup: Checkup) -> Answer:
    machine = Facts(_items(_machine(checkup)))
    behind = [Facts(_items(_llama(checkup)), "llama.cpp"), Facts(_items(_files(checkup)), "Files")]
    if not checkup.findings:
        return Answer(say("doctor.well"), "", [machine], why=behind)
    worst, *others = checkup.findings
    text = say(f"doctor.{worst.severity}", message=worst.message, hint=worst.hint)
    listed = [(each, say("doctor.other", message=each.message, hint=each.hint)) for each in others]
    rest = Facts(_items(pair for each, line in listed for pair in ((each.severity, line), ("", each.command))))
    return Answer(_at_home(text), worst.command, [rest, machine], why=behind)


def _items(facts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, _at_home(text)) for name, text in facts]


def _at_home(text: str) -> str:
    return text.replace(os.path.expanduser("~/"), "~/")  # noqa: PTH111 - pathlib's raises without a home


def _machine(checkup: Checkup) -> Iterator[tuple[str, str]]:
    llama = checkup.llama_cpp
    yield "llama.cpp", llama.problem or f"{llama.llama_cpp} with {', '.join(llama.backends)}"
    yield "CPU", f"{checkup.cpu}, {counted(checkup.n_cores, 'core')}"
    yield "memory", f"{format_bytes(checkup.available_bytes)} of {format_bytes(checkup.total_bytes)} available"
    for gpu in checkup.gpus:
        used = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)} used"
        yield f"GPU {gpu.index}", f"{gpu.name}, {used}, driver {checkup.driver or 'unknown'}"
    others = [device for device in llama.devices if device.is_gpu and device.backend != "CUDA"]
    for device in others:
        free = f"{format_bytes(device.free_bytes)} of {format_bytes(device.total_bytes)} free"
        yield f"GPU {device.name}", f"{device.description}, {free}"
    if not (checkup.gpus or others):
        yield "GPU", checkup.driver_problem or "none that llama.cpp or NVIDIA's driver lists"


def _llama(checkup: Checkup) -> Iterator[tuple[str, str]]:
    llama = checkup.llama_cpp
    yield "ggbench", checkup.ggbench
    yield "Python", checkup.python
    yield "system", checkup.os
    yield "llama-cpp-python", llama.llama_cpp_python
    yield "commit", llama.commit
    yield "devices", ", ".join(f"{each.name} ({each.description})" for each in llama.devices)
    yield "instructions", " ".join(llama.features)
    yield "built with", llama.build_flags


def _files(checkup: Checkup) -> Iterator[tuple[str, str]]:
    for folder in checkup.folders:
        yield folder.name, f"{folder.path} ({format_bytes(folder.free_bytes)} free)"
    yield "runs", "none yet" if checkup.results.n_runs is None else f"{checkup.results.n_runs} stored"
    rate = checkup.bandwidth
    if rate is not None:
        yield "memory bandwidth", f"{format_bandwidth(rate.bytes_per_s)}, {rate.source}"
