"""Plan a model: what each quant needs, how fast it is expected to be, and what would help if none fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.expect.loss import added
from ggbench.models.targets import Target
from ggbench.runs.store.health import open_if_any
from ggbench.show.words import say
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import Planners, PlanRequest
from ggbench.sizing.plan_record import EnginePlan, PlanRow
from ggbench.sizing.what_helps import with_other_quants

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.expect.sessions import Conversation
    from ggbench.gguf_file.model_file import ModelFile
    from ggbench.stats.intervals import Expected
    from ggbench.stats.speed_curve import SessionTime, SpeedCurve


def plan_model(
    targets: Sequence[Target],
    request: PlanRequest,
    allocator: DryAllocator,
    smaller: Callable[[int], Sequence[Target]],
    session: Conversation | None = None,
) -> EnginePlan:
    """Return the rows of all targets, and what would help.

    Each tells how long `session` takes, if there is one.
    If no row fits, `smaller` returns other quants whose files take at most a number of bytes. Raises
    GgbenchError for a single target that cannot be planned, and BadFile for a projector of another model.
    """
    with Planners(allocator, request) as planners:
        rows = _estimated(targets, list(planners.plan(targets)), planners, request, session)
        alternative = None
        if not any(row.fits for row in rows):
            # the largest file of another quant that fits if its context is as large as theirs
            most_bytes = max(((row.file_bytes or 0) + min(row.left_bytes or 0, 0) for row in rows), default=0)
            others = smaller(most_bytes)
            found = zip(others, planners.plan(others), strict=False)
            fitting = next((([target], [row]) for target, row in found if row.fits), None)
            alternative = None if fitting is None else _estimated(*fitting, planners, request, session)[0]
    rows = with_other_quants(rows, [] if alternative is None else [alternative])
    published = targets[0].published if targets else None
    listing = None if published is None else published.listing
    sources = _sources(rows, allocator)
    return EnginePlan(request.budget, tuple(rows), sources, listing, alternative, request.setup.n_ctx)


def _estimated(
    targets: Sequence[Target],
    rows: Sequence[PlanRow],
    planners: Planners,
    request: PlanRequest,
    session: Conversation | None,
) -> list[PlanRow]:
    """Return the rows with expected speeds and known losses."""
    from ggbench.expect.machine_runs import MachineRuns
    from ggbench.expect.measured_losses import measured_losses  # slow to import
    from ggbench.expect.speed import expected_curves, expected_speed, speed_at

    headers = {target.file.header_sha256 for target in targets if target.file is not None}
    with open_if_any() as store:
        runs, losses = MachineRuns(store, request.budget), measured_losses(store, headers)

        def speed(target: Target, setup: LlamaConfig, n_seqs: int = 1) -> Expected | None:
            n = (setup.n_ctx or 0) // (setup.n_streams if n_seqs == 1 else n_seqs)
            return expected_speed(planners.placement(target, setup), runs, n, n_seqs)

        def estimated(target: Target, row: PlanRow) -> PlanRow:
            setup = row.setup
            if target.file is None or setup is None or row.n_ctx is None:
                return row
            *apart, both = losses.parts(target.file.header_sha256, row, target.file.architecture)
            n_seqs, placed = setup.n_seq_max, replace(setup, n_ctx=row.n_ctx)
            n_slot = row.n_ctx // setup.n_streams
            curves = expected_curves(planners.placement(target, placed), runs)
            return replace(
                row,
                expected=speed_at(curves, n_slot),
                session=_session_time(session, curves, target.file, placed, n_slot),
                expected_together=None if n_seqs == 1 else speed(target, placed, n_seqs),
                changes=tuple(
                    each if each.setup is None else replace(each, expected=speed(target, each.setup))
                    for each in row.changes
                ),
                loss=both or added(*apart),
            )

        return list(map(estimated, targets, rows))


def _session_time(
    session: Conversation | None,
    curves: Sequence[SpeedCurve],
    file: ModelFile,
    setup: LlamaConfig,
    n_ctx: int,
) -> SessionTime | None:
    """Return the time of as much of a session as a slot holds; None without one."""
    from ggbench.expect.session_cache import cached_tokens
    from ggbench.expect.session_time import session_time

    if session is None:
        return None
    held = session.within(n_ctx)
    return session_time(curves, held, cached_tokens(held, file, setup))


def _sources(rows: Sequence[PlanRow], allocator: DryAllocator) -> dict[str, str]:
    is_drawn = any(row.provenance == "catalog" for row in rows)
    version = "" if allocator.versions is None else allocator.versions.get("llama_cpp", "")
    return {
        "weights": say("plan.weights_drawn" if is_drawn else "plan.weights_read"),
        "kv_and_compute": say("plan.sized", version=version),
    }
