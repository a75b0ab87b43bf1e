"""Predict the largest context before allocating anything: the theory's bound, narrowed by the dry allocator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import Cancelled, EngineEnded, Outcome
from ggbench.engines.llama.config import LARGEST_N_CTX, LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.maxctx.record import MaxctxSettings, Probe, SearchPlan
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import list_gpus
from ggbench.machine.readings import list_gpu_processes
from ggbench.runs.session import kv_bytes_per_token
from ggbench.sizing.budget import devices_with_servers
from ggbench.sizing.drafts import DraftingAllocator, check_drafts
from ggbench.sizing.dry_allocator import DryContext
from ggbench.sizing.longest_context import longest_n_ctx, planning_ceiling
from ggbench.sizing.placement import Placement
from ggbench.sizing.projectors import Projector
from ggbench.sizing.search_budget import SearchBudget, beside_projector, budget_by_theory, search_budget
from ggbench.units import KV_CELLS, format_bytes, format_count

CEILING_WITHOUT_GROWTH = 1 << 20
"""End of the search for a model whose state has the same size at any length."""

_NEAR, _FAR = 16, 32
"""Steps of the first lengths at which growth is measured.

A context shorter than n_ubatch has smaller compute buffers.
"""


class SearchCancelled(Exception):
    """The user stopped the search while it was using the dry allocator."""


class LookAhead(msgspec.Struct, frozen=True):
    """Expectations for one quant in one budget. None means unknown."""

    plan: SearchPlan
    """`planned_n_ctx` is None if llama.cpp did not load dry."""
    budget: SearchBudget
    ceiling_n_ctx: int
    weight_bytes: int | None
    """Bytes of the weights in the budget's memory, a draft model's included."""
    least_bytes: int | None
    """Cache and compute buffers of the smallest context, and of what drafts for it."""
    bytes_per_token: float | None
    """Bytes per additional token near the planned length, for cache and compute buffers together."""
    known_at: tuple[int, int] | None
    """An n_ctx near the planned one, and the bytes of its cache and compute buffers."""
    probes: tuple[Probe, ...]
    versions: Mapping[str, str] | None = None
    """Versions of the dry engine; None if it was never ready."""
    unreserved_bytes: int = 0
    """What llama.cpp's process takes with the smallest context beyond its reserve, as in `plan`."""

    @property
    def is_by_theory(self) -> bool:
        """Whether the engine can size a context only by creating it."""
        return self.known_at is None and self.bytes_per_token is not None

    def n_ctx_within(self, left_bytes: int) -> int | None:
        """Return the largest n_ctx whose buffers fit in these bytes, by a straight line; None if no line is known."""
        if self.known_at is None or not self.bytes_per_token:
            return None
        n_ctx, n_bytes = self.known_at
        return n_ctx + int((left_bytes - n_bytes) / self.bytes_per_token)


def look_ahead(
    launch: Callable[[], Engine],
    file: ModelFile,
    path: Path,
    setup: LlamaConfig,
    settings: MaxctxSettings,
    projector: Projector | None = None,
    draft: ModelFile | None = None,
) -> LookAhead:
    """Predict by theory, then by llama.cpp's allocator run dry, which takes milliseconds.

    A header at `path` is enough. `setup.n_ctx` is a ceiling. Raises SearchCancelled, UsageError for a GPU search if
    the cache is in main memory, and like `check_drafts`.
    """
    probes: list[Probe] = []
    step = KV_CELLS * setup.n_streams
    near_n_ctx, far_n_ctx = _NEAR * step, _FAR * step
    devices = devices_with_servers(setup)  # a server used by the dry worker does not answer others
    gpus = list_gpus()  # read before the dry worker uses some of their memory
    with DraftingAllocator(launch(), setup, devices, draft, launch) as dry:
        least: DryContext | None = None
        line: tuple[DryContext, DryContext] | None = None
        try:
            dry.load(file, path)
            least, line = dry.context(step), (dry.context(near_n_ctx), dry.context(far_n_ctx))
        except EngineEnded as ended:
            _raise_if_cancelled(ended)
        budget = search_budget(dry, least, gpus, setup, settings.reserve_bytes, devices)
        if projector is not None:
            budget = beside_projector(budget, projector)
        if budget.on_gpu and not setup.kv_offload:
            raise UsageError(
                "with the KV cache in main memory a GPU does not limit the context",
                "omit --no-kv-offload, or search main memory with -ngl 0",
            )
        placement = Placement(file, setup, on_gpu=budget.on_gpu)
        weight_bytes, usable_bytes = placement.weight_bytes, budget.planned.usable_bytes
        draft_bytes = 0 if least is None else placement.draft_weight_bytes(least)
        grows = line is None or line[1].cache_bytes > line[0].cache_bytes
        theory = None
        if grows and weight_bytes is not None:
            theory = placement.theory_n_ctx(max(0, usable_bytes - weight_bytes - draft_bytes))
        ceiling, warnings = _ceiling(file, setup, grows=grows, beyond_train=settings.beyond_train)

        def size(n_ctx: int) -> DryContext | None:
            started = time.perf_counter()
            found = dry.sized(n_ctx)
            if found is None:
                return None
            fits = weight_bytes is not None and placement.needed_bytes(found, usable_bytes) <= usable_bytes
            probes.append(
                Probe(
                    n_ctx,
                    "dry",
                    Outcome.COMPLETED if fits else Outcome.OUT_OF_MEMORY,
                    time.perf_counter() - started,
                    found.cache_bytes,
                    placement.compute_bytes(found),
                    "" if fits else f"weights, KV cache and compute buffers exceed {format_bytes(usable_bytes)}",
                )
            )
            return found

        planned, foreseen = None, planning_ceiling(file)
        if line is not None and weight_bytes is not None:
            try:
                planned = longest_n_ctx(placement, usable_bytes, size, line[1], foreseen) or None
                if planned is not None and planned > far_n_ctx:
                    line = dry.context(planned - near_n_ctx), dry.context(planned)
            except EngineEnded as ended:
                _raise_if_cancelled(ended)
    bytes_per_token = known_at = None
    if line is not None:
        (near, near_bytes), known_at = ((each.n_ctx, placement.context_bytes(each) - draft_bytes) for each in line)
        bytes_per_token = (known_at[1] - near_bytes) / (known_at[0] - near)
    return LookAhead(
        plan=_plan(
            budget,
            warnings,
            planned_n_ctx=planned,
            is_planned_higher=planned is not None and planned >= foreseen,
            theory_n_ctx=theory,
            ceiling_n_ctx=ceiling,
        ),
        budget=budget,
        ceiling_n_ctx=ceiling,
        weight_bytes=None if weight_bytes is None else weight_bytes + draft_bytes,
        least_bytes=None if least is None else placement.context_bytes(least) - draft_bytes,
        bytes_per_token=bytes_per_token,
        known_at=known_at,
        probes=tuple(probes),
        versions=dry.versions,
        unreserved_bytes=0 if least is None else placement.unreserved_bytes(least),
    )


