"""Plan the memory of each quant before downloading it: weights from the tensor table, the rest from a dry allocator.

No tensor is read or allocated. A row has the sizes by llama.cpp and by the theory, and notes a disagreement.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec
from msgspec import field
from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded, Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BindingFailed, GgbenchError, UsageError
from ggbench.fields import reproduce
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.fit import Fit, Fitter
from ggbench.sizing.longest_context import LONGEST
from ggbench.sizing.memory_stacks import memory_stacks
from ggbench.sizing.placement import Placement, place_bandwidths, speed_limits
from ggbench.sizing.plan_record import Budget, KvCacheTypes, PlanRow
from ggbench.sizing.splits import LARGE_UBATCH, on_fastest, smallest_split
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
    """Yield a row for each variant. One that cannot be planned has a reason; if it is the only one, or for
    BindingFailed, its error is raised.
    """
    for variant in variants:
        try:
            yield from plan_variant(variant, request, allocator)
        except GgbenchError as error:
            if len(variants) == 1 or isinstance(error, BindingFailed):
                raise
            yield replace(_unplanned(variant, request), outcome=Outcome.FAILED, reason=error.message)


def plan_variant(variant: Target, request: PlanRequest, allocator: DryAllocator) -> Iterator[PlanRow]:
    """Yield the rows of `Planner.rows`; for a variant that llama.cpp does not load, one with the reason.

    Raises GgbenchError if it cannot be planned.
    """
    with Planners(allocator) as planners:
        yield from planners.rows(variant, request)


class Planners:
    """Keeps what plans each variant, so that a setup is sized once. A context manager."""

    def __init__(self, allocator: DryAllocator) -> None:
        self._allocator = allocator
        self._opened = contextlib.ExitStack()
        self._planners: dict[int, Planner] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def rows(
        self, variant: Target, request: PlanRequest, caches: Sequence[KvCacheTypes] = ()
    ) -> Iterator[PlanRow]:
        """Yield the rows of a variant as `plan_variant`; of all its requests only the setups' sizes may differ."""
        if variant.file is None:
            yield replace(_unplanned(variant, request), outcome=Outcome.FAILED, reason=variant.reason)
            return
        planner = self._planners.get(id(variant))
        try:
            if planner is None:
                planner = self._opened.enter_context(_planner_of(variant, request, self._allocator))
                self._planners[id(variant)] = planner
        except EngineEnded as end:
            yield replace(_unplanned(variant, request), outcome=end.ending.outcome, reason=end.ending.reason)
            return
        yield from planner.rows(request.setup, caches)


@contextlib.contextmanager
def _planner_of(variant: Target, request: PlanRequest, allocator: DryAllocator) -> Iterator[Planner]:
    """Yield what plans setups of a variant. Raises EngineEnded if llama.cpp does not load it, and GgbenchError."""
    file = variant.header()
    request = _checked(file, request)
    with tempfile.TemporaryDirectory(prefix="ggbench-") as folder:  # a fit may load it again
        fitter = Fitter(file, write_sparse(file, Path(folder)), request.budget, allocator)
        yield Planner(variant, fitter, request)


def _checked(file: ModelFile, request: PlanRequest) -> PlanRequest:
    """Return the request with main memory for its checkpoints. Raises UsageError for overrides that match nothing, and
    BadFile for a projector of another model.
    """
    check_overrides(file, request.setup)
    budget = request.budget
    if budget.projector is not None:
        budget.projector.check(file)
    if budget.n_checkpoints:
        each_bytes = _checkpoint_bytes(file, request.setup) or 0
        budget = budget.beside_prompt_cache(budget.n_checkpoints * request.setup.n_seq_max * each_bytes)
    return replace(request, budget=budget)


