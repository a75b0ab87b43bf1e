"""Find what would help if a quant does not fit: single changes to the load, sized by the dry allocator like the plan.

Each is the smallest change of its kind that is enough or, if none is, the one that saves most. Changes that save
nothing are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.sizing.fit import Fit, Fitter
from ggbench.sizing.plan_record import Change, ChangeKind, PlanRow

_COSTS: tuple[ChangeKind, ...] = get_args(ChangeKind)


def what_helps(fitter: Fitter, missed: Fit, longest: int) -> tuple[Change, ...]:
    """Return changes to the load of a quant that does not fit, the best first; `longest` is its longest context.

    The longest context is searched only for changes that are enough, or for all if none is, since that takes a while.
    Raises EngineEnded if the worker ends, but not if llama.cpp refuses a change.
    """
    found = []
    for kind, setup in (*_of_context(missed.setup, longest), *placements(fitter, missed.setup)):
        fit = fitter.sized(setup)
        if fit and fit.needed_bytes < missed.needed_bytes and fit.left_bytes > missed.left_bytes:
            found.append((kind, fit))
    has_enough = any(fit.is_enough for _, fit in found)
    changes = [_change(kind, fit, fitter, searches=fit.is_enough or not has_enough) for kind, fit in found]
    return _in_order(changes, longest < missed.context.n_ctx / 2)


def _change(kind: ChangeKind, fit: Fit, fitter: Fitter, *, searches: bool) -> Change:
    memories = fit.devices if kind in ("n_cpu_moe", "n_gpu_layers") else ()
    return Change(
        kind=kind,
        setup=fit.setup,
        needed_bytes=fit.needed_bytes,
        left_bytes=fit.left_bytes,
        planned_n_ctx=(fitter.longest(fit) or None) if searches else None,
        host_bytes=memories[-1].needed_bytes if memories else None,
    )


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
    is_drastic = (row.planned_n_ctx or 0) < (row.n_ctx or 0) / 2
    return replace(row, changes=_in_order([*row.changes, change], is_drastic))


def _of_context(setup: LlamaConfig, longest: int) -> Iterator[tuple[ChangeKind, LlamaConfig]]:
    """Yield a smaller cache and a shorter context."""
    flash_attn = "on" if setup.flash_attn == "off" else setup.flash_attn
    yield "KV q8_0", replace(setup, type_k="q8_0", type_v="q8_0", flash_attn=flash_attn)
    if longest:
        yield "n_ctx", replace(setup, n_ctx=longest)


def placements(fitter: Fitter, setup: LlamaConfig) -> Iterator[tuple[ChangeKind, LlamaConfig]]:
    """Yield, for a GPU, the setups with the fewest experts or whole layers in main memory that are enough, else with
    the most.
    """
    if not fitter.budget.on_gpu or fitter.budget.is_unified:
        return
    n_layer = fitter.file.n_layer
    if fitter.file.n_expert and not setup.cpu_moe and setup.n_cpu_moe < n_layer:
        counts = range(setup.n_cpu_moe + 1, n_layer + 1)
        yield "n_cpu_moe", _least(fitter, counts, lambda n: replace(setup, n_cpu_moe=n))
    n_offloaded = fitter.placement(setup).n_gpu_layers
    if n_offloaded:
        counts = range(n_offloaded - 1, -1, -1)
        yield "n_gpu_layers", _least(fitter, counts, lambda n: replace(setup, n_gpu_layers=n))


def _least(fitter: Fitter, numbers: Sequence[int], changed: Callable[[int], LlamaConfig]) -> LlamaConfig:
    """Return the first setup with which the same context fits, or the last; each saves more than the one before."""
    # Compute buffers hardly depend on the number, so one of them finds it, and each neighbour is sized to be sure.
    alike = fitter.sized(changed(numbers[len(numbers) // 2]))
    if alike is None:
        return changed(numbers[-1])

    def fits_alike(number: int) -> bool:
        return replace(alike, placement=fitter.placement(changed(number))).is_enough

    def fits(number: int) -> bool:
        found = fitter.sized(changed(number))
        return found is not None and found.is_enough

    found = min(bisect_left(numbers, True, key=fits_alike), len(numbers) - 1)
    while found and fits(numbers[found - 1]):
        found -= 1
    while found < len(numbers) - 1 and not fits(numbers[found]):
        found += 1
    return changed(numbers[found])


def _in_order(changes: Sequence[Change], is_drastic: bool) -> tuple[Change, ...]:
    """Sort sufficient changes first, by cost, then the others by missing memory; a drastic cut of the context last."""

    def cost(change: Change) -> int:
        return len(_COSTS) if change.kind == "n_ctx" and is_drastic else _COSTS.index(change.kind)

    return tuple(
        sorted(changes, key=lambda each: (not each.fits, 0 if each.fits else -each.left_bytes, cost(each)))
    )
