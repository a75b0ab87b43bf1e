"""Where a result comes from: the software and the machine, and the line that makes it again."""

from __future__ import annotations

from rich.text import Text

from ggbench.plain import plain
from ggbench.records.machine import Environment
from ggbench.units import format_bytes


def environment_line(environment: Environment) -> str:
    """Software and machine on one line."""
    gpus = [
        f"{gpu.name} {format_bytes(gpu.total_bytes)}{f' (driver {gpu.driver})' if gpu.driver else ''}"
        for gpu in environment.gpus
    ]
    software = f"ggbench {environment.ggbench}, llama.cpp {environment.llama_cpp}"
    bindings = f"llama-cpp-python {environment.llama_cpp_python}, Python {environment.python}"
    cpu = f"{environment.cpu}, {environment.n_cores} cores, {format_bytes(environment.ram_bytes)} RAM"
    return plain("; ".join([f"{software}, {bindings}", environment.os, cpu, *gpus]))


def again_line(command: str, *, folded: bool) -> list[Text]:
    """The command; nothing where there is none.

    Not folded it is whole in one line, to be copied, for a console that does not crop and a terminal that wraps.
    """
    text = f"Again: {plain(command)}"
    return [Text(text, overflow="fold") if folded else Text(text, no_wrap=True, overflow="ignore")] if command else []