class Planner:
    """Plans setups of one variant in one budget, each sized once."""

    def __init__(self, variant: Target, fitter: Fitter, request: PlanRequest) -> None:
        self._variant, self._fitter, self._request = variant, fitter, request

    def rows(self, setup: LlamaConfig, caches: Sequence[KvCacheTypes] = ()) -> Iterator[PlanRow]:
        """Yield a row for each of `caches`; without any, one for the setup, with changes that would help if it does not
        fit.

        Of several caches the longest context is found by a line, to about 2 %, as a search takes many dry ones.
        The fastest of unlike GPUs have a row of their own if they are enough. A cache of at least 8 bits, or the only
        one, that does not fit has another, with the least of the model in main memory, if that is enough for the GPUs;
        main memory may be too small for it. A setup that llama.cpp refuses has a row with the reason.
        """
        if not caches:
            yield from self._explained(setup, self._of_setup(setup))
        for cache in caches:
            asked = with_cache(setup, cache)
            yield from self._explained(asked, self._of_cache(asked, is_only=len(caches) == 1))

    def _explained(self, setup: LlamaConfig, rows: Iterator[PlanRow]) -> Iterator[PlanRow]:
        """Yield the rows; if the worker ends, one with the reason."""
        try:
            yield from rows
        except EngineEnded as end:
            yield replace(self._unplanned(setup), outcome=end.ending.outcome, reason=end.ending.reason)

    def _of_setup(self, setup: LlamaConfig) -> Iterator[PlanRow]:
        """Yield the row of a setup, with the fewest experts in main memory if the request places them and GPUs then
        have enough, else with changes that would help.
        """
        fit = self._fit(setup)
        row = self._row(fit, by_line=False)
        if row.fits is False and self._request.places_experts and self._fitter.file.n_expert:
            row = next(self._split(fit, by_line=False), row)
        if row.fits is False:
            row = replace(row, changes=what_helps(self._fitter, fit, row.planned_n_ctx or 0))
        yield row

    def _of_cache(self, setup: LlamaConfig, *, is_only: bool) -> Iterator[PlanRow]:
        """Yield the row of a cache, those of the fastest GPUs, and one with the least of the model in main memory."""
        fit = self._fit(setup)
        row = self._row(fit, by_line=not is_only)
        yield row
        for alone in on_fastest(fit):
            fastest = self._fit(alone)
            if fastest.is_enough:
                yield self._row(fastest, by_line=True)
        if row.fits is False and (is_only or setup.type_v in _SPLIT_CACHES):
            yield from self._split(self._reading_prompts(fit), by_line=True)

    def _reading_prompts(self, fit: Fit) -> Fit:
        """Return the fit with larger batches of a prompt if experts will be in main memory, which each copies."""
        setup = fit.setup
        if not self._fitter.file.n_expert or setup.n_ubatch != LlamaConfig().n_ubatch:
            return fit
        return self._fitter.sized(replace(setup, n_ubatch=LARGE_UBATCH)) or fit

    def _split(self, whole: Fit, *, by_line: bool) -> Iterator[PlanRow]:
        """Yield the row of the smallest part in main memory with which the GPUs have enough, if there is one."""
        if self._request.budget.on_gpu:
            fit = smallest_split(self._fitter, whole)
            if fit is not None:
                yield self._row(fit, by_line=by_line)

    def _fit(self, setup: LlamaConfig) -> Fit:
        """Return the fit of a setup, with at most what the model was trained with in each slot: llama-server uses no
        more.
        """
        trained = self._fitter.file.n_ctx_train or LONGEST
        n_ctx = min(setup.n_ctx or min(DEFAULT_N_CTX, trained), trained * setup.n_seq_max)
        return self._fitter.fit(replace(setup, n_ctx=n_ctx))

    def _unplanned(self, setup: LlamaConfig) -> PlanRow:
        return _unplanned(self._variant, replace(self._request, setup=setup))

    def _row(self, fit: Fit, *, by_line: bool) -> PlanRow:
        """Return what a fit takes, with the longest context, searched or by a line."""
        file, budget, placement, context = self._fitter.file, fit.budget, fit.placement, fit.context
        row = self._unplanned(fit.setup)
        row = replace(
            row,
            n_ctx=context.n_ctx,
            n_ctx_slot=context.n_ctx // fit.setup.n_streams,
            n_gpu_layers=placement.n_gpu_layers if placement.on_gpu else None,
            device_weight_bytes=placement.weight_bytes,
            host_weight_bytes=placement.host_weight_bytes,
            kv_bytes=context.cache_bytes,
            device_kv_bytes=placement.cache_bytes(context),
            theory_kv_bytes=placement.theory_bytes(context),
            kv_bytes_per_token=None if placement.theory is None else placement.theory.bytes_per_token,
            compute_bytes=placement.compute_bytes(context),
            output_bytes=context.output_bytes,
            draft_bytes=placement.draft_bytes(context),
            checkpoint_bytes=_checkpoint_bytes(file, fit.setup),
            host_compute_bytes=context.host_compute_bytes
            if budget.on_gpu and context.device_compute_bytes
            else None,
            is_split=placement.is_split or not placement.is_cache_on_devices,
            flash_attn=context.flash_attn,
            swa_cells=context.swa_cells,
            notes=(*row.notes, *_notes(file, placement, budget), *placement.disagreement(context)),
        )
        if placement.weight_bytes is None:
            return row
        longest = self._fitter.longest_by_line(fit) if by_line else self._fitter.longest(fit)
        return _with_memory(row, fit, longest, is_open=longest >= self._fitter.ceiling(fit))


