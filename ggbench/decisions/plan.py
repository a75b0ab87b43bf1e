"""Plan a model: what each quant needs, how fast it is expected to be, and what would help if none fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ggbench.models.targets import Target
from ggbench.runs.store.health import has_runs
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.sizing.what_helps import with_other_quants


class ModelPlan(msgspec.Struct, frozen=True):
    """A plan of the requested quants."""

    rows: tuple[PlanRow, ...]
    alternative: PlanRow | None
    """A smaller quant that was not requested, if no row fits."""
    sources: dict[str, str]


def _rows(targets: Sequence[Target], request: PlanRequest, allocator: DryAllocator) -> Iterator[PlanRow]:
    """Yield a row for each target as soon as it is sized, with its expected speed.

    Raises GgbenchError for a single target that cannot be planned.
    """
    rows = plan(targets, request, allocator)
    budget = request.budget
    if not budget.on_gpu and not (budget.is_here and has_runs()):
        yield from rows
        return
    from ggbench.decisions.known_speeds import (
        KnownSpeeds,
        with_estimate_together,
        with_estimates,
    )  # slow to import

    n_seqs = request.setup.n_seq_max
    with KnownSpeeds.here(request.budget) as known:
        for target, row in zip(targets, rows, strict=True):
            setup = row.setup or request.setup
            row = with_estimates(row, known.of(target.file, setup))
            yield (
                row
                if n_seqs == 1
                else with_estimate_together(row, known.of(target.file, setup, n_seqs), n_seqs)
            )


def plan_model(
    targets: Sequence[Target],
    request: PlanRequest,
    allocator: DryAllocator,
    smaller: Callable[[int], Sequence[Target]],
) -> ModelPlan:
    """Return the rows of all targets, and what would help.

    If no row fits, `smaller` returns other quants whose files take at most a number of bytes. Raises
    GgbenchError for a single target that cannot be planned.
    """
    budget, rows = request.budget, list(_rows(targets, request, allocator))
    alternative = None
    if not any(row.fits for row in rows):
        # the largest file of another quant that fits if its context is as large as theirs
        most_bytes = max(((row.file_bytes or 0) + min(row.left_bytes or 0, 0) for row in rows), default=0)
        found = plan(smaller(most_bytes), request, allocator)
        alternative = next((row for row in found if row.fits), None)
    rows = with_other_quants(rows, [] if alternative is None else [alternative])
    return ModelPlan(tuple(rows), alternative, _sources(rows, budget, allocator))


def _sources(rows: Sequence[PlanRow], budget: Budget, allocator: DryAllocator) -> dict[str, str]:
    weights = "tensor table of the header"
    if any(row.provenance == "catalog" for row in rows):
        weights = (
            "simulated by llama.cpp's quantizer on the catalog's shape; a real file adds a few MB of tokenizer"
        )
    build = "" if allocator.versions is None else f" {allocator.versions.get('llama_cpp', '')}"
    sized = f"simulated by llama.cpp{build}'s allocator, nothing loaded"
    if allocator.compute_devices:
        sized += f"; compute in {', '.join(allocator.compute_devices)}"
    if budget.on_gpu and allocator.compute_devices and not allocator.has_gpu:
        sized += ", in place of the GPU's, as this build has no GPU backend"
    return {"weights": weights, "kv_and_compute": sized}
