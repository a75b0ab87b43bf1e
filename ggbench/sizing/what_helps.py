"""Find what would help if a quant does not fit: single changes to the load, sized by the dry allocator like the plan.

Each is the smallest change of its kind that is enough or, if none is, the one that saves most. Changes that save
nothing are left out.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import get_args

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import list_gpus
from ggbench.sizing.budget import servers_budget
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.longest_context import longest_n_ctx, planning_ceiling
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget, Change, ChangeKind, PlanRow
from ggbench.sizing.search_budget import search_budget
from ggbench.units import KV_CELLS, format_bytes

_COSTS: tuple[ChangeKind, ...] = get_args(ChangeKind)


def what_helps(
    file: ModelFile, setup: LlamaConfig, budget: Budget, allocator: DryAllocator, row: PlanRow
) -> tuple[Change, ...]:
    """Return changes to the load of a quant that does not fit, the best first; the allocator has it loaded.

    The longest context is searched only for changes that are enough, or for all if none is, since that takes a while.
    Raises EngineEnded if the worker ends, but not if llama.cpp refuses a change.
    """
    sizes = _Sizes(file, replace(setup, n_ctx=row.n_ctx), budget, allocator)
    needed_bytes, left_bytes = row.needed_bytes or 0, row.left_bytes or 0
    tried = (sizes.change(*each) for each in (*_of_context(sizes.setup, row), *_of_placement(sizes)))
    changes = [
        each for each in tried if each and each.needed_bytes < needed_bytes and each.left_bytes > left_bytes
    ]
    longest = [each for each in changes if each.fits] or changes
    return _in_order((sizes.with_longest(each) if each in longest else each for each in changes), row)


def with_other_quants(rows: Sequence[PlanRow], others: Sequence[PlanRow] = ()) -> list[PlanRow]:
    """Return the rows, adding to each that does not fit the largest smaller quant that does."""
    fitting = [row for row in (*rows, *others) if row.fits]
    return [_with_other_quant(row, fitting) if row.fits is False else row for row in rows]


def _with_other_quant(row: PlanRow, fitting: Sequence[PlanRow]) -> PlanRow:
    smaller = [each for each in fitting if (each.weight_bytes or 0) < (row.weight_bytes or 0)]
    if not smaller:
        return row
    other = max(smaller, key=lambda each: each.weight_bytes or 0)
    change = Change(
        kind="quant",
        setup=None,
        needed_bytes=other.needed_bytes or 0,
        left_bytes=other.left_bytes or 0,
        planned_n_ctx=other.planned_n_ctx,
        quant=other.quant,
    )
    return replace(row, changes=_in_order([*row.changes, change], row))


class _Sizes(msgspec.Struct, frozen=True):
    file: ModelFile
    setup: LlamaConfig
    """The planned setup, with its n_ctx."""
    budget: Budget
    allocator: DryAllocator

    def placement(self, setup: LlamaConfig) -> Placement:
        return Placement.of(self.file, setup, self.budget)

    def context(self, setup: LlamaConfig) -> DryContext | None:
        """Return the context as planned under this setup; None if llama.cpp refuses it."""
        assert setup.n_ctx is not None
        return self.allocator.sized(setup.n_ctx, setup)

    def left_bytes(self, placement: Placement, context: DryContext) -> int:
        assert placement.weight_bytes is not None  # or the plan would not know that it does not fit
        usable = self.budget.usable_bytes
        return usable - placement.needed_bytes(context, usable)

    def fits(self, setup: LlamaConfig) -> bool:
        context = self.context(setup)
        return context is not None and self.left_bytes(self.placement(setup), context) >= 0

    def change(self, kind: ChangeKind, setup: LlamaConfig) -> Change | None:
        """Return the change to this setup; None if llama.cpp refuses it."""
        placement, context = self.placement(setup), self.context(setup)
        if context is None:
            return None
        assert setup.n_ctx is not None
        memories = placement.planned(context) if kind in ("n_cpu_moe", "n_gpu_layers") else ()
        return Change(
            kind=kind,
            setup=setup,
            needed_bytes=(placement.weight_bytes or 0) + placement.context_bytes(context),
            left_bytes=self.left_bytes(placement, context),
            planned_n_ctx=None,
            host_bytes=memories[-1].needed_bytes if memories else None,
        )

    def with_longest(self, change: Change) -> Change:
        """Return the change, adding the longest context that fits with it."""
        setup = change.setup
        assert setup is not None and setup.n_ctx is not None
        placement, context = self.placement(setup), self.context(setup)
        assert context is not None
        usable, ceiling = self.budget.usable_bytes, planning_ceiling(self.file, setup.n_ctx)
        longest = longest_n_ctx(
            placement, usable, lambda n: self.context(replace(setup, n_ctx=n)), context, ceiling
        )
        return replace(change, planned_n_ctx=longest or None)


def _of_context(setup: LlamaConfig, row: PlanRow) -> Iterator[tuple[ChangeKind, LlamaConfig]]:
    """Yield a smaller cache and a shorter context."""
    flash_attn = "on" if setup.flash_attn == "off" else setup.flash_attn
    yield "KV q8_0", replace(setup, type_k="q8_0", type_v="q8_0", flash_attn=flash_attn)
    if row.planned_n_ctx:
        yield "n_ctx", replace(setup, n_ctx=row.planned_n_ctx)


def _of_placement(sizes: _Sizes) -> Iterator[tuple[ChangeKind, LlamaConfig]]:
    """Yield, for a GPU, the fewest experts or whole layers to move to main memory."""
    if not sizes.budget.on_gpu:
        return
    setup, n_layer = sizes.setup, sizes.file.n_layer
    if sizes.file.n_expert and not setup.cpu_moe and setup.n_cpu_moe < n_layer:
        yield (
            "n_cpu_moe",
            _least(sizes, range(setup.n_cpu_moe + 1, n_layer + 1), lambda n: replace(setup, n_cpu_moe=n)),
        )
    n_offloaded = sizes.placement(setup).n_gpu_layers
    if n_offloaded:
        yield (
            "n_gpu_layers",
            _least(sizes, range(n_offloaded - 1, -1, -1), lambda n: replace(setup, n_gpu_layers=n)),
        )


def _least(sizes: _Sizes, numbers: Sequence[int], changed: Callable[[int], LlamaConfig]) -> LlamaConfig:
    """Return the first setup with which the same context fits, or the last; each saves more than the one before."""
    # Compute buffers hardly depend on the number, so one of them finds it, and each neighbour is sized to be sure.
    alike = sizes.context(changed(numbers[len(numbers) // 2]))
    if alike is None:
        return changed(numbers[-1])

    def fits_alike(number: int) -> bool:
        return sizes.left_bytes(sizes.placement(changed(number)), alike) >= 0

    found = min(bisect_left(numbers, True, key=fits_alike), len(numbers) - 1)
    while found and sizes.fits(changed(numbers[found - 1])):
        found -= 1
    while found < len(numbers) - 1 and not sizes.fits(changed(numbers[found])):
        found += 1
    return changed(numbers[found])


def _in_order(changes: Iterable[Change], row: PlanRow) -> tuple[Change, ...]:
    """Sort sufficient changes first, by cost, then the others by missing memory."""

    def cost(change: Change) -> int:
        is_drastic = change.kind == "n_ctx" and (row.planned_n_ctx or 0) < (row.n_ctx or 0) / 2
        return len(_COSTS) if is_drastic else _COSTS.index(change.kind)

    return tuple(
        sorted(changes, key=lambda each: (not each.fits, 0 if each.fits else -each.left_bytes, cost(each)))
    )


class SetupSize(msgspec.Struct, frozen=True):
    """The size of a setup before it is loaded."""

    obstacle: str = ""
    """Why it cannot be tried; empty if it fits, as far as is known."""
    context: DryContext | None = None
    """Memory that it needs; None if llama.cpp does not size it."""


class SetupSizes(msgspec.Struct, frozen=True):
    """Sizes setups of one file in the memory that is free.

    Linux overcommits, so a real context would not fail even if it does not fit.
    """

    sizes: _Sizes | None = None
    """None if llama.cpp does not load the model dry, as the real load will report why."""
    place: str = ""
    """The memory that is free."""
    n_devices: int = 0
    """Number of devices with layers, over all machines; 0 for main memory alone, or if unknown."""

    def of(self, setup: LlamaConfig) -> SetupSize:
        if self.sizes is None:
            return SetupSize()
        assert setup.n_ctx is not None
        try:
            context = self.sizes.allocator.context(setup.n_ctx, setup)
        except EngineEnded as end:
            return SetupSize(f"llama.cpp refuses it: {end.ending.reason}")
        placement = self.sizes.placement(setup)
        if placement.weight_bytes is None or (left := self.sizes.left_bytes(placement, context)) >= 0:
            return SetupSize(context=context)
        usable = self.sizes.budget.usable_bytes
        needed, free = format_bytes(usable - left), f"{format_bytes(usable)} are free for it"
        return SetupSize(f"needs {needed} of {self.place}, but {free}", context)

    def placements(self) -> tuple[LlamaConfig, ...]:
        """Return the setups that keep just enough of the model out of GPU memory for the context to fit, best first."""
        if self.sizes is None:
            return ()
        found = [setup for _, setup in _of_placement(self.sizes)]
        return tuple(setup for setup in found if not self.of(setup).obstacle)


@contextlib.contextmanager
def setup_sizes(launch: Callable[[], Engine], file: ModelFile, setup: LlamaConfig) -> Iterator[SetupSizes]:
    """Yield the sizes of setups like this one, which has n_ctx and threads, by a dry worker.

    Raises DoesNotFit if no memory is free at all.
    """
    servers, gpus = (
        servers_budget(setup, None),
        list_gpus(),
    )  # read before the dry worker uses some of their memory
    devices = () if servers is None else servers.devices
    with DryAllocator(launch(), setup, devices) as dry:
        try:
            dry.load(file, file.paths[0])
            least = dry.context(KV_CELLS)
        except EngineEnded:
            yield SetupSizes()
            return
        found = search_budget(dry, least, gpus, setup, None, servers)
        budget, n_devices = found.planned, 0
        if found.on_gpu:  # a real allocation there needs no reserve for the driver
            budget = replace(budget, reserve_bytes=budget.memory_bytes - found.held_bytes)
            n_devices = len(devices) or len(gpus)
        yield SetupSizes(_Sizes(file, setup, budget, dry), found.place, n_devices)
