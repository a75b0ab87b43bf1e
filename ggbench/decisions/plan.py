"""Plan a model: what each quant needs, how fast it is expected to be, and what would help if none fits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ggbench.errors import StoreError
from ggbench.expect.loss import added
from ggbench.models.targets import Target
from ggbench.runs.store.database import Store
from ggbench.runs.store.health import has_runs
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import Budget, Change, PlanRow
from ggbench.sizing.what_helps import with_other_quants

if TYPE_CHECKING:
    from ggbench.expect.machine_runs import MachineRuns
    from ggbench.expect.measured_losses import MeasuredLosses
    from ggbench.gguf_file.model_file import ModelFile


class ModelPlan(msgspec.Struct, frozen=True):
    """A plan of the requested quants."""

    rows: tuple[PlanRow, ...]
    alternative: PlanRow | None
    """A smaller quant that was not requested, if no row fits."""
    sources: dict[str, str]


def _estimated(targets: Sequence[Target], rows: Sequence[PlanRow], request: PlanRequest) -> list[PlanRow]:
    """Return the rows with expected speeds and known losses."""
    from ggbench.expect.machine_runs import MachineRuns
    from ggbench.expect.measured_losses import measured_losses  # slow to import
    from ggbench.expect.speed import expected_curves, expected_speed, with_speeds

    budget, n_seqs, found = request.budget, request.setup.n_seq_max, []
    headers = {target.file.header_sha256 for target in targets if target.file is not None}
    with contextlib.ExitStack() as opened:
        store = None
        if has_runs():  # opening creates the file
            with contextlib.suppress(StoreError):
                store = opened.enter_context(Store.open())
        runs, losses = MachineRuns(store, budget), measured_losses(store, headers)
        for target, row in zip(targets, rows, strict=True):
            file, setup = target.file, row.setup or request.setup
            if file is not None:
                row = with_speeds(row, expected_curves(file, setup, budget, runs))
                if n_seqs > 1 and row.n_ctx is not None:
                    together = expected_speed(file, setup, budget, runs, row.n_ctx // n_seqs, n_seqs)
                    row = replace(row, expected_together=together)
                row = replace(row, changes=_timed(row.changes, file, budget, runs))
            found.append(_with_loss(row, target, losses))
    return found


def _timed(changes: Sequence[Change], file: ModelFile, budget: Budget, runs: MachineRuns) -> tuple[Change, ...]:
    """Return the changes of a setup with the speeds that it would have."""
    from ggbench.expect.speed import expected_speed

    found = []
    for change in changes:
        setup = change.setup
        if setup is not None and setup.n_ctx is not None:
            n = setup.n_ctx // setup.n_streams
            change = replace(change, expected=expected_speed(file, setup, budget, runs, n))
        found.append(change)
    return tuple(found)


def _with_loss(row: PlanRow, target: Target, losses: MeasuredLosses) -> PlanRow:
    """Return a row with the loss of its weights and its cache, if both are known."""
    if target.file is None:
        return row
    *apart, both = losses.parts(target.file.header_sha256, row, target.file.architecture)
    return replace(row, loss=both or added(*apart))


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
    rows = _estimated(targets, list(plan(targets, request, allocator)), request)
    alternative = None
    if not any(row.fits for row in rows):
        # the largest file of another quant that fits if its context is as large as theirs
        most_bytes = max(((row.file_bytes or 0) + min(row.left_bytes or 0, 0) for row in rows), default=0)
        others = smaller(most_bytes)
        found = zip(others, plan(others, request, allocator), strict=False)
        fitting = next((([target], [row]) for target, row in found if row.fits), None)
        alternative = None if fitting is None else _estimated(*fitting, request)[0]
    rows = with_other_quants(rows, [] if alternative is None else [alternative])
    return ModelPlan(tuple(rows), alternative, _sources(rows, request.budget, allocator))


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
