"""What would help where a quant does not fit: single changes to the load, sized by the allocator as the plan is.

Each is the least of its kind that is enough; where none is, the one that saves most. What saves nothing is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded, Failed, OutOfMemory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import name_without_quant
from ggbench.machine.readings import Program
from ggbench.models.local_files import local_variants
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.longest_context import longest_n_ctx, planning_ceiling
from ggbench.sizing.placement import Placement, speed_bounds
from ggbench.sizing.plan_record import Budget, Change, ChangeKind, PlanRow
from ggbench.units import format_bytes

_SMALLER_UBATCHES = (256, 128, 64)
_SMALLER_CACHES: tuple[tuple[ChangeKind, str], ...] = (("KV q8_0", "q8_0"), ("KV q4_0", "q4_0"))
_COSTS: tuple[ChangeKind, ...] = get_args(ChangeKind)


def what_helps(
    file: ModelFile, setup: LlamaConfig, budget: Budget, allocator: DryAllocator, row: PlanRow
) -> tuple[Change, ...]:
    """Return the changes to the load of a quant that does not fit, the best first; the allocator has it loaded.

    Raises EngineEnded where the worker ends, but not where llama.cpp refuses a change.
    """
    sizes = _Sizes(file, replace(setup, n_ctx=row.n_ctx), budget, allocator)
    changes = [*_of_context(sizes, row), *_of_placement(sizes)]
    return _in_order((change for change in changes if change.needed_bytes < (row.needed_bytes or 0)), row)


def with_other_quants(rows: Sequence[PlanRow], others: Sequence[PlanRow] = ()) -> list[PlanRow]:
    """Return the rows, those that do not fit with the largest smaller quant that does: of them, or of the others."""
    fitting = [row for row in (*rows, *others) if row.fits]

    def changed(row: PlanRow) -> PlanRow:
        smaller = [each for each in fitting if (each.weight_bytes or 0) < (row.weight_bytes or 0)]
        if row.fits is not False or not smaller:
            return row
        other = max(smaller, key=lambda each: each.weight_bytes or 0)
        change = Change(
            kind="quant",
            setup=None,
            needed_bytes=other.needed_bytes or 0,
            left_bytes=other.left_bytes or 0,
            planned_n_ctx=other.planned_n_ctx,
            tok_s=other.at_n_ctx.tok_s if other.at_n_ctx else None,
            quant=other.quant,
        )
        return replace(row, changes=_in_order([*row.changes, change], row))

    return [changed(row) for row in rows]


def with_programs(rows: Sequence[PlanRow], programs: Sequence[Program]) -> list[PlanRow]:
    """Return the rows, those that do not fit with the fewest programs whose memory is enough, the largest first."""

    def changed(row: PlanRow) -> PlanRow:
        missing = -(row.left_bytes or 0)
        freed = [sum(each.held_bytes for each in programs[: count + 1]) for count in range(len(programs))]
        count = bisect_left(freed, missing) + 1
        if row.fits is not False or count > len(programs):
            return row
        change = Change(
            kind="close programs",
            setup=None,
            needed_bytes=row.needed_bytes or 0,
            left_bytes=freed[count - 1] - missing,
            planned_n_ctx=None,
            tok_s=row.at_n_ctx.tok_s if row.at_n_ctx else None,
            programs=tuple(programs[:count]),
        )
        return replace(row, changes=_in_order([*row.changes, change], row))

    return [changed(row) for row in rows]


class _Sizes(msgspec.Struct, frozen=True):
    """Sizes changed loads of one file."""

    file: ModelFile
    setup: LlamaConfig
    """As planned, with its n_ctx."""
    budget: Budget
    allocator: DryAllocator

    def placement(self, setup: LlamaConfig) -> Placement:
        return Placement(self.file, setup, on_gpu=self.budget.on_gpu)

    def context(self, setup: LlamaConfig) -> DryContext | None:
        """Return the context as planned under this setup; None if llama.cpp refuses it."""
        assert setup.n_ctx is not None
        try:
            return self.allocator.context(setup.n_ctx, setup)
        except EngineEnded as end:
            if not isinstance(end.ending, Failed | OutOfMemory):
                raise
            return None

    def left_bytes(self, placement: Placement, context: DryContext) -> int:
        assert placement.weight_bytes is not None  # or the plan would not know that it does not fit
        needed = placement.weight_bytes + placement.context_bytes(context)
        return self.budget.usable_bytes - needed - placement.unreserved_bytes(context)

    def fits(self, setup: LlamaConfig) -> bool:
        context = self.context(setup)
        return context is not None and self.left_bytes(self.placement(setup), context) >= 0

    def change(self, kind: ChangeKind, setup: LlamaConfig) -> Change | None:
        """Return the change to this setup; None if llama.cpp refuses it."""
        placement, context = self.placement(setup), self.context(setup)
        if context is None:
            return None
        assert setup.n_ctx is not None
        usable, ceiling = self.budget.usable_bytes, planning_ceiling(self.file, setup.n_ctx)
        longest = longest_n_ctx(placement, usable, lambda n: self.allocator.context(n, setup), context, ceiling)
        _, bounds = speed_bounds(self.file, setup, self.budget, placement, longest, setup.n_ctx)
        return Change(
            kind=kind,
            setup=setup,
            needed_bytes=(placement.weight_bytes or 0) + placement.context_bytes(context),
            left_bytes=self.left_bytes(placement, context),
            planned_n_ctx=longest or None,
            tok_s=bounds[-1].tok_s if bounds else None,
        )


def _of_context(sizes: _Sizes, row: PlanRow) -> Iterator[Change]:
    """A smaller physical batch, flash attention, smaller caches, a shorter context."""
    setup = sizes.setup
    batches = [size for size in _SMALLER_UBATCHES if size < min(setup.n_ubatch, setup.n_batch)]
    smaller = [replace(setup, n_ubatch=size) for size in batches]
    if smaller:
        enough = next(filter(sizes.fits, smaller), smaller[-1])
        yield from filter(None, [sizes.change("n_ubatch", enough)])
    flash_attn = "on" if setup.flash_attn == "off" else setup.flash_attn
    wanted = [(kind, replace(setup, type_k=name, type_v=name, flash_attn=flash_attn)) for kind, name in _SMALLER_CACHES]
    if setup.flash_attn == "off":
        wanted.append(("flash attention", replace(setup, flash_attn="on")))
    if row.planned_n_ctx:
        wanted.append(("n_ctx", replace(setup, n_ctx=row.planned_n_ctx)))
    yield from filter(None, (sizes.change(kind, changed) for kind, changed in wanted))


def _of_placement(sizes: _Sizes) -> Iterator[Change]:
    """On a GPU experts, else whole layers, in main memory: as few as are enough."""
    if not sizes.budget.on_gpu:
        return
    setup, n_layer = sizes.setup, sizes.file.n_layer
    if sizes.file.n_expert and not setup.cpu_moe:
        kept = _least(sizes, range(setup.n_cpu_moe + 1, n_layer + 1), lambda n: replace(setup, n_cpu_moe=n))
        yield from filter(None, [kept and sizes.change("n_cpu_moe", kept)])
    n_offloaded = sizes.placement(setup).offload.n_gpu_layers
    fewer = _least(sizes, range(n_offloaded - 1, -1, -1), lambda n: replace(setup, n_gpu_layers=n))
    yield from filter(None, [fewer and sizes.change("n_gpu_layers", fewer)])


def _least(sizes: _Sizes, numbers: Sequence[int], changed: Callable[[int], LlamaConfig]) -> LlamaConfig | None:
    """The first setup of those that save ever more with which the context as it is fits; else the last."""
    assert sizes.setup.n_ctx is not None
    context = sizes.allocator.context(sizes.setup.n_ctx, sizes.setup)

    def fits(number: int) -> bool:
        placement = sizes.placement(changed(number))
        return (placement.weight_bytes or 0) + placement.context_bytes(context) <= sizes.budget.usable_bytes

    if not numbers:
        return None
    return changed(numbers[min(bisect_left(numbers, True, key=fits), len(numbers) - 1)])


def _in_order(changes: Iterable[Change], row: PlanRow) -> tuple[Change, ...]:
    """Those that are enough first, the cheapest before the others; then by what is still missing."""

    def cost(change: Change) -> int:
        is_drastic = change.kind == "n_ctx" and (row.planned_n_ctx or 0) < (row.n_ctx or 0) / 2
        return len(_COSTS) if is_drastic else _COSTS.index(change.kind)

    return tuple(sorted(changes, key=lambda each: (not each.fits, 0 if each.fits else -each.left_bytes, cost(each))))


def smaller_quant_advice(target: Target, room_bytes: int, in_budget: float = 1.0) -> str:
    """The largest smaller quant whose weights those bytes hold, else that there is none.

    `in_budget` is the share of the weights that lies in the memory that is too small: that of the target's own, since
    the others keep as many layers elsewhere.
    """
    sizes = {quant: round(n_bytes * in_budget) for quant, n_bytes in _sizes(target).items()}
    most_bytes = min(room_bytes, sizes.get(target.quant, room_bytes + 1) - 1)
    fitting = {quant: n_bytes for quant, n_bytes in sizes.items() if n_bytes <= most_bytes and quant != target.quant}
    about = "about " if in_budget < 1 else ""
    if fitting:
        quant = max(fitting, key=lambda each: fitting[each])
        return f"{quant} would fit: its weights take {about}{format_bytes(fitting[quant])} there"
    smallest = min(sizes, key=lambda each: sizes[each], default=target.quant)
    if smallest == target.quant:
        return "there is no smaller quant here; take a smaller model, or allow it more memory"
    taken = f"{about}{format_bytes(sizes[smallest])}"
    return f"not even {smallest} would fit, with weights of {taken}; take a smaller model"


def _sizes(target: Target) -> dict[str, int]:
    """Bytes of the weights of every available quant: by the source, else of the files in the same folder."""
    source = target.own or target.source
    if source is not None:
        return source.sizes()
    if target.path is None:
        return {}
    try:
        variants = local_variants(Path(target.path).parent)
    except GgbenchError:
        return {}
    return {
        variant.quant: variant.file_bytes
        for variant in variants
        if variant.quant
        and not variant.missing
        and name_without_quant(variant.paths[0].name).lower() == name_without_quant(target.path.name).lower()
    }
