"""Plan the memory of each quant before downloading it: weights from the tensor table, the rest from a dry allocator.

No tensor is read or allocated. A row has the sizes by llama.cpp and by the theory, and notes a disagreement.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import field
from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded, Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, UsageError
from ggbench.fields import reproduce
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.longest_context import LONGEST, longest_by_line, longest_n_ctx, planning_ceiling
from ggbench.sizing.memory_stacks import memory_stacks
from ggbench.sizing.placement import Placement, place_bandwidths, speed_bounds, speed_together
from ggbench.sizing.plan_record import Budget, KvCacheTypes, PlanRow
from ggbench.sizing.splits import smallest_split
from ggbench.sizing.theory.kv_cache import checkpoint_bytes
from ggbench.sizing.theory.offload import HOST, check_overrides
from ggbench.sizing.what_helps import what_helps
from ggbench.units import format_bytes, format_count

DEFAULT_N_CTX = 8192
"""Default n_ctx of a plan; the training context if that is shorter."""


_SPLIT_CACHES = frozenset({"f32", "f16", "bf16", "q8_0"})
"""Caches that are also sized with a part of the model in main memory: a coarser one saves little more there."""


class PlanRequest(msgspec.Struct, frozen=True):
    """The setup and memory to plan for. Raises UsageError for an impossible context."""

    budget: Budget
    setup: LlamaConfig = field(default_factory=LlamaConfig)
    """An n_ctx of None means `DEFAULT_N_CTX`."""
    options: tuple[tuple[str, str], ...] = ()
    """Other command-line options, for the command that reproduces a row."""
    places_experts: bool = False
    """Whether a mixture too large for the GPUs is planned with the fewest experts in main memory that are enough."""

    def __post_init__(self) -> None:
        self.setup.check()
        if self.setup.n_ctx is not None and self.setup.n_ctx > LONGEST:
            raise UsageError(
                f"a context of {format_count(self.setup.n_ctx)} tokens is too long to plan",
                f"use --n-ctx up to {format_count(LONGEST)}",
            )


def plan(variants: Sequence[Target], request: PlanRequest, allocator: DryAllocator) -> Iterator[PlanRow]:
    """Yield a row for each variant. One that cannot be planned has a reason; if it is the only one, its error is
    raised.
    """
    for variant in variants:
        try:
            yield from plan_variant(variant, request, allocator)
        except GgbenchError as error:
            if len(variants) == 1:
                raise
            yield replace(_unplanned(variant, request), outcome=Outcome.FAILED, reason=error.message)


def plan_variant(
    variant: Target, request: PlanRequest, allocator: DryAllocator, caches: Sequence[KvCacheTypes] = ()
) -> Iterator[PlanRow]:
    """Yield a row for each of `caches`; without any, one for the setup, with changes that would help if it does not
    fit.

    Of several caches the longest context is found by a line, to about 2 %, as a search takes many dry ones.
    A cache of at least 8 bits, or the only one, that does not fit has a second row, with the least of the model in main
    memory, if that is enough for the GPUs; main memory may be too small for it. A variant that llama.cpp does not load
    yields one row with the reason. Raises GgbenchError if it cannot be planned.
    """
    unplanned = _unplanned(variant, request)
    if variant.file is None:
        yield replace(unplanned, outcome=Outcome.FAILED, reason=variant.reason)
        return
    check_overrides(variant.file, request.setup)
    if request.budget.projector is not None:
        request.budget.projector.check(variant.file)
    if request.budget.n_checkpoints:
        n_checkpoints = request.budget.n_checkpoints * request.setup.n_seq_max
        each_bytes = _checkpoint_bytes(variant.file, request.setup) or 0
        request = replace(request, budget=request.budget.beside_prompt_cache(n_checkpoints * each_bytes))
    with tempfile.TemporaryDirectory(
        prefix="ggbench-"
    ) as folder:  # kept until the end, since a change may load it again
        try:
            weight_buffers = allocator.load(variant.file, write_sparse(variant.file, Path(folder)))
        except EngineEnded as end:
            yield replace(unplanned, outcome=end.ending.outcome, reason=end.ending.reason)
            return
        for cache in caches or (None,):
            asked = request if cache is None else replace(request, setup=with_cache(request.setup, cache))
            row = _unplanned(variant, asked)
            try:
                how = longest_n_ctx if len(caches) < 2 else longest_by_line
                row = _planned(row, variant.file, asked, allocator, weight_buffers, how)
                if row.fits is False and cache is None:
                    row = _with_experts_placed(variant, asked, allocator, weight_buffers, row)
                if row.fits is False and cache is None:
                    changes = what_helps(variant.file, row.setup or asked.setup, asked.budget, allocator, row)
                    row = replace(row, changes=changes)
                yield row
                may_split = cache is not None and (len(caches) == 1 or cache.type_v in _SPLIT_CACHES)
                if row.fits is False and may_split and asked.budget.on_gpu:
                    yield from _split(variant, asked, allocator, weight_buffers)
            except EngineEnded as end:
                yield replace(row, outcome=end.ending.outcome, reason=end.ending.reason)


def _with_experts_placed(
    variant: Target, request: PlanRequest, allocator: DryAllocator, weight_buffers: Sequence[str], whole: PlanRow
) -> PlanRow:
    """Return the row with the fewest experts in main memory, if the request places them and GPUs then have enough."""
    if not request.places_experts or not request.budget.on_gpu or variant.file is None or not variant.file.n_expert:
        return whole
    asked = replace(request, setup=replace(request.setup, n_ctx=whole.n_ctx))
    return next(_split(variant, asked, allocator, weight_buffers, longest_n_ctx), whole)


def _split(
    variant: Target,
    request: PlanRequest,
    allocator: DryAllocator,
    weight_buffers: Sequence[str],
    search: Callable[..., int] = longest_by_line,
) -> Iterator[PlanRow]:
    """Yield the row of the smallest part in main memory with which the GPUs have enough, if there is one."""
    assert variant.file is not None and request.setup.n_ctx is not None
    whole = allocator.context(request.setup.n_ctx, request.setup)
    setup = smallest_split(variant.file, request.setup, request.budget, allocator, whole)
    if setup is not None:
        asked = replace(request, setup=setup)
        yield _planned(_unplanned(variant, asked), variant.file, asked, allocator, weight_buffers, search)


def with_cache(setup: LlamaConfig, cache: KvCacheTypes, n_ctx: int | None = None) -> LlamaConfig:
    """Return the setup with another KV cache, and another n_ctx if one is given."""
    types = replace(setup, type_k=cache.type_k, type_v=cache.type_v, flash_attn=cache.flash_attn)
    return types if n_ctx is None else replace(types, n_ctx=n_ctx)


def _planned(
    row: PlanRow,
    file: ModelFile,
    request: PlanRequest,
    allocator: DryAllocator,
    weight_buffers: Sequence[str],
    search: Callable[..., int],
) -> PlanRow:
    """Return the sizes of a row, with the longest context that `search` finds."""
    budget, setup = request.budget, request.setup
    placement = Placement(file, setup, on_gpu=budget.on_gpu, devices=budget.devices, host=budget.host)
    n_ctx = setup.n_ctx or min(DEFAULT_N_CTX, file.n_ctx_train or DEFAULT_N_CTX)
    weights = placement.weight_bytes
    asked = allocator.context(n_ctx, setup)
    notes = [*row.notes, *_notes(file, placement, weight_buffers, budget), *placement.disagreement(asked)]
    need = None if weights is None else weights + placement.context_bytes(asked)
    ceiling = planning_ceiling(file, asked.n_ctx)
    longest = None
    if weights is not None:
        longest = search(placement, budget.usable_bytes, lambda n: allocator.sized(n, setup), asked, ceiling)
    unreserved = placement.unreserved_bytes(asked)
    left = None if need is None else budget.usable_bytes - placement.needed_bytes(asked, budget.usable_bytes)
    if unreserved:
        notes.append(f"at this n_ctx llama.cpp's process needs {format_bytes(unreserved)} more than the reserve")
    limit, decode = speed_bounds(budget, placement, longest, asked.n_ctx // setup.n_streams)
    return replace(
        row,
        n_ctx=asked.n_ctx,
        n_ctx_slot=asked.n_ctx // setup.n_streams,
        kv_bytes=asked.cache_bytes,
        device_kv_bytes=placement.cache_bytes(asked),
        theory_kv_bytes=placement.theory_bytes(asked),
        kv_bytes_per_token=None if placement.theory is None else placement.theory.bytes_per_token,
        compute_bytes=placement.compute_bytes(asked),
        output_bytes=asked.output_bytes,
        draft_bytes=placement.draft_bytes(asked),
        checkpoint_bytes=_checkpoint_bytes(file, setup),
        host_compute_bytes=asked.host_compute_bytes if budget.on_gpu and asked.device_compute_bytes else None,
        needed_bytes=need,
        left_bytes=left,
        fits=None if left is None else left >= 0,
        planned_n_ctx=longest or None,
        reached_ceiling=longest is not None and longest >= ceiling,
        theory_n_ctx=None if weights is None else placement.theory_n_ctx(budget.usable_bytes - weights),
        devices=placement.planned(asked),
        stacks=() if weights is None else memory_stacks(placement, asked, budget),
        is_split=placement.is_split or not placement.is_cache_on_devices,
        limit=limit,
        decode=decode[:-1],
        at_n_ctx=decode[-1] if decode else None,
        together=speed_together(
            budget, placement, setup.n_seq_max, asked.n_ctx // setup.n_seq_max, fits=None if left is None else left >= 0
        ),
        flash_attn=asked.flash_attn,
        swa_cells=asked.swa_cells,
        notes=tuple(notes),
    )


def _checkpoint_bytes(file: ModelFile, setup: LlamaConfig) -> int | None:
    return checkpoint_bytes(file, setup.type_k, setup.type_v, swa_full=setup.swa_full)


def _unplanned(variant: Target, request: PlanRequest) -> PlanRow:
    named = PlanRow(
        model=variant.model,
        quant=variant.quant,
        provenance=variant.provenance,
        type_k=request.setup.type_k,
        type_v=request.setup.type_v,
        budget_bytes=request.budget.usable_bytes,
        setup=request.setup,
        command=reproduce(
            "plan", (variant.model, variant.selector or variant.quant), request.setup, dict(request.options)
        ),
    )
    if variant.file is None:
        return named
    budget = request.budget
    file = variant.file
    placement = Placement(file, request.setup, on_gpu=budget.on_gpu, devices=budget.devices)
    return replace(
        named,
        file=str(file.paths[0]) if file.paths else "",
        file_bytes=file.file_bytes,
        missing_bytes=file.missing_bytes if file.paths else 0,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=file.weight_bytes,
        n_ctx_train=file.n_ctx_train,
        n_gpu_layers=placement.n_gpu_layers if placement.on_gpu else None,
        device_weight_bytes=placement.weight_bytes,
        host_weight_bytes=placement.host_weight_bytes,
        notes=(
            (f"the size is the published one; that of each tensor is in proportion to llama.cpp's {plain}",)
            if (plain := variant.scaled_from)
            else ()
        ),
    )


def _notes(file: ModelFile, placement: Placement, weight_buffers: Sequence[str], budget: Budget) -> Iterator[str]:
    if file.paths and file.missing_bytes:
        yield f"the file is incomplete: {format_bytes(file.missing_bytes)} of its tensors are missing"
    if file.unknown_types:
        yield f"tensors of unknown type, so only the file size is known: {', '.join(file.unknown_types)}"
    if file.no_kv_reason:
        yield f"{file.no_kv_reason}; its size is the allocator's, and there are no theoretical limits"
    elif placement.no_theory_reason:
        yield f"no theoretical KV size: {placement.no_theory_reason}"
    elif placement.theory is not None:
        if placement.theory.remark:
            yield placement.theory.remark
        if state_bytes := placement.theory.state_bytes:
            yield f"recurrent states of {format_bytes(state_bytes)} for each sequence, at every length"
    yield from _placement_notes(file, placement, budget)
    repacked = [name for name in weight_buffers if name in ("CPU_REPACK", "AMX")]
    if not placement.on_gpu and repacked:
        yield f"some matrices are repacked ({repacked[0]}); counted once, as no second copy needs to stay in memory"


def _placement_notes(file: ModelFile, placement: Placement, budget: Budget) -> Iterator[str]:
    """Yield what lies in main memory, and which bandwidth is missing to bound the speed."""
    if placement.is_split:
        kept = placement.overridden_bytes
        layers = f"{placement.n_gpu_layers} of {file.n_layer + 1} layers on the GPU"
        rest = (
            f"{format_bytes(kept)} of their tensors in main memory by override" if kept else "the rest in main memory"
        )
        yield f"{layers}, {rest}"
    if placement.on_gpu and not placement.is_cache_on_devices and not placement.is_split:
        yield "the KV cache is in main memory"
    if not placement.has_two_speeds:
        return
    known = place_bandwidths(budget)
    if any(place not in known for place in range(max(1, len(placement.devices)))):
        yield "no speed estimate: the bandwidth of a GPU is not known; --gpu 24GiB@936GB/s gives it"
    elif HOST not in known and (placement.is_split or not placement.is_cache_on_devices):
        yield "no speed estimate: the bandwidth of main memory is not known; --ram 64GiB@60GB/s gives it"
