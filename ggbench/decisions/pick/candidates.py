"""Find the candidates of a pick: plan every quant of every model with every KV cache, then add speeds and losses.

Of unlike GPUs the fastest are also planned alone. A cache that does not fit on the GPUs is also planned with the least
of the model in main memory.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.models import PickedModel
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BindingFailed, GgbenchError
from ggbench.expect.drafts import DraftStep, best_step, draft_steps
from ggbench.expect.loss import UNQUANTIZED
from ggbench.expect.machine_runs import MachineRuns
from ggbench.expect.measured_losses import MeasuredLosses, measured_losses
from ggbench.expect.session_cache import cached_tokens
from ggbench.expect.speed import expected_curves, expected_speed, speed_at
from ggbench.models.targets import Target
from ggbench.record import Record
from ggbench.runs.run import LargestContext
from ggbench.runs.store.database import Store
from ggbench.sizing.drafts import has_mtp
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan import Planners
from ggbench.sizing.plan_record import Budget, PlanRow

Steps = Generator[tuple[Candidate, ...], None, list[Candidate]]
"""Yields the candidates of each quant as soon as they are sized; returns all."""
CACHE_TYPES = ("f16", "q8_0", "q4_0")
"""Cache types to try for both K and V of each quant."""
_ALIKE = ("memory_limit_bytes", "n_seq_max", "n_streams")
"""What a search for the largest context and a plan must have alike, beside what decides their speeds."""
_SAME_MEMORY = 0.9
"""Share of the memory planned for that a search for the largest context must have had to be shown as this machine's."""


class PickRequest(Record):
    """What the model is needed for."""

    needs: Needs
    budget: Budget
    setup: LlamaConfig
    """Setup to run with; its n_ctx and cache types are ignored."""
    caches: tuple[tuple[str, str], ...]
    """Types of K and V of each KV cache to try."""
    options: tuple[tuple[str, str], ...] = ()
    """Other command-line options, for the command that reproduces a row."""


def caches_of(types: Sequence[tuple[str, str]], setup: LlamaConfig) -> tuple[tuple[str, str], ...]:
    """Return the caches to try; without flash attention, only unquantized V. Raises UsageError for none."""
    usable = tuple(each for each in types if setup.flash_attn != "off" or each[1] in UNQUANTIZED)
    if types and not usable:
        replace(setup, type_k=types[0][0], type_v=types[0][1]).check()
    return usable


