"""Predict the largest context before allocating anything: by llama.cpp's allocator run dry, or by the theory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import Cancelled, EngineEnded
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.maxctx.record import MaxctxSettings, SearchPlan
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import list_gpus
from ggbench.machine.readings import list_gpu_processes
from ggbench.record import Record
from ggbench.runs.session import kv_bytes_per_token
from ggbench.show.words import say
from ggbench.sizing.budget import free_budget
from ggbench.sizing.drafts import check_drafts
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.fit import Fitter, planning_ceiling
from ggbench.sizing.plan_record import Budget
from ggbench.units import KV_CELLS, format_bytes

_FIRST_STEPS = 32
"""Steps of the first context that is sized: a context shorter than n_ubatch has smaller compute buffers."""


class SearchCancelled(Exception):
    """The user stopped the search while it was using the dry allocator."""


class LookAhead(Record):
    """Expectations for one quant in one budget. None means unknown."""

    plan: SearchPlan
    budget: Budget
    weight_bytes: int | None = None
    """Bytes of the weights in the budget's memory, a draft model's included."""
    needed_bytes: int | None = None
    """What the smallest context needs, with weights and process; the weights alone if the engine cannot be run dry."""
    bytes_per_token: float | None = None
    """Bytes of a token in the cache."""


def look_ahead(
    launch: Callable[[], Engine],
    file: ModelFile,
    path: Path,
    setup: LlamaConfig,
    settings: MaxctxSettings,
    draft: ModelFile | None = None,
) -> LookAhead:
    """Predict by llama.cpp's allocator run dry, which takes milliseconds; a header at `path` is enough.

    `setup.n_ctx` is a ceiling. Raises SearchCancelled, UsageError for a GPU search if the cache is in main memory, and
    like `check_drafts`.
    """
    budget = free_budget(setup, settings.reserve_bytes)
    if budget.on_gpu and not setup.kv_offload:
        raise UsageError(
            "with the KV cache in main memory a GPU does not limit the context",
            "omit --no-kv-offload, or search main memory with -ngl 0",
        )
    seen = LookAhead(_plan(file, setup, settings, budget), budget)
    with DryAllocator(launch(), setup, budget.devices, draft, launch) as dry:
        try:
            fitter = Fitter(file, path, budget, dry)
            step = KV_CELLS * setup.n_streams
            least, first = (fitter.fit(replace(setup, n_ctx=n * step)) for n in (1, _FIRST_STEPS))
            planned = None if file.unknown_types else fitter.longest(first) or None
        except EngineEnded as ended:
            if isinstance(ended.ending, Cancelled):
                raise SearchCancelled from ended
            return seen  # llama.cpp does not load it dry; the real load will say why
    placement, needed_bytes = least.placement, None
    weight_bytes = placement.weight_bytes
    if weight_bytes is not None:
        weight_bytes += placement.draft_weight_bytes(least.context)
        process_bytes = 0 if budget.on_gpu else sum(each.process_bytes for each in budget.planned)
        needed_bytes = least.needed_bytes + placement.unreserved_bytes(least.context) + process_bytes
    return replace(
        seen,
        plan=replace(seen.plan, planned_n_ctx=planned),
        weight_bytes=weight_bytes,
        needed_bytes=needed_bytes,
        bytes_per_token=placement.cache_bytes(first.context) / first.context.n_ctx,
    )


def look_ahead_by_theory(
    file: ModelFile,
    setup: EngineConfig,
    settings: MaxctxSettings,
    draft: ModelFile | None,
) -> LookAhead:
    """Predict by weights and KV cache alone, for an engine that can size a context only by creating it; without MTP
    layers.

    Raises DoesNotFit, and like `check_drafts`.
    """
    budget = free_budget(setup, settings.reserve_bytes)
    plan = _plan(file, setup, settings, budget)
    if setup.mtp or draft is not None:
        check_drafts(draft, file)
    weight_bytes, per_token = file.weight_bytes or file.file_bytes, kv_bytes_per_token(file, setup)
    if draft is not None:
        weight_bytes += draft.weight_bytes or draft.file_bytes
        more = kv_bytes_per_token(draft, setup.for_draft())
        per_token = per_token + more if per_token and more else None
    if per_token:
        room_bytes = max(0, budget.usable_bytes - weight_bytes)
        plan = replace(plan, theory_n_ctx=room_bytes // per_token // KV_CELLS * KV_CELLS)
    known_bytes = None if setup.engine_option else weight_bytes  # the user's flags may place some elsewhere
    return LookAhead(plan, budget, known_bytes, known_bytes)


def _plan(file: ModelFile, setup: EngineConfig, settings: MaxctxSettings, budget: Budget) -> SearchPlan:
    limit_bytes, step = setup.memory_limit_bytes, KV_CELLS * setup.n_streams
    ceiling = planning_ceiling(file)
    if setup.n_ctx is not None:
        ceiling = setup.n_ctx
    elif file.n_ctx_train is not None and not settings.beyond_train:
        ceiling = file.n_ctx_train * setup.n_streams
    free_bytes = min((each.free_bytes for each in budget.devices), default=budget.memory_bytes)
    warnings: tuple[str, ...] = ()
    if limit_bytes is not None and free_bytes < limit_bytes:
        warnings = (say("maxctx.less_free", free=format_bytes(free_bytes), limit=format_bytes(limit_bytes)),)
    gpus = [gpu.index for gpu in list_gpus()] if budget.on_gpu else []
    return SearchPlan(
        ceiling_n_ctx=max(step, ceiling // step * step),
        budget_bytes=budget.usable_bytes,
        memory_bytes=budget.memory_bytes,
        memory_source=budget.memory_source,
        reserve_bytes=budget.reserve_bytes,
        reserve_source=budget.reserve_source,
        gpu_processes=list_gpu_processes(gpus) if gpus else (),
        warnings=warnings,
    )