def look_ahead_by_theory(
    file: ModelFile,
    setup: EngineConfig,
    settings: MaxctxSettings,
    projector: Projector | None = None,
    draft: ModelFile | None = None,
) -> LookAhead:
    """Predict by theory alone, for an engine that cannot size a context without creating it; without MTP layers.

    Raises DoesNotFit, and like `check_drafts`.
    """
    budget = budget_by_theory(setup, settings.reserve_bytes)
    if projector is not None:
        budget = beside_projector(budget, projector)
    weight_bytes = file.weight_bytes or file.file_bytes
    per_token = kv_bytes_per_token(file, setup)
    if setup.mtp or draft is not None:
        check_drafts(draft, file)
        if draft is not None:
            weight_bytes += draft.weight_bytes or draft.file_bytes
            more = kv_bytes_per_token(draft, setup.for_draft())
            per_token = None if per_token is None or more is None else per_token + more
    room_bytes = max(0, budget.planned.usable_bytes - weight_bytes)
    ceiling, warnings = _ceiling(file, setup, grows=True, beyond_train=settings.beyond_train)
    ceiling = min(ceiling, max(CEILING_WITHOUT_GROWTH, file.n_ctx_train or 0))  # the same ceiling as `plan`
    return LookAhead(
        plan=_plan(
            budget,
            warnings,
            theory_n_ctx=None if per_token is None else room_bytes // per_token // KV_CELLS * KV_CELLS,
            ceiling_n_ctx=ceiling,
        ),
        budget=budget,
        ceiling_n_ctx=ceiling,
        weight_bytes=None if setup.engine_option else weight_bytes,  # the user's flags may place some elsewhere
        least_bytes=None,
        bytes_per_token=per_token,
        known_at=None,
        probes=(),
    )


def _plan(budget: SearchBudget, warnings: tuple[str, ...], **found: Any) -> SearchPlan:  # noqa: ANN401 - its fields
    planned = budget.planned
    return SearchPlan(
        budget_bytes=planned.usable_bytes,
        memory_bytes=planned.memory_bytes,
        memory_source=planned.memory_source,
        reserve_bytes=planned.reserve_bytes,
        reserve_source=planned.reserve_source,
        mmproj_bytes=planned.projector_bytes,
        free_bytes=budget.free_bytes,
        gpu_processes=list_gpu_processes([gpu.index for gpu in budget.gpus]) if budget.on_gpu else (),
        warnings=(budget.warning, *warnings) if budget.warning else warnings,
        **found,
    )


def _raise_if_cancelled(ended: EngineEnded) -> None:
    if isinstance(ended.ending, Cancelled):
        raise SearchCancelled from ended


def _ceiling(file: ModelFile, setup: EngineConfig, *, grows: bool, beyond_train: bool) -> tuple[int, tuple[str, ...]]:
    ceiling, warnings = LARGEST_N_CTX, []
    if not grows:
        ceiling = CEILING_WITHOUT_GROWTH
        warnings.append(
            f"the model's state needs the same memory at any length, so the search ends at {format_count(ceiling)}"
        )
    if setup.n_ctx is not None:
        ceiling = min(ceiling, setup.n_ctx)
    elif file.n_ctx_train is not None and not beyond_train:
        ceiling = min(ceiling, file.n_ctx_train * setup.n_streams)
    step = KV_CELLS * setup.n_streams
    return max(step, ceiling // step * step), tuple(warnings)
