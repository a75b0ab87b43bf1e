"""Where a run comes from: its command, its machine, and what that did, with minimum, median and maximum."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.machine.records import Environment, GpuReading, GpuUse, Imported, MachineReading
from ggbench.runs.run import Run
from ggbench.show.terminal.tables import new_table, spaced
from ggbench.text import plain
from ggbench.units import counted, format_bytes, format_count, format_number, format_percent

_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 24

_Part = Callable[[GpuReading], float | None]
_Format = Callable[[float], str]


def _mhz(value: float) -> str:
    return f"{format_count(round(value))} MHz"


_OF_GPU: tuple[tuple[str, _Part, _Format], ...] = (
    ("SM clock", lambda gpu: gpu.sm_clock_mhz, _mhz),
    ("memory clock", lambda gpu: gpu.memory_clock_mhz, _mhz),
    ("power", lambda gpu: gpu.power_w, lambda watts: f"{format_number(watts)} W"),
    ("temperature", lambda gpu: gpu.temperature_c, lambda celsius: f"{format_number(celsius)} °C"),
    ("memory", lambda gpu: gpu.used_bytes, format_bytes),
)


def run_page(
    run: Run,
    name: str,
    parts: Iterable[RenderableType],
    *,
    folded: bool = False,
    readings: Sequence[MachineReading] = (),
) -> RenderableType:
    """One run under its name: why it did not complete, these parts, what the machine did meanwhile, and the command.

    `folded` as in `again_line`.
    """
    heading = Text(name, style="bold")
    if run.reason:
        heading.append(f"\n{plain(run.reason)}", style="not bold yellow")
    machine, environment = machine_table(readings, run.gpu_use), run.head.environment
    origin = [] if environment is None else [Text(environment_line(environment), style="dim")]
    end = Group(*origin, *again_line(run.head.command, folded=folded))
    return spaced([heading, *parts, *([machine] if machine else []), end])


def environment_line(environment: Environment) -> str:
    """Software and machine on one line."""
    gpus = [
        f"{gpu.name} {format_bytes(gpu.total_bytes)}{f' (driver {gpu.driver})' if gpu.driver else ''}"
        for gpu in environment.gpus
    ]
    versions = {
        "ggbench": environment.ggbench,
        "llama.cpp": environment.llama_cpp,
        "llama-cpp-python": environment.llama_cpp_python,
        "Python": environment.python,
        "server": environment.server,
        "Transformers": environment.transformers,
    }
    software = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    cores = f"{environment.n_cores} cores" if environment.n_cores else ""
    ram = f"{format_bytes(environment.ram_bytes)} RAM" if environment.ram_bytes else ""
    cpu = ", ".join(filter(None, (environment.cpu, cores, ram)))
    parts = (software, environment.os, cpu, *gpus, *_imported(environment.imported), *environment.changes)
    return plain("; ".join(filter(None, parts)))


def _imported(imported: Imported | None) -> tuple[str, ...]:
    """Where an imported run comes from, and what it lacks."""
    if imported is None:
        return ()
    return f"imported from {imported.file} of {imported.tool}, sha256 {imported.file_sha256}", *imported.lacks


def machine_table(readings: Sequence[MachineReading], use: GpuUse | None = None) -> Table | None:
    """Return a line for the processors, main memory and each GPU of `use`; None where nothing was read.

    Without `use`, every GPU that was read.
    """
    lines = [line for line in _lines(readings, use) if line[1]]
    if not lines:
        return None
    n_readings = counted(len(readings), "reading")
    columns = {"": "left", "min": "right", "median": "right", "max": "right", n_readings: "left"}
    rows = [
        (
            f"  {name}",
            *map(text, (min(values), statistics.median(values), max(values))),
            sparkline(values, _CURVE_WIDTH),
        )
        for name, values, text in lines
    ]
    return new_table("Machine", columns, rows)


def _lines(readings: Sequence[MachineReading], use: GpuUse | None) -> Iterator[tuple[str, list[float], _Format]]:
    yield "CPU", _known(each.cpu_share for each in readings), format_percent
    yield "RAM", _known(each.used_bytes for each in readings), format_bytes
    indices = sorted({gpu.index for each in readings for gpu in each.gpus})
    shown = indices if use is None else [index for index in indices if index in use.indices]
    for index in shown:
        gpus = [gpu for each in readings for gpu in each.gpus if gpu.index == index]
        gpu_name = f"GPU {index}" if len(shown) > 1 else "GPU"
        for name, part, text in _OF_GPU:
            yield f"{gpu_name} {name}", _known(map(part, gpus)), text


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return at most `width` characters from the least value to the largest; of more values, the mean of each column.

    Values that do not vary are a line at the bottom; no values are no characters.
    """
    if not values:
        return ""
    n = min(width, len(values))
    edges = [index * len(values) // n for index in range(n + 1)]
    means = [statistics.fmean(values[begin:end]) for begin, end in pairwise(edges)]
    low, high = min(values), max(values)
    span = high - low or 1.0
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int((mean - low) / span * len(_BLOCKS)))] for mean in means)


def again_line(command: str, *, folded: bool) -> list[Text]:
    """The command; nothing where there is none.

    Not folded it is whole in one line, to be copied, for a console that does not crop and a terminal that wraps.
    """
    text = f"Again: {plain(command)}"
    return [Text(text, overflow="fold") if folded else Text(text, no_wrap=True, overflow="ignore")] if command else []