def _with_memory(row: PlanRow, fit: Fit, longest: int, *, is_open: bool) -> PlanRow:
    """Return the row with what fits into the budget, and the limits of its speed; the size of the weights is known."""
    placement, context, notes = fit.placement, fit.context, row.notes
    limit, limit_tok_s = speed_limits(fit.budget, placement, row.n_ctx_slot or context.n_ctx)
    if unreserved := placement.unreserved_bytes(context):
        notes = (
            *notes,
            f"at this n_ctx llama.cpp's process needs {format_bytes(unreserved)} more than the reserve",
        )
    return replace(
        row,
        needed_bytes=fit.needed_bytes,
        left_bytes=fit.left_bytes,
        fits=fit.is_enough,
        planned_n_ctx=longest or None,
        reached_ceiling=is_open,
        devices=fit.devices,
        stacks=memory_stacks(placement, context, fit.budget),
        limit=limit,
        limit_tok_s=limit_tok_s,
        notes=notes,
    )


def with_cache(setup: LlamaConfig, cache: KvCacheTypes) -> LlamaConfig:
    return replace(setup, type_k=cache.type_k, type_v=cache.type_v, flash_attn=cache.flash_attn)


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
    file = variant.file
    return replace(
        named,
        file=str(file.paths[0]) if file.paths else "",
        file_bytes=file.file_bytes,
        missing_bytes=file.missing_bytes if file.paths else 0,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=file.weight_bytes,
        n_ctx_train=file.n_ctx_train,
        notes=(_SCALED.format(variant.scaled_from),) if variant.scaled_from else (),
    )


_SCALED = "the size is the published one; that of each tensor is in proportion to llama.cpp's {}"


def _notes(file: ModelFile, placement: Placement, budget: Budget) -> Iterator[str]:
    if file.paths and file.missing_bytes:
        yield f"the file is incomplete: {format_bytes(file.missing_bytes)} of its tensors are missing"
    if file.unknown_types:
        yield f"tensors of unknown type, so only the file size is known: {', '.join(file.unknown_types)}"
    if file.no_kv_reason:
        yield f"{file.no_kv_reason}; its size is the allocator's, and there are no theoretical limits"
    elif placement.theory is None:
        yield f"no theoretical KV size: {placement.no_theory_reason}"
    else:
        if placement.theory.remark:
            yield placement.theory.remark
        if state_bytes := placement.theory.state_bytes:
            yield f"recurrent states of {format_bytes(state_bytes)} for each sequence, at every length"
    yield from _placement_notes(file, placement, budget)


def _placement_notes(file: ModelFile, placement: Placement, budget: Budget) -> Iterator[str]:
    """Yield what lies in main memory, and which bandwidth is missing to bound the speed."""
    in_main_memory = placement.is_split or not placement.is_cache_on_devices
    if placement.is_split:
        rest = "the rest in main memory"
        if kept := placement.overridden_bytes:
            rest = f"{format_bytes(kept)} of their tensors in main memory by override"
        yield f"{placement.n_gpu_layers} of {file.n_layer + 1} layers on the GPU, {rest}"
    elif placement.on_gpu and in_main_memory:
        yield "the KV cache is in main memory"
    known = place_bandwidths(budget)
    if not placement.has_two_speeds:
        return
    if not known.keys() >= set(range(max(1, len(placement.devices)))):
        yield "no speed estimate: the bandwidth of a device is not known; --bandwidth 936GB/s gives it"
    elif HOST not in known and in_main_memory:
        yield "no speed estimate: the bandwidth of main memory is not known; --ram 64GiB@60GB/s gives it"
