"""Find the candidates of a pick: plan every quant of every model with every KV cache, then add speeds and losses.

Of unlike GPUs the fastest are also planned alone. A cache that does not fit on the GPUs is also planned with the least
of the model in main memory, and on the CPU alone an f16 cache without flash attention, which is faster there at depth.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.checks import check
from ggbench.decisions.pick.models import PickedModel
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import concessions
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.turn import known_turn, longest_fast_enough
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile, BindingFailed, GgbenchError
from ggbench.expect.loss import UNQUANTIZED
from ggbench.expect.machine_runs import MachineRuns
from ggbench.expect.measured_losses import MeasuredLosses, measured_losses
from ggbench.expect.speed import expected_curves, speed_at
from ggbench.models.targets import Target
from ggbench.runs.run import LargestContext
from ggbench.runs.store.database import Store
from ggbench.sizing.budget import with_main_memory
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import Planners, PlanRequest, with_cache
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, KvCacheTypes, PlanRow
from ggbench.stats.speed_curve import SpeedCurve
from ggbench.text import sanitize

CACHE_TYPES = ("f16", "q8_0", "q4_0")
"""Cache types to try for both K and V of each quant."""
_ALIKE = ("memory_limit_bytes", "n_seq_max", "n_streams")
"""What a search for the largest context and a plan must have alike, beside what decides their speeds."""
_SAME_MEMORY = 0.9
"""Share of the memory planned for that a search for the largest context must have had to be shown as this machine's."""


class PickRequest(msgspec.Struct, frozen=True):
    """What the model is needed for."""

    needs: Needs
    budget: Budget
    setup: LlamaConfig
    """Setup to run with; its n_ctx and cache types are ignored."""
    caches: tuple[KvCacheTypes, ...]
    options: tuple[tuple[str, str], ...] = ()
    """Other command-line options, for the command that reproduces a row."""


def caches_of(
    types: Sequence[tuple[str, str]], setup: LlamaConfig, *, on_gpu: bool
) -> tuple[KvCacheTypes, ...]:
    """Return the caches to try; without flash attention, only unquantized V. Raises UsageError for none."""
    found = [KvCacheTypes(type_k, type_v, setup.flash_attn) for type_k, type_v in types]
    usable = [each for each in found if setup.flash_attn != "off" or each.type_v in UNQUANTIZED]
    if found and not usable:
        with_cache(setup, found[0]).check()
    if not on_gpu and setup.flash_attn == "auto":
        usable += [
            replace(each, flash_attn="off")
            for each in usable
            if UNQUANTIZED.issuperset((each.type_k, each.type_v))
        ]
    return tuple(usable)


def variant_of(candidate: Candidate, models: Sequence[PickedModel]) -> Target:
    """Return the variant that a candidate is of; the models have it."""
    variants = (each for model in models if model.key == candidate.model_key for each in model.variants)
    wanted = candidate.row.model, candidate.row.quant, candidate.selector
    return next(each for each in variants if (each.model, each.quant, each.selector) == wanted)


_SPARE = 0.8
"""Training context as a share of the longest that fits by a line, below which the line is exact enough."""


