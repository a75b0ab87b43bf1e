"""Find the candidates of a pick: plan every quant of every model with every KV cache, then add speeds and losses.

A cache that does not fit on the GPUs is also planned with the least of the model in main memory. On the CPU alone an
f16 cache is also planned without flash attention, which is faster there at depth.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import NamedTuple

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
from ggbench.expect.speed import expected_curves, with_speeds
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.targets import Target
from ggbench.runs.run import LargestContext
from ggbench.runs.store.database import Store
from ggbench.sizing.budget import with_main_memory
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import Planners, PlanRequest, with_cache
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, Change, KvCacheTypes, PlanRow
from ggbench.stats.speed_curve import SpeedCurve
from ggbench.text import sanitize

CACHE_TYPES = ("f16", "q8_0", "q4_0")
"""Cache types to try for both K and V of each quant."""
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


class _Sized(NamedTuple):
    row: PlanRow
    n_ctx: int
    """Context to run it with."""
    longest: int | None
    fast_enough: int | None = None
    """The longest context with a fast enough answer, if that matters."""

    @property
    def offered(self) -> int | None:
        if self.fast_enough is not None or self.longest is None:
            return self.fast_enough
        return self.row.used_of(self.longest)


class Finder:
    """Data shared by all candidates."""

    def __init__(self, request: PickRequest, planners: Planners, store: Store | None) -> None:
        self._request, self._planners = request, planners
        self.errors: list[GgbenchError] = []
        """Why variants cannot be planned."""
        self._store = store
        self.runs = MachineRuns(store, request.budget, only_steady=True)

    def of_model(self, model: PickedModel) -> Generator[tuple[Candidate, ...], None, list[Candidate]]:
        """Yield the candidates of each quant as soon as they are sized; return all, by cache and quant."""
        found, losses = list[Candidate](), self.losses_of(model)
        for variant in model.variants:
            candidates = self.of_variant(model, variant, losses)
            yield candidates
            found += candidates
        caches = list(dict.fromkeys(map(_cache_of, found)))
        return sorted(found, key=lambda each: caches.index(_cache_of(each)))

    def exactly(self, best: Pick, models: Sequence[PickedModel]) -> Pick:
        """Return a pick whose listed candidates have their longest context searched, and its nearest miss with what
        would make it fit.
        """
        sized = (self.with_longest(each, variant_of(each.candidate, models)) for _, each in best.listed)
        best = best.with_sized({each.candidate.name: each for each in sized})
        best = replace(best, main_memory=self._request.budget.host)
        if best.nearest_miss is None:
            return best
        own = best.nearest_miss.candidate
        return replace(best, changes=self.what_would_help(own, variant_of(own, models)))

    def of_variant(self, model: PickedModel, variant: Target, losses: MeasuredLosses) -> tuple[Candidate, ...]:
        """Return a quant's candidates, by cache."""
        setup = replace(self._request.setup, n_ctx=self._needed_n_ctx(variant))
        rows = self._rows(variant, setup, self._request.caches)
        return tuple(self._candidate(model, variant, row, losses) for row in rows)

    def losses_of(self, model: PickedModel) -> MeasuredLosses:
        headers = {variant.file.header_sha256 for variant in model.variants if variant.file is not None}
        return measured_losses(self._store, headers)

    def with_longest(self, checked: Checked, variant: Target) -> Checked:
        """Return a candidate with its longest context searched, so that it is the one of `plan`.

        It is not searched if the whole training context fits with room to spare, which is then the answer of both.
        """
        own, needs = checked.candidate, self._request.needs
        if not own.max_n_ctx or own.probed_by is not None or needs.workload.n_depth is None:
            return checked
        if own.row.used_of(own.max_n_ctx) < _SPARE * own.max_n_ctx:
            return checked
        setup = replace(own.setup, n_ctx=own.row.used_of(needs.n_ctx))
        row = self._rows(variant, setup, (KvCacheTypes(*own.cache, own.setup.flash_attn),))[0]
        longest = row.planned_n_ctx
        if row.outcome is not Outcome.COMPLETED or not longest:
            return checked
        row = replace(row, expected=own.row.expected, expected_first=own.row.expected_first)
        return check(replace(own, row=row, max_n_ctx=longest, offered_n_ctx=row.used_of(longest)), needs)

    def what_would_help(self, candidate: Candidate, variant: Target) -> tuple[Change, ...]:
        """Return the single changes that would make a candidate fit, the best first; none if it fits."""
        if candidate.fits is not False or candidate.row.fits:
            return ()
        setup = replace(candidate.setup, n_ctx=candidate.row.used_of(self._request.needs.n_ctx))
        return self._rows(variant, setup, ())[0].changes

    def _needed_n_ctx(self, variant: Target) -> int:
        """Return the needed context, of which llama-server gives each slot no more than the training context."""
        needs, trained = self._request.needs, None if variant.file is None else variant.file.n_ctx_train
        return min(needs.n_ctx, needs.n_slots * trained) if trained else needs.n_ctx

    def _rows(self, variant: Target, setup: LlamaConfig, caches: Sequence[KvCacheTypes]) -> list[PlanRow]:
        file = variant.file
        try:
            if file is not None and file.paths and file.truncation:
                raise BadFile(f"{sanitize(file.name)} is truncated: {file.truncation}", "download it again")
            return list(self._planners.rows(variant, setup, caches))
        except BindingFailed:
            raise
        except GgbenchError as error:
            self.errors.append(error)
            failed = PlanRow(variant.model, variant.quant, variant.provenance)
            return [replace(failed, outcome=Outcome.FAILED, reason=error.message)]

    def _candidate(
        self, model: PickedModel, variant: Target, row: PlanRow, losses: MeasuredLosses
    ) -> Candidate:
        needs, file = self._request.needs, variant.file
        setup = row.setup or self._request.setup
        header, architecture, is_mixture = "", "", False
        if file is not None:
            header, architecture, is_mixture = file.header_sha256, file.architecture, file.n_expert > 0
        probe, curves = self._probe(variant, setup), self._curves(variant, row, setup)
        weights_loss, cache_loss, joint_loss = losses.parts(header, row, architecture)
        sized = _Sized(row, self._needed_n_ctx(variant), row.planned_n_ctx)
        if probe is not None:
            sized = sized._replace(longest=probe[1])
        elif row.fits is False:
            sized = sized._replace(longest=row.planned_n_ctx or 0)
        if needs.workload.n_depth is None:
            sized = self._at_its_end(variant, sized, setup, curves, is_probed=probe is not None)
        return Candidate(
            row=with_speeds(sized.row, curves),
            model_key=model.key,
            superseded_by=model.superseded_by,
            selector=variant.selector,
            n_ctx=sized.n_ctx,
            max_n_ctx=sized.longest,
            offered_n_ctx=sized.offered,
            probed_by=None if probe is None else probe[0],
            speed=known_turn(curves, needs.workload, sized.n_ctx // needs.n_slots),
            weights_loss=weights_loss,
            cache_loss=cache_loss,
            joint_loss=joint_loss,
            to_run=variant.to_run,
            setup=replace(setup, n_ctx=sized.n_ctx),
            is_mixture=is_mixture,
            host_bytes=_host_bytes(file, sized.row, setup),
        )

    def _curves(self, variant: Target, row: PlanRow, setup: LlamaConfig) -> tuple[SpeedCurve, ...]:
        if variant.file is None or row.outcome is not Outcome.COMPLETED:
            return ()
        return expected_curves(self._planners.placement(variant, setup), self.runs, self._request.needs.n_slots)

    def _at_its_end(
        self,
        variant: Target,
        sized: _Sized,
        setup: LlamaConfig,
        curves: Sequence[SpeedCurve],
        *,
        is_probed: bool,
    ) -> _Sized:
        """Return a quant planned for the longest context with an answer that is fast enough."""
        offered = sized.offered
        if curves and offered is not None:
            offered = self._fast_enough(curves, offered)
        sized = sized._replace(n_ctx=max(sized.n_ctx, offered or 0), fast_enough=offered)
        if sized.n_ctx == sized.row.n_ctx or not sized.row.fits:
            return sized
        cache = KvCacheTypes(sized.row.type_k, sized.row.type_v, setup.flash_attn)
        row = self._rows(variant, replace(setup, n_ctx=sized.n_ctx), (cache,))[0]
        if row.fits or not row.planned_n_ctx or is_probed:
            return sized._replace(row=row)
        n_ctx = max(self._needed_n_ctx(variant), row.used_of(row.planned_n_ctx))  # the line was not exact
        at_end = self._rows(variant, replace(setup, n_ctx=n_ctx), (cache,))[0]
        return _Sized(at_end, n_ctx, row.planned_n_ctx, n_ctx)

    def _fast_enough(self, curves: Sequence[SpeedCurve], n_ctx: int) -> int:
        """Return the longest context up to `n_ctx` with an answer that is as fast as needed."""
        needs = self._request.needs
        if needs.tok_s is None:
            return n_ctx
        return needs.n_slots * longest_fast_enough(curves, needs.workload, n_ctx // needs.n_slots, needs.tok_s)

    def _probe(self, variant: Target, setup: LlamaConfig) -> tuple[int, int] | None:
        """Return the newest run that searched this file with this setup, and the n_ctx it found.

        None if its memory was another: limited otherwise, more than is planned for, or over a tenth less; or if a draft
        took or takes some of it.
        """
        if variant.file is None or self._request.budget.draft is not None or setup.mtp:
            return None
        header, usable = variant.file.header_sha256, self._request.budget.used_by(setup).usable_bytes
        wanted = self.runs.decisive(setup, variant.file.n_layer)
        for run in self.runs.of(variant.file):
            found, ran = run.result, run.head.setup
            if (
                run.memory.draft_buffers
                or run.subject.header_sha256 != header
                or self.runs.decisive(ran, run.subject.n_layer) != wanted
            ):
                continue
            if not isinstance(found, LargestContext) or found.max_n_ctx is None or run.run_id is None:
                continue
            is_limited_alike = ran.memory_limit_bytes == setup.memory_limit_bytes
            is_limited_alike &= (ran.n_seq_max, ran.n_streams) == (setup.n_seq_max, setup.n_streams)
            if is_limited_alike and _SAME_MEMORY * usable <= (found.budget_bytes or 0) <= usable:
                return run.run_id, found.max_n_ctx
        return None


def _host_bytes(file: ModelFile | None, row: PlanRow, setup: LlamaConfig) -> int | None:
    """Return the main memory that a part takes beside a GPU; None if all that could be on the GPU is there."""
    host = next((each for each in row.devices if each.device == HOST_DEVICE), None)
    if host is None or file is None:
        return None
    keeps_experts = setup.n_cpu_moe > 0 or setup.cpu_moe
    keeps_layers = row.n_gpu_layers is not None and row.n_gpu_layers <= file.n_layer
    return host.needed_bytes if keeps_experts or keeps_layers else None


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
        return finder.exactly(recommend(found, request.needs), models)


def _cache_of(candidate: Candidate) -> tuple[str, ...]:
    return *candidate.cache, candidate.setup.flash_attn


def pick(
    models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Pick:
    """Return the pick of `decide`, whose candidates are in the order of models, caches and quants."""
    steps = decide(models, request, allocator, store)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Pick = end.value
            return found


def next_to_measure(pick: Pick, tried: Collection[tuple[str, ...]]) -> Candidate | None:
    """Return the next candidate whose speed matters but is neither measured nor forecast; None if all are known.

    The recommendation and its alternatives matter; without one, so do those that may meet the needs, and those that
    miss nothing but a speed that their estimate's interval includes, and the nearest miss if it is estimated.
    """
    alternatives = [each.checked for each in pick.alternatives]
    matter: list[Checked] = []
    if pick.recommended is not None:
        matter = [pick.recommended, *alternatives]
    elif pick.misses_speed_alone:
        matter = [*alternatives, *_close_misses(pick)]
    for candidate in (each.candidate for each in matter):
        is_known = candidate.speed is not None and candidate.speed.tok_s.is_timed
        if not is_known and candidate.name not in tried:
            return candidate
    return None


def _close_misses(pick: Pick) -> list[Checked]:
    """Return those that miss only a speed which they may have, those that ask least of their user first."""
    found = []
    for each in pick.checked:
        if [miss.need for miss in each.missed] == ["speed"]:
            miss = each.missed[0]
            if miss.is_close or each is pick.nearest_miss:
                found.append(each)
    return sorted(
        found, key=lambda each: (concessions(each.candidate, pick.needs), each.missed[0].short_by or 0.0)
    )
