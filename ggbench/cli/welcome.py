"""What `ggbench` alone prints in a terminal: this machine, what is on its disk, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ggbench.errors import StoreError
from ggbench.machine.drm_gpus import list_drm_gpus
from ggbench.machine.gpus import visible_gpus
from ggbench.machine.host import describe_cpu, describe_ram
from ggbench.models.disk import LocalModel, find_local_models
from ggbench.paths import results_file
from ggbench.runs.store.database import Store
from ggbench.text import sanitize, shell_path
from ggbench.units import counted, format_bytes

FAMILY = "qwen3.5"
"""A family of the catalog with a size for every machine, suggested if no model is on this disk."""


def show_welcome() -> None:
    models = [each for each in find_local_models() if each.paths and not each.reason and not each.is_twin]
    n_runs, measured = _measured()
    for name, text in (("this machine", _machine()), ("on this disk", _disk(models)), ("measured", measured)):
        click.echo(f"{name:<14}{sanitize(text)}")
    click.echo()
    steps = [
        *_first_steps(models, n_runs=n_runs),
        ("ggbench tui", "the same by hand: choose, measure, compare"),
    ]
    width = max(len(line) for line, _ in steps)
    for line, text in steps:
        click.echo(f"  {sanitize(line):<{width}}  {text}")
    click.echo("\nall commands: ggbench --help")


def _machine() -> str:
    cpu, ram = describe_cpu(), describe_ram()
    gpus = [
        gpu.name if gpu.total_bytes is None else f"{gpu.name}, {format_bytes(gpu.total_bytes)}"
        for gpu in visible_gpus() or list_drm_gpus()
    ]
    parts = (cpu.name, counted(cpu.n_cores, "core"), f"{format_bytes(ram.total_bytes)} of main memory")
    return "; ".join((", ".join(parts), *(gpus or ["no GPU was found"])))


def _disk(models: Sequence[LocalModel]) -> str:
    if not models:
        return "no model in the folders of Hugging Face, llama.cpp, LM Studio and Ollama"
    n_bytes = sum(each.file_bytes or 0 for each in models)
    return f"{counted(len(models), 'GGUF model')}, {format_bytes(n_bytes)}; list them with: ggbench models"


def _first_steps(models: Sequence[LocalModel], *, n_runs: int) -> list[tuple[str, str]]:
    """Return two commands, each with its reason."""
    if not models:
        pick = (f"ggbench pick --family {FAMILY}", "the size and quant to download, and why")
        return [pick, ("ggbench demo", "a tour in a minute, without a network")]
    pick = ("ggbench pick", "which of them to run here, and why")
    if n_runs:
        return [pick, ("ggbench results", "what was measured")]
    smallest = min(models, key=lambda each: each.file_bytes or 0)
    return [
        pick,
        (
            f"ggbench decode {' '.join(map(shell_path, smallest.arguments))}",
            "how fast the smallest is, as its context grows",
        ),
    ]


def _measured() -> tuple[int, str]:
    """Return the number of stored runs, 0 if they cannot be read, and the words for it."""
    if not results_file().exists():
        return 0, "nothing yet"
    try:
        with Store.open() as store:
            n_runs, *_ = store.count_runs()
            words = counted(n_runs, "run") if n_runs else "; ".join(store.notices) or "nothing yet"
    except StoreError:
        return 0, "the results cannot be read; see why with: ggbench doctor"
    return n_runs, words