class Finder:
    """Data shared by all candidates."""

    def __init__(self, request: PickRequest, planners: Planners, store: Store | None) -> None:
        self._request, self._planners, self._store = request, planners, store
        self.errors: list[GgbenchError] = []
        """Why variants cannot be planned."""
        self.runs = MachineRuns(store, request.budget, only_steady=True)

    def of_model(self, model: PickedModel) -> Generator[tuple[Candidate, ...], None, list[Candidate]]:
        """Yield the candidates of each quant as soon as they are sized; return all, by cache and quant."""
        headers = {variant.file.header_sha256 for variant in model.variants if variant.file is not None}
        found, losses = list[Candidate](), measured_losses(self._store, headers)
        for variant in model.variants:
            rows = self._rows(variant, self._needed(variant), self._request.caches, by_line=True)
            candidates = tuple(self._candidate(model, variant, row, losses) for row in rows)
            yield candidates
            found += candidates
        caches = list(dict.fromkeys(map(_cache_of, found)))
        return sorted(found, key=lambda each: caches.index(_cache_of(each)))

    def exactly(self, best: Pick, models: Sequence[PickedModel]) -> Pick:
        """Return a pick whose listed candidates that fit have the longest context of `plan`, and whose nearest miss
        has that and what would make it fit.
        """
        sized = dict[tuple[str, ...], Checked]()
        for each in best.listed:
            own = each.candidate
            if each.checked is best.nearest_miss or _is_worth_searching(own.row):
                exact = self._exact(own, variant_of(own, models))
                sized[own.name] = check(exact, self._request.needs)
        best = replace(best.with_sized(sized), main_memory=self._request.budget.host)
        changes = () if best.nearest_miss is None else best.nearest_miss.candidate.row.changes
        return replace(best, changes=changes)

    def _needed(self, variant: Target) -> LlamaConfig:
        """Return the setup with the needed context; llama-server gives each slot at most the training context."""
        n_ctx, trained = self._request.needs.n_ctx, None if variant.file is None else variant.file.n_ctx_train
        if trained:
            n_ctx = min(n_ctx, self._request.needs.n_slots * trained)
        return replace(self._request.setup, n_ctx=n_ctx)

    def _rows(
        self, variant: Target, setup: LlamaConfig, caches: Sequence[KvCacheTypes] = (), *, by_line: bool = False
    ) -> list[PlanRow]:
        file = variant.file
        try:
            if file is not None and file.paths and file.truncation:
                raise BadFile(f"{sanitize(file.name)} is truncated: {file.truncation}", "download it again")
            return list(self._planners.rows(variant, setup, caches, by_line=by_line))
        except BindingFailed:
            raise
        except GgbenchError as error:
            self.errors.append(error)
            failed = PlanRow(variant.model, variant.quant, variant.provenance, setup=setup)
            return [replace(failed, outcome=Outcome.FAILED, reason=error.message)]

    def _candidate(
        self, model: PickedModel, variant: Target, row: PlanRow, losses: MeasuredLosses
    ) -> Candidate:
        setup, file, needs = row.setup or self._needed(variant), variant.file, self._request.needs
        found = Candidate(
            row=row,
            model_key=model.key,
            superseded_by=model.superseded_by,
            selector=variant.selector,
            n_ctx=setup.n_ctx or 0,
            max_n_ctx=None,
            offered_n_ctx=None,
            to_run=variant.to_run,
            setup=setup,
        )
        if file is None or row.outcome is not Outcome.COMPLETED:
            return found
        curves = expected_curves(self._planners.placement(variant, setup), self.runs, needs.n_slots)
        weights_loss, cache_loss, joint_loss = losses.parts(file.header_sha256, row, file.architecture)
        found = self._at_its_end(self._with_longest(found, variant), variant, curves)
        return replace(
            found,
            row=replace(found.row, expected=speed_at(curves, found.row.n_ctx_slot or found.n_ctx)),
            speed=known_turn(curves, needs.workload, found.n_ctx // needs.n_slots),
            weights_loss=weights_loss,
            cache_loss=cache_loss,
            joint_loss=joint_loss,
            is_mixture=file.n_expert > 0,
            host_bytes=_host_bytes(found.row),
        )

    def _with_longest(self, found: Candidate, variant: Target) -> Candidate:
        """Return a candidate with its longest context, by a run that searched it or as planned."""
        row, (probed_by, longest) = found.row, self._probe(variant, found.setup)
        if longest is None and self._is_at_its_end and _is_worth_searching(row):
            row = self._rows(variant, found.setup)[0]
        if longest is None:
            longest = row.planned_n_ctx or (0 if row.fits is False else None)
        offered = None if longest is None else row.used_of(longest)
        return replace(found, row=row, max_n_ctx=longest, offered_n_ctx=offered, probed_by=probed_by)

    def _at_its_end(self, found: Candidate, variant: Target, curves: Sequence[SpeedCurve]) -> Candidate:
        """Return a candidate planned for the longest context with an answer that is fast enough."""
        row, needs, offered = found.row, self._request.needs, found.offered_n_ctx
        if not self._is_at_its_end or offered is None:
            return found
        if curves and needs.tok_s is not None:
            each = longest_fast_enough(curves, needs.workload, offered // needs.n_slots, needs.tok_s)
            offered = needs.n_slots * each
        setup = replace(found.setup, n_ctx=max(found.n_ctx, offered))
        if row.fits and setup.n_ctx != row.n_ctx:
            row = self._rows(variant, setup, by_line=True)[0]
        return replace(found, row=row, setup=setup, n_ctx=setup.n_ctx, offered_n_ctx=offered)

    @property
    def _is_at_its_end(self) -> bool:
        """Whether the workload has no depth: an answer then follows the longest context that is fast enough."""
        return self._request.needs.workload.n_depth is None

    def _exact(self, own: Candidate, variant: Target) -> Candidate:
        """Return a candidate with its longest context searched, and if it does not fit with what would help."""
        row = self._rows(variant, own.setup)[0]
        row = replace(row, expected=own.row.expected)
        longest = row.planned_n_ctx
        if not longest or own.probed_by is not None or self._is_at_its_end:
            return replace(own, row=row)
        return replace(own, row=row, max_n_ctx=longest, offered_n_ctx=row.used_of(longest))

    def _probe(self, variant: Target, setup: LlamaConfig) -> tuple[int | None, int | None]:
        """Return the newest run that searched this file with this setup, and the n_ctx it found; nothing without one.

        Its memory must be the same: limited alike, at most what is planned for and at least nine tenths of it, and no
        draft took or takes any of it.
        """
        file, usable = variant.file, self._request.budget.used_by(setup).usable_bytes
        if file is None or self._request.budget.draft is not None or setup.mtp:
            return None, None
        wanted = self.runs.decisive(setup, file.n_layer)
        for run in self.runs.of(file):
            found, ran, subject = run.result, run.head.setup, run.subject
            if not isinstance(found, LargestContext) or run.memory.draft_buffers:
                continue
            is_alike = subject.header_sha256 == file.header_sha256
            is_alike &= self.runs.decisive(ran, subject.n_layer) == wanted
            is_alike &= all(getattr(ran, name) == getattr(setup, name) for name in _ALIKE)
            if is_alike and found.max_n_ctx and _SAME_MEMORY * usable <= (found.budget_bytes or 0) <= usable:
                return run.run_id, found.max_n_ctx
        return None, None


def _is_worth_searching(row: PlanRow) -> bool:
    """Return whether the longest context of a row that fits matters more exactly than a line has it: slots use it."""
    longest = row.planned_n_ctx or 0
    return row.fits is True and row.used_of(longest) >= _SPARE * longest > 0


def _host_bytes(row: PlanRow) -> int | None:
    """Return the main memory that a part takes beside a GPU; None if all that could be on the GPU is there."""
    taken = (each.needed_bytes for each in row.devices if row.is_split and each.device == HOST_DEVICE)
    return next(taken, None)


def decide(
    models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Generator[tuple[Candidate, ...], None, Pick]:
    """Yield the candidates of each quant as soon as they are sized; return the pick.

    A quant that cannot be planned becomes a candidate with the reason; if none can, the first error is raised. Results
    come from the store, if there is one.
    """
    request = replace(request, budget=with_main_memory(request.budget))
    asked = PlanRequest(request.budget, request.setup, request.options)
    with Planners(allocator, asked) as planners:
        finder, found = Finder(request, planners, store), list[Candidate]()
        for model in models:
            found += yield from finder.of_model(model)
        if finder.errors and all(each.row.outcome is not Outcome.COMPLETED for each in found):
            raise finder.errors[0]
        return finder.exactly(recommend(found, request.needs, is_here=request.budget.is_here), models)


def _cache_of(candidate: Candidate) -> tuple[str, ...]:
    return *candidate.cache, candidate.setup.flash_attn


def next_to_measure(pick: Pick, tried: Collection[tuple[str, ...]]) -> Candidate | None:
    """Return the next candidate whose speed matters but is neither measured nor forecast; None if all are known.

    The recommendation and its alternatives matter; without one, so do those that may meet the needs, and those that
    miss nothing but a speed that their estimate's interval includes, and the nearest miss if it is estimated.
    """
    matter = [each.checked for each in pick.alternatives]
    if pick.recommended is not None:
        matter.insert(0, pick.recommended)
    else:
        matter = [*matter, *_close_misses(pick)] if pick.misses_speed_alone else []
    left = (each.candidate for each in matter if each.candidate.name not in tried)
    return next((each for each in left if each.speed is None or not each.speed.tok_s.is_timed), None)


def _close_misses(pick: Pick) -> list[Checked]:
    """Return those that miss only a speed which they may have, those that ask least of their user first."""
    missing = [each for each in pick.checked if [miss.need for miss in each.missed] == ["speed"]]
    close = [each for each in missing if each.missed[0].is_close or each is pick.nearest_miss]
    return sorted(
        close, key=lambda each: (concessions(each.candidate, pick.needs), each.missed[0].short_by or 0.0)
    )
