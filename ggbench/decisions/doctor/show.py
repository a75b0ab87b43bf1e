"""Show the findings of `ggbench doctor`, then the facts, as Markdown to paste into a bug report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ggbench.decisions.doctor.checkup import Checkup
from ggbench.decisions.doctor.findings import Finding
from ggbench.engines.llama.build import LlamaBuild
from ggbench.show.document import Document, field, of
from ggbench.text import sanitize
from ggbench.units import counted, format_bandwidth, format_bytes, format_percent

DOCTOR = Document(
    "doctor",
    "doctor",
    "This machine as ggbench sees it, with advice.",
    field("findings", list[Finding], "Advised changes, problems first."),
    of(Checkup),
)


def checkup_text(checkup: Checkup, found: Sequence[Finding]) -> str:
    n_problems = sum(each.severity == "problem" for each in found)
    verdict = f"{counted(n_problems, 'problem')}, {counted(len(found) - n_problems, 'piece')} of advice"
    lines = [f"ggbench doctor: {verdict if found else 'nothing to do'}", ""]
    for number, finding in enumerate(found, 1):
        lines += [
            f"{number}. {finding.severity}: {sanitize(finding.message)}",
            f"   - do: {sanitize(finding.hint)}",
        ]
    lines += [""] if found else []
    lines += [f"- {name}: {sanitize(text)}" for name, text in _facts(checkup)]
    return "\n".join(lines).replace(os.path.expanduser("~/"), "~/")  # noqa: PTH111 - pathlib's raises without a home


def _facts(checkup: Checkup) -> Iterator[tuple[str, str]]:
    yield "ggbench", f"{checkup.ggbench}, Python {checkup.python}, {checkup.os}"
    yield "llama.cpp", _llama(checkup.llama_cpp)
    busy = "" if checkup.others_share is None else f", {format_percent(checkup.others_share)} busy"
    governor = checkup.governor or "unknown"
    yield "CPU", f"{checkup.cpu}, {counted(checkup.n_cores, 'core')}{busy}, governor {governor}"
    yield "memory", f"{format_bytes(checkup.available_bytes)} of {format_bytes(checkup.total_bytes)} available"
    yield from _gpus(checkup)
    for folder in checkup.folders:
        used, free = format_bytes(folder.used_bytes), format_bytes(folder.free_bytes)
        yield folder.name, f"{used} in {folder.path} ({free} free)"
    yield "runs", "none yet" if checkup.results.n_runs is None else f"{checkup.results.n_runs} stored"
    rate = checkup.bandwidth
    known = (
        "measured by the first run" if rate is None else f"{format_bandwidth(rate.bytes_per_s)}, {rate.source}"
    )
    yield "memory bandwidth", known


def _gpus(checkup: Checkup) -> Iterator[tuple[str, str]]:
    for gpu in checkup.gpus:
        used = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)} used"
        yield f"GPU {gpu.index}", f"{gpu.name}, {used}, driver {checkup.driver or 'unknown'}"
    others = [device for device in checkup.llama_cpp.devices if device.is_gpu and device.backend != "CUDA"]
    for device in others:
        free = f"{format_bytes(device.free_bytes)} of {format_bytes(device.total_bytes)} free"
        yield f"GPU {device.name}", f"{device.description}, {free}"
    if not (checkup.gpus or others):
        yield "GPU", checkup.driver_problem or "none that llama.cpp or NVIDIA's driver lists"


def _llama(llama: LlamaBuild) -> str:
    if llama.problem:
        return llama.problem
    parts = [
        f"{llama.llama_cpp}{f' ({llama.commit})' if llama.commit else ''}, llama-cpp-python {llama.llama_cpp_python}",
        f"backends {', '.join(llama.backends)}",
        f"devices {', '.join(f'{each.name} ({each.description})' for each in llama.devices)}",
        f"instructions {' '.join(llama.features.get('CPU', ())) or 'unknown'}",
    ]
    if llama.build_flags:
        parts.append(f"built with {llama.build_flags}")
    return "; ".join(parts)
