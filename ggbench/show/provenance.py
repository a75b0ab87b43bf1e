"""Where figures come from: which runs, measured when, on which machine, with what, and how to measure them again."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.machine.records import Environment
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import imported_text
from ggbench.text import plain
from ggbench.units import format_bytes

_DATE = len("2026-11-20")


def source_line(summaries: Sequence[QuantSummary]) -> str:
    """Return `runs 1, 3 of 2026-11-20, Xeon, 2 cores, 24.0 GiB; ggbench 0.1.0, llama.cpp b7000`. Printable."""
    numbers = [str(summary.run.run_id) for summary in summaries if summary.run.run_id is not None]
    dates = sorted({summary.run.head.started_at[:_DATE] for summary in summaries} - {""})
    parts = []
    if numbers:
        days = f" of {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''}" if dates else ""
        parts.append(f"run{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}{days}")
    machines = dict.fromkeys(machine_text(summary.environment) for summary in summaries)
    parts += [text for text in machines if text]
    return plain("; ".join(parts))


def machine_text(environment: Environment | None) -> str:
    """Return `EPYC, 2 cores, 24.0 GiB, ggbench 0.1.0, llama.cpp 7000`; empty where nothing is known. Printable."""
    if environment is None:
        return ""
    cores = (
        "" if environment.n_cores is None else f"{environment.n_cores} core{'' if environment.n_cores == 1 else 's'}"
    )
    ram = "" if environment.ram_bytes is None else format_bytes(environment.ram_bytes)
    llama = f"llama.cpp {environment.llama_cpp}" if environment.llama_cpp else ""
    ggbench = f"ggbench {environment.ggbench}" if environment.ggbench else ""
    gpus = (gpu.name for gpu in environment.gpus)
    torch = f"Transformers {environment.transformers}" if environment.transformers else ""
    parts = (environment.cpu, cores, ram, *gpus, imported_text(environment), ggbench, llama, torch)
    return plain(", ".join(filter(None, parts)))


def reproducing(run: Run) -> str:
    """Return the line that measures a run again; of an imported one, that shows it. Printable."""
    if run.head.command:
        return plain(run.head.command)
    return f"ggbench results show {run.run_id}"
