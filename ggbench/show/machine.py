"""A run's machine, server and command, and the state of the machine during the run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ggbench.machine.records import Environment, GpuUse, MachineReading
from ggbench.runs.reading_series import column, gpu_column, gpu_indices
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.answer import Facts
from ggbench.show.figure import Figure, member
from ggbench.show.run_figures import imported_text
from ggbench.show.words import say
from ggbench.stats.decode_timing import RARE, ServingFigures
from ggbench.text import sanitize
from ggbench.units import counted, format_bytes, format_count, format_ms, format_percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OF_MACHINE = (member("cpu_share", "CPU", format_percent), member("used_bytes", "RAM", format_bytes))
_OF_GPU = (
    member("sm_clock_mhz", "SM clock", "{:,.0f}".format, unit="MHz"),
    member("memory_clock_mhz", "memory clock", "{:,.0f}".format, unit="MHz"),
    member("power_w", "power", unit="W"),
    member("temperature_c", "temperature", unit="°C"),
    member("used_bytes", "memory", format_bytes),
)


def environment_facts(environment: Environment) -> list[tuple[str, str]]:
    """Return the software, the machine, and how it changed during a run."""
    versions = {
        "ggbench": environment.ggbench,
        "llama.cpp": environment.llama_cpp,
        "llama-cpp-python": environment.llama_cpp_python,
        "Python": environment.python,
        "server": environment.server,
        "Transformers": environment.transformers,
    }
    imported = environment.imported
    return [
        ("software", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
        ("system", environment.os),
        ("CPU", environment.cpu),
        ("cores", format_count(environment.n_cores) if environment.n_cores else ""),
        ("RAM", format_bytes(environment.ram_bytes) if environment.ram_bytes else ""),
        *(
            ("GPU", f"{gpu.name} {format_bytes(gpu.total_bytes)}, driver {gpu.driver}")
            for gpu in environment.gpus
        ),
        ("imported", f"{imported_text(environment)}, sha256 {imported.file_sha256}" if imported else ""),
        *(("lacks", each) for each in (imported.lacks if imported else ())),
        *(("changed", each) for each in environment.changes),
    ]


def machine_facts(readings: Sequence[MachineReading], use: GpuUse | None = None) -> Facts:
    """Return the range and the median of CPU, RAM and each GPU of `use`, or of every GPU."""
    found = [(name, _range_text(values, figure)) for name, values, figure in _lines(readings, use)]
    return Facts(found, f"Machine, {counted(len(readings), 'reading')}")


def _range_text(values: NDArray[Any], figure: Figure[Any]) -> str:
    """Return `200 MHz to 2,520 MHz, median 2,505 MHz`; empty if nothing was read."""
    known = [value for value in values.tolist() if not math.isnan(value)]
    if not known:
        return ""
    ends = min(known), max(known), statistics.median(known)
    low, high, middle = (f"{figure.form(each)} {figure.unit}".rstrip() for each in ends)
    return f"{low} to {high}, median {middle}"


def _lines(
    readings: Sequence[MachineReading], use: GpuUse | None
) -> Iterator[tuple[str, NDArray[Any], Figure[Any]]]:
    for each in _OF_MACHINE:
        yield each.header, column(readings, each.key), each
    shown = [index for index in gpu_indices(readings) if use is None or index in use.indices]
    for index in shown:
        gpu_name = f"GPU {index}" if len(shown) > 1 else "GPU"
        for each in _OF_GPU:
            yield f"{gpu_name} {each.header}", gpu_column(readings, index, each.key), each


def serving_facts(run: Run) -> list[tuple[str, str]]:
    """Return the server's facts; none for a run without one."""
    serving: ServingFigures | None = getattr(run.result, "serving", None)
    if serving is None:
        return []
    draft = ""
    if serving.n_drafted:
        share = format_percent((serving.n_accepted or 0) / serving.n_drafted)
        draft = f"{share} of {format_count(serving.n_drafted)} drafted tokens accepted"
    chunks = ""
    if serving.n_tokens_together:
        is_rare = serving.n_tokens_together <= RARE * max(1, serving.n_tokens)
        key = "run.rare_chunks" if is_rare else "run.chunks"
        chunks = say(key, n_together=serving.n_tokens_together, n_tokens=serving.n_tokens)
    return [
        ("server", serving.server),
        ("at", run.head.setup.base_url or ""),
        ("clock", say(f"clock.{serving.clock}")),
        ("TTFT", "" if serving.ttft_ms is None else f"{format_ms(serving.ttft_ms)} ms"),
        ("chunks", chunks),
        ("speculation", draft),
        *(("not as asked", each) for each in serving.remarks),
    ]


def source_line(summaries: Sequence[QuantSummary]) -> str:
    """Return `runs 1, 3 of 2026-11-20, Xeon, 2 cores, 24.0 GiB; ggbench 0.1.0, llama.cpp b7000`. Printable."""
    numbers = [str(summary.run.run_id) for summary in summaries if summary.run.run_id is not None]
    dates = sorted({summary.run.head.started_at[: len("2026-11-20")] for summary in summaries} - {""})
    days = f" of {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
    word = "run" if len(numbers) == 1 else "runs"
    runs = f"{word} {', '.join(numbers)}{days}" if numbers else ""
    machines = dict.fromkeys(machine_text(summary.environment) for summary in summaries)
    return sanitize("; ".join(filter(None, (runs, *machines))))


def machine_text(environment: Environment | None) -> str:
    """Return `EPYC, 2 cores, 24.0 GiB, ggbench 0.1.0, llama.cpp 7000`; empty if unknown. Printable."""
    if environment is None:
        return ""
    versions = {"ggbench": environment.ggbench, "llama.cpp": environment.llama_cpp,
                "Transformers": environment.transformers}  # fmt: skip
    parts = [
        environment.cpu,
        counted(environment.n_cores, "core") if environment.n_cores else "",
        format_bytes(environment.ram_bytes) if environment.ram_bytes else "",
        *(gpu.name for gpu in environment.gpus),
        imported_text(environment),
        *(f"{name} {version}" for name, version in versions.items() if version),
    ]
    return sanitize(", ".join(filter(None, parts)))


def reproducing(run: Run) -> str:
    """Return the command of a run; for an imported run, the command that shows it. Printable."""
    if run.head.command:
        return sanitize(run.head.command)
    return f"ggbench results show {run.run_id}"
