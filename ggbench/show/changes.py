"""What would help where a quant does not fit, in words: each change, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ggbench.engines.llama.config import LlamaConfig
from ggbench.sizing.plan_record import Change, ChangeKind, Program
from ggbench.text import in_words, plain
from ggbench.units import format_bytes, format_count


def _cache_options(setup: LlamaConfig) -> str:
    return f"-ctk {setup.type_k} -ctv {setup.type_v}{' -fa on' if setup.flash_attn == 'on' else ''}"


_OPTIONS: Mapping[ChangeKind, Callable[[LlamaConfig], str]] = {
    "n_ubatch": lambda setup: f"-ub {setup.n_ubatch}",
    "flash attention": lambda setup: f"-fa {setup.flash_attn}",
    "KV q8_0": _cache_options,
    "KV q4_0": _cache_options,
    "n_cpu_moe": lambda setup: f"-ncmoe {setup.n_cpu_moe}",
    "n_ctx": lambda setup: f"-c {setup.n_ctx}",
    "n_gpu_layers": lambda setup: f"-ngl {setup.n_gpu_layers}",
}
COSTS: Mapping[ChangeKind, str] = {
    "close programs": "nothing of the model",
    "n_ubatch": "slower prompts",
    "flash attention": "nothing",
    "KV q8_0": "a little quality",
    "n_cpu_moe": "speed: experts are read from main memory",
    "quant": "quality",
    "n_ctx": "context",
    "KV q4_0": "quality, most in long contexts",
    "n_gpu_layers": "speed: the other layers are computed by the CPU",
}
"""What each change takes in exchange."""


def change_options(change: Change) -> str:
    """Return the options of the change, as ggbench and llama.cpp name them: `-ctk q8_0 -ctv q8_0`; else empty."""
    return "" if change.setup is None else _OPTIONS[change.kind](change.setup)


def change_text(change: Change) -> str:
    """Return the change in a few words: its options, `q4_0 as planned`, or the programs to close."""
    if change.programs:
        return f"close {programs_text(change.programs)}"
    return change_options(change) or f"{plain(change.quant)} as planned"


def programs_text(programs: Sequence[Program]) -> str:
    """Return names and sizes: `firefox (3.20 GiB in 12 processes) and python (pid 4242, 1.10 GiB)`."""

    def text(program: Program) -> str:
        size, n_pids = format_bytes(program.held_bytes), len(program.pids)
        where = f"{size} in {format_count(n_pids)} processes" if n_pids > 1 else f"pid {program.pids[0]}, {size}"
        return f"{plain(program.name)} ({where})"

    return in_words([text(program) for program in programs])
