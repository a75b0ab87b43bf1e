"""Plan the memory of each quant before downloading it: weights from the tensor table, the rest from a dry allocator.

No tensor is read or allocated. A row has the sizes by llama.cpp, and of the cache also by the theory.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from msgspec import field
from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded, Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BindingFailed, GgbenchError, UsageError, WrongProjector
from ggbench.fields import reproduce
from ggbench.files import temporary_folder
from ggbench.gguf_file.model_file import SCALED_KEY
from ggbench.gguf_file.quants import plain_quant
from ggbench.gguf_file.twin import write_sparse
from ggbench.models.targets import Target
from ggbench.record import Record
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.fit import LONGEST, Fit, Fitter
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget, Note, PlanRow
from ggbench.sizing.speed_limits import speed_limit
from ggbench.sizing.theory.offload import check_overrides
from ggbench.sizing.what_helps import LARGE_UBATCH, on_fastest, smallest_split, what_helps
from ggbench.units import format_count

DEFAULT_N_CTX = 8192
"""Default n_ctx of a plan; the training context if that is shorter."""


_SPLIT_CACHES = frozenset({"f32", "f16", "bf16", "q8_0"})
"""Caches that are also sized with a part of the model in main memory: a coarser one saves little more there."""


class PlanRequest(Record):
    """The setup and memory to plan for. Raises UsageError for an impossible context."""

    budget: Budget
    setup: LlamaConfig = field(default_factory=LlamaConfig)
    """An n_ctx of None means `DEFAULT_N_CTX`, of 0 the training context in each slot."""
    options: tuple[tuple[str, str], ...] = ()
    """Other command-line options, for the command that reproduces a row."""
    places_experts: bool = False
    """Whether a mixture too large for the GPUs is planned with the fewest experts in main memory that are enough."""

    def __post_init__(self) -> None:
        replace(self.setup, n_ctx=self.setup.n_ctx or None).check()
        if self.setup.n_ctx is not None and self.setup.n_ctx > LONGEST:
            raise UsageError(
                f"a context of {format_count(self.setup.n_ctx)} tokens is too long to plan",
                f"use --n-ctx up to {format_count(LONGEST)}",
            )


def plan(variants: Sequence[Target], request: PlanRequest, allocator: DryAllocator) -> Iterator[PlanRow]:
    """Yield the rows of `Planners.plan`."""
    with Planners(allocator, request) as planners:
        yield from planners.plan(variants)


class Planners:
    """Plans variants in one budget. Places and sizes each setup of a variant once. A context manager."""

    def __init__(self, allocator: DryAllocator, request: PlanRequest) -> None:
        self._allocator, self._request = allocator, request
        self._opened = contextlib.ExitStack()
        self._folder = self._opened.enter_context(temporary_folder())
        """Headers, which a fit may load again."""
        self._fitters: dict[int, Fitter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def plan(self, variants: Sequence[Target]) -> Iterator[PlanRow]:
        """Yield a row for each variant. One that cannot be planned has a reason; if it is the only one, or for
        BindingFailed and WrongProjector, its error is raised.
        """
        for variant in variants:
            try:
                yield from self.rows(variant)
            except GgbenchError as error:
                if len(variants) == 1 or isinstance(error, BindingFailed | WrongProjector):
                    raise
                yield _failed(variant, self._request, Outcome.FAILED, error.message)

    def rows(
        self,
        variant: Target,
        setup: LlamaConfig | None = None,
        caches: Sequence[tuple[str, str]] = (),
    ) -> Iterator[PlanRow]:
        """Yield a row for each of `caches`, types of K and V; without any, one for a setup, with changes that would
        help if it does not fit. `setup` replaces the request's, with other sizes.

        With `caches` the longest context is to about 2 %, which takes one dry context for all quants of a shape.
        The fastest of unlike GPUs have a row of their own if they are enough. A cache of at least 8 bits, or the only
        one, that does not fit has another, with the least of the model in main memory, if that is enough for the GPUs;
        main memory may be too small for it. A setup that llama.cpp refuses has a row with the reason.
        Raises GgbenchError if the variant cannot be planned.
        """
        request = replace(self._request, setup=setup or self._request.setup)
        if variant.file is None:
            yield _failed(variant, request, Outcome.FAILED, variant.reason)
            return
        for type_k, type_v in caches or [(request.setup.type_k, request.setup.type_v)]:
            asked = replace(request, setup=replace(request.setup, type_k=type_k, type_v=type_v))
            try:
                if caches:
                    yield from self._of_cache(variant, asked, is_only=len(caches) == 1)
                else:
                    yield self._of_setup(variant, asked)
            except EngineEnded as end:
                yield _failed(variant, asked, end.ending.outcome, end.ending.reason)

    def row_of(self, variant: Target, fit: Fit) -> PlanRow:
        """Return the row of a fit of a variant, without its longest context, which takes a while to find."""
        return _sized(variant, replace(self._request, setup=fit.setup), self.fitter(variant), fit)

    def placement(self, variant: Target, setup: LlamaConfig) -> Placement:
        """Return where a setup of a variant that was planned places it."""
        return self.fitter(variant).placement(setup)

    def fitter(self, variant: Target) -> Fitter:
        """Return what fits setups of a variant. Raises EngineEnded if llama.cpp does not load it, and UsageError for
        overrides that match nothing.
        """
        if id(variant) not in self._fitters:
            file, request = variant.header(), self._request
            check_overrides(file, request.setup)
            budget = request.budget
            if budget.projector is not None:
                budget.projector.check(file)
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            self._fitters[id(variant)] = Fitter(file, write_sparse(file, folder), budget, self._allocator)
        return self._fitters[id(variant)]

    def _of_setup(self, variant: Target, request: PlanRequest) -> PlanRow:
        """Return the row of a setup, with the fewest experts in main memory if the request places them and GPUs then
        have enough, else with changes that would help.
        """
        fitter = self.fitter(variant)
        fit = _fit(fitter, request.setup)
        if request.places_experts and fitter.file.n_expert and not fit.is_enough:
            fit = _split(fitter, fit) or fit
        row = _row(variant, request, fitter, fit, fitter.longest)
        if row.fits is False:
            row = replace(row, changes=what_helps(fitter, fit, row.planned_n_ctx or 0))
        return row

    def _of_cache(self, variant: Target, request: PlanRequest, *, is_only: bool) -> Iterator[PlanRow]:
        """Yield the row of a cache, those of the fastest GPUs, and one with the least of the model in main memory, of
        which the context is the longest that is looked for.
        """
        fitter = self.fitter(variant)
        fit = _fit(fitter, request.setup)
        row = _row(variant, request, fitter, fit, fitter.longest_by_line)
        yield row
        for each in map(fitter.fit, on_fastest(fit)):
            if each.is_enough:
                yield _row(variant, request, fitter, each, fitter.longest_by_line)
        if row.fits is False and (is_only or request.setup.type_v in _SPLIT_CACHES):
            split = _split(fitter, fit)
            if split is not None:
                n_ctx = split.context.n_ctx if split.is_enough else None
                yield replace(self.row_of(variant, split), planned_n_ctx=n_ctx)


def _split(fitter: Fitter, fit: Fit) -> Fit | None:
    """Return the fit with the least in main memory: experts with larger batches of a prompt, as each copies them."""
    setup = fit.setup
    if fitter.file.n_expert and fitter.budget.on_gpu and setup.n_ubatch == LlamaConfig().n_ubatch:
        fit = fitter.sized(replace(setup, n_ubatch=LARGE_UBATCH)) or fit
    return smallest_split(fitter, fit)


def _fit(fitter: Fitter, setup: LlamaConfig) -> Fit:
    """Return the fit of a setup, with at most the training context in each slot: llama-server uses no more."""
    trained = fitter.file.n_ctx_train or LONGEST
    asked = min(DEFAULT_N_CTX, trained) if setup.n_ctx is None else setup.n_ctx
    n_ctx = min(asked or LONGEST, trained * setup.n_seq_max)
    return fitter.fit(replace(setup, n_ctx=n_ctx))


def _row(
    variant: Target, request: PlanRequest, fitter: Fitter, fit: Fit, longest: Callable[[Fit], int]
) -> PlanRow:
    """Return what a fit takes and, if the size of its weights is known, its longest context."""
    row = _sized(variant, request, fitter, fit)
    if fit.placement.weight_bytes is None:
        return row
    n_ctx = longest(fit)
    return replace(row, planned_n_ctx=n_ctx or None, reached_ceiling=n_ctx >= fitter.ceiling(fit))


def _sized(variant: Target, request: PlanRequest, fitter: Fitter, fit: Fit) -> PlanRow:
    """Return what a fit takes and, if the size of its weights is known, what it leaves."""
    placement, context = fit.placement, fit.context
    row = replace(
        _unplanned(variant, replace(request, setup=fit.setup)),
        n_ctx=context.n_ctx,
        n_ctx_slot=context.n_ctx // fit.setup.n_streams,
        n_gpu_layers=placement.n_gpu_layers if placement.devices else None,
        device_weight_bytes=placement.weight_bytes,
        host_weight_bytes=placement.host_weight_bytes,
        kv_bytes=context.cache_bytes,
        device_kv_bytes=placement.cache_bytes(context),
        theory_kv_bytes=placement.theory_bytes(context),
        kv_bytes_per_token=None if placement.theory is None else placement.theory.bytes_per_token,
        compute_bytes=placement.compute_bytes(context),
        output_bytes=context.output_bytes,
        draft_bytes=placement.draft_bytes(context),
        is_split=placement.is_split or not placement.is_cache_on_devices,
        flash_attn=context.flash_attn,
        swa_cells=context.swa_cells,
        notes=tuple(_notes(variant, placement)),
    )
    if placement.weight_bytes is None:
        return row
    return replace(
        row,
        needed_bytes=fit.needed_bytes,
        left_bytes=fit.left_bytes,
        fits=fit.is_enough,
        devices=fit.devices,
        limit_tok_s=speed_limit(placement, row.n_ctx_slot or context.n_ctx),
    )


def _failed(variant: Target, request: PlanRequest, outcome: Outcome, reason: str) -> PlanRow:
    return replace(_unplanned(variant, request), outcome=outcome, reason=reason)


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
    file = variant.file
    if file is None:
        return named
    return replace(
        named,
        file=str(file.paths[0]) if file.paths else "",
        file_bytes=file.file_bytes,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=file.weight_bytes,
        n_ctx_train=file.n_ctx_train,
    )


def _notes(variant: Target, placement: Placement) -> Iterator[Note]:
    """Yield what its sizes are from, where that is not all known."""
    size = str(placement.file.metadata.get(SCALED_KEY, ""))
    lacking_repo = "" if variant.to_run is None else variant.to_run.lacking_repo
    if lacking_repo:
        yield Note("plan.lacking_quant", {"quant": variant.quant, "repo": lacking_repo})
    if size:
        yield Note(
            "plan.typical" if size.startswith("~") else "plan.scaled", {"quant": plain_quant(variant.quant)}
        )
    if placement.file.unknown_types:
        yield Note("plan.unknown_types", {"types": ", ".join(placement.file.unknown_types)})
    if placement.theory is None:
        yield Note("plan.no_theory", {"why": placement.file.no_kv_reason or placement.no_theory_reason})
