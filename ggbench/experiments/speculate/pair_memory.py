"""Size a model with its draft, by llama.cpp's allocator run dry."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.speculate.record import PairMemory
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.session import Session
from ggbench.sizing.budget import machine_budget
from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
from ggbench.sizing.plan import PlanRequest, plan


def pair_memory(session: Session, target: ModelFile, draft: ModelFile, setup: LlamaConfig) -> PairMemory | None:
    """Return the sizes at `setup.n_ctx`; None if llama.cpp sizes one of the models not at all."""
    threads = setup.threads or session.context.threads
    budget = machine_budget(setup, measures=False)
    loaded = replace(setup_to_load(setup, budget), threads=threads)
    request, variant = PlanRequest(budget, setup), replace(session.target, file=target)

    def engine_of() -> Engine:
        return session.context.launch(loaded, session.cancel)

    with DryAllocator(engine_of(), loaded, budget.devices, draft, engine_of) as allocator:
        *_, paired = plan([variant], request, allocator)
    if paired.draft_bytes is None or paired.n_ctx is None:
        return None
    weight_bytes = draft.weight_bytes or 0
    return PairMemory(
        n_ctx=paired.n_ctx,
        draft_weight_bytes=weight_bytes,
        draft_context_bytes=max(0, paired.draft_bytes - weight_bytes),
        needed_bytes=paired.needed_bytes,
        usable_bytes=budget.usable_bytes,
        max_n_ctx=paired.planned_n_ctx,
    )
