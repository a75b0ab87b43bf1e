"""The memory that each case of a speed run would take, by llama.cpp's allocator run dry, and what there is for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.config import LARGEST_N_CTX, LlamaConfig
from ggbench.experiments.speed.record import Case, CaseMemory
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import list_gpus
from ggbench.runs.session import kv_bytes_per_token
from ggbench.sizing.budget import SearchBudget, budget_by_theory, search_budget
from ggbench.sizing.device_split import device_memories
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.placement import Placement
from ggbench.units import KV_CELLS, format_bytes, format_count


class CaseSize(msgspec.Struct, frozen=True):
    """One case before it runs."""

    memory: CaseMemory | None = None
    """None where llama.cpp would not size it."""
    obstacle: str = ""
    """Why it does not fit, in one line; empty where it does as far as is known."""


def size_cases(
    engine: Engine, file: ModelFile, path: Path, setup: LlamaConfig, cases: Sequence[Case]
) -> dict[Case, CaseSize]:
    """Return the size of every case, in milliseconds once the worker is ready; ends the engine.

    Linux grants more memory than there is, so a real context would not show that it does not fit. Raises DoesNotFit
    where no memory is free at all.
    """
    devices = device_memories(setup)
    gpus = list_gpus()  # as they are before the dry worker holds some of their memory itself
    largest = f"llama.cpp's maximum n_ctx is {format_count(LARGEST_N_CTX)}"
    too_long = {
        case: CaseSize(obstacle=f"needs an n_ctx of {format_count(case.n_ctx)}, and {largest}")
        for case in cases
        if case.n_ctx > LARGEST_N_CTX
    }
    sizes = {case: CaseSize() for case in cases} | too_long
    with DryAllocator(engine, setup, devices) as dry:
        try:
            dry.load(file, path)
            budget = search_budget(dry, dry.context(KV_CELLS), gpus, setup, None, devices)
            for case in cases:
                if case not in too_long:
                    sizes[case] = _size(dry, file, setup, case, budget)
        except EngineEnded:
            pass  # the real load will say why
    return sizes


def size_cases_by_theory(file: ModelFile, setup: EngineConfig, cases: Sequence[Case]) -> dict[Case, CaseSize]:
    """Return the size of every case by weights and KV cache alone, of an engine that sizes nothing dry.

    Raises DoesNotFit where no memory is free at all.
    """
    free_bytes, per_token = budget_by_theory(setup, None).held_bytes, kv_bytes_per_token(file, setup)
    if file.weight_bytes is None or per_token is None:
        return {case: CaseSize() for case in cases}
    sizes = {}
    for case in cases:
        memory = CaseMemory(file.weight_bytes, per_token * case.n_tokens, 0)
        free, needed = format_bytes(free_bytes), format_bytes(memory.total_bytes)
        is_fitting = memory.total_bytes <= free_bytes
        sizes[case] = CaseSize(memory, "" if is_fitting else f"weights and KV cache need {needed}, and {free} are free")
    return sizes


def _size(dry: DryAllocator, file: ModelFile, setup: LlamaConfig, case: Case, budget: SearchBudget) -> CaseSize:
    """Raises EngineEnded."""
    placement = Placement(file, setup, on_gpu=budget.on_gpu, devices=budget.planned.devices)
    found = dry.context(case.n_ctx, replace(setup, n_seq_max=case.n_seqs))
    if placement.weight_bytes is None or file.weight_bytes is None:
        return CaseSize()
    # What a plan reserves of a GPU for its driver is not needed where the allocation is real.
    usable = budget.held_bytes if budget.on_gpu else budget.planned.usable_bytes
    needed = placement.needed_bytes(found, usable)
    compute = found.device_compute_bytes + found.host_compute_bytes + found.output_bytes
    memory = CaseMemory(file.weight_bytes, found.cache_bytes, compute)
    if needed <= usable:
        return CaseSize(memory)
    return CaseSize(
        memory, f"needs {format_bytes(needed)} of {budget.place}, and {format_bytes(usable)} are free for it"
    )