class Finder:
    """Data shared by all candidates."""

    def __init__(self, request: PickRequest, planners: Planners, store: Store | None) -> None:
        self.request, self._planners, self._store = request, planners, store
        self.errors: list[GgbenchError] = []
        """Why variants cannot be planned."""
        self._runs = MachineRuns(store, request.budget, only_steady=True)
        self._variants: dict[tuple[str, ...], Target] = {}
        """The variants by the names of their candidates."""

    @property
    def most_bytes(self) -> int:
        """What weights may take of all memory."""
        budget = self.request.budget
        if budget.host is None or not budget.on_gpu or budget.is_unified:
            return budget.usable_bytes
        return budget.usable_bytes + budget.host.usable_bytes

    def of_models(self, models: Iterable[PickedModel]) -> Steps:
        found = list[Candidate]()
        for model in models:
            headers = {variant.file.header_sha256 for variant in model.variants if variant.file is not None}
            losses = measured_losses(self._store, headers)
            for variant in model.variants:
                needed = replace(self.request.setup, n_ctx=self.request.needs.n_ctx)
                rows = self._rows(variant, needed, self.request.caches)
                candidates = tuple(self._candidate(model, variant, row, losses) for row in rows)
                self._variants |= {each.name: variant for each in candidates}
                yield candidates
                found += candidates
        return found

    def likely_tok_s(self, variant: Target) -> float:
        """Return the expected speed of a file before it is sized, as if only its weights took memory; infinite if it is
        unknown, 0 if it does not fit.
        """
        file, budget, setup = variant.header(), self.request.budget, self.request.setup
        over = file.file_bytes - budget.usable_bytes
        if file.file_bytes > self.most_bytes:
            return 0.0
        if over > 0:
            n_out = math.ceil(file.n_layer * over / file.file_bytes)
            kept = {"n_cpu_moe": n_out} if file.n_expert else {"n_gpu_layers": max(0, file.n_layer - n_out)}
            setup = replace(setup, **kept)
        speed = expected_speed(Placement.of(file, setup, budget), self._runs, self.request.needs.n_ctx_slot)
        return math.inf if speed is None else speed.value

    def exactly(self, own: Candidate) -> Candidate:
        """Return a candidate with its longest context searched, and if it does not fit with what would help."""
        row = self._rows(self._variants[own.name], own.setup)[0]
        row = replace(row, expected=own.row.expected)
        if not row.planned_n_ctx or own.probed_by is not None:
            return replace(own, row=row)
        return replace(own, row=row, max_n_ctx=row.used_of(row.planned_n_ctx))

    def drafting(self, own: Candidate) -> tuple[DraftStep, int] | None:
        """Return the best step with a candidate's MTP layers, and the bytes that they take.

        None if they do not certainly pay for one user, or have no room, or something drafts already.
        """
        variant, setup = self._variants[own.name], own.setup
        file, budget = variant.header(), self.request.budget
        is_alone = setup.n_seq_max == 1 and not setup.mtp and budget.draft is None
        if not is_alone or not has_mtp(file):
            return None
        steps = draft_steps(self._planners.placement(variant, setup), None, own.n_ctx, is_here=budget.is_here)
        step = best_step(steps) if steps else None
        if step is None or not step.pays:
            return None
        fitter = self._planners.fitter(variant)
        plain, fit = fitter.fit(setup), fitter.fit(replace(setup, mtp=True, spec_draft_n_max=step.k))
        return (step, fit.needed_bytes - plain.needed_bytes) if fit.is_enough else None

    def _rows(
        self,
        variant: Target,
        setup: LlamaConfig,
        caches: Sequence[tuple[str, str]] = (),
    ) -> list[PlanRow]:
        try:
            return list(self._planners.rows(variant, setup, caches))
        except BindingFailed:
            raise
        except GgbenchError as error:
            self.errors.append(error)
            failed = PlanRow(variant.model, variant.quant, variant.provenance, setup=setup)
            return [replace(failed, outcome=Outcome.FAILED, reason=error.message)]

    def _candidate(
        self, model: PickedModel, variant: Target, row: PlanRow, losses: MeasuredLosses
    ) -> Candidate:
        from ggbench.expect.session_time import session_time  # imports numpy

        file, needs = variant.file, self.request.needs
        found = Candidate(
            row=row,
            model_key=model.key,
            superseded_by=model.superseded_by,
            score=model.score,
            score_source=model.score_source,
            selector=variant.selector,
            to_run=variant.to_run,
        )
        if file is None or row.outcome is not Outcome.COMPLETED:
            return found
        curves = expected_curves(self._planners.placement(variant, found.setup), self._runs, needs.n_slots)
        weights_loss, cache_loss, joint_loss = losses.parts(file.header_sha256, row, file.architecture)
        found = self._with_longest(found, variant)
        return replace(
            found,
            row=replace(found.row, expected=speed_at(curves, found.row.n_ctx_slot or found.n_ctx)),
            speed=session_time(curves, needs.session, cached_tokens(needs.session, file, found.setup)),
            weights_loss=weights_loss,
            cache_loss=cache_loss,
            joint_loss=joint_loss,
            is_mixture=file.n_expert > 0,
            host_bytes=row.devices[-1].needed_bytes if row.is_split and len(row.devices) > 1 else None,
        )

    def _with_longest(self, found: Candidate, variant: Target) -> Candidate:
        """Return a candidate with its longest context, by a run that searched it or as planned."""
        probed_by, longest = self._probe(variant, found.setup)
        if longest is None:
            longest = found.row.planned_n_ctx or (0 if found.row.fits is False else None)
        n_ctx = None if longest is None else found.row.used_of(longest)
        return replace(found, max_n_ctx=n_ctx, probed_by=probed_by)

    def _probe(self, variant: Target, setup: LlamaConfig) -> tuple[int | None, int | None]:
        """Return the newest run that searched this file with this setup, and the n_ctx it found; nothing without one.

        Its memory must be the same: limited alike, at most what is planned for and at least nine tenths of it, and no
        draft took or takes any of it.
        """
        file, usable = variant.file, self.request.budget.used_by(setup).usable_bytes
        if file is None or self.request.budget.draft is not None or setup.mtp:
            return None, None
        wanted = self._runs.decisive(setup, file.n_layer)
        for run in self._runs.of(file):
            found, ran, subject = run.result, run.head.setup, run.subject
            if not isinstance(found, LargestContext) or run.memory.draft_buffers:
                continue
            is_alike = subject.header_sha256 == file.header_sha256
            is_alike &= self._runs.decisive(ran, subject.n_layer) == wanted
            is_alike &= all(getattr(ran, name) == getattr(setup, name) for name in _ALIKE)
            if is_alike and found.max_n_ctx and _SAME_MEMORY * usable <= (found.budget_bytes or 0) <= usable:
                return run.run_id, found.max_n_ctx
        return None, None
