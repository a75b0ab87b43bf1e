"""A pick, from its candidates on: every quant with every KV cache, by what is planned, measured and published."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from ggbench.decisions.known_losses import UNQUANTIZED, MeasuredLosses, measured_losses, typical_loss
from ggbench.decisions.known_speeds import ThisMachine, known_speeds
from ggbench.decisions.pick.models import PickedModel
from ggbench.decisions.pick.needs import ChatTurn, Needs
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Loss, Pick, TurnSpeed
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, StoreError
from ggbench.machine.readings import programs_that_hold_memory
from ggbench.models.targets import Target
from ggbench.runs.run import LargestContext, Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan_variant, with_cache
from ggbench.sizing.plan_record import Budget, Change, KvCacheTypes, PlanRow
from ggbench.sizing.what_helps import with_programs
from ggbench.stats.intervals import Expected
from ggbench.stats.samples import least_squares_above_zero
from ggbench.stats.speed_estimate import SpeedEstimate, step_ms_at
from ggbench.units import KV_CELLS

CACHE_TYPES = ("f16", "q8_0", "q4_0")
"""Of both K and V, tried for each quant."""
_F16_LOSS = Loss(Expected(0.0, 0.0, 0.0), "unquantized", "an f16 cache is what others are compared with")


class PickRequest(msgspec.Struct, frozen=True):
    """What to find candidates for."""

    needs: Needs
    budget: Budget
    setup: LlamaConfig
    """Its n_ctx and the types of its cache are not looked at."""
    caches: tuple[KvCacheTypes, ...]
    options: tuple[tuple[str, str], ...] = ()
    """Options of the command line besides those of `setup`, for the line that reproduces a row."""


def caches_of(types: Sequence[tuple[str, str]], setup: LlamaConfig) -> tuple[KvCacheTypes, ...]:
    """Return the caches to try; without flash attention only those that need none. Raises UsageError for none."""
    found = [KvCacheTypes(type_k, type_v, setup.flash_attn) for type_k, type_v in types]
    usable = tuple(each for each in found if setup.flash_attn != "off" or each.type_v in UNQUANTIZED)
    if found and not usable:
        with_cache(setup, found[0]).check()
    return usable


def find_candidates(
    models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None
) -> tuple[Candidate, ...]:
    """Return the candidates of all models, in the order of models, caches and quants.

    One that cannot be planned is a candidate with its reason, unless it is the only one. Raises GgbenchError then.
    """
    finder = _Finder(models, request, allocator, store)
    return tuple(candidate for model in models for candidate in finder.of_model(model))


def what_would_help(
    candidate: Candidate, models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator
) -> tuple[Change, ...]:
    """Return the single changes that would make a candidate fit the context needed, the best first; none if it fits."""
    variants = (each for model in models if model.key == candidate.model_key for each in model.variants)
    wanted = candidate.row.model, candidate.row.quant, candidate.selector
    variant = next((each for each in variants if (each.model, each.quant, each.selector) == wanted), None)
    if variant is None or candidate.row.fits is not False:
        return ()
    cache = KvCacheTypes(*candidate.cache, request.setup.flash_attn)
    asked = with_cache(request.setup, cache, request.needs.n_ctx)
    rows = list(plan_variant(variant, PlanRequest(request.budget, asked, request.options), allocator))
    if request.budget.is_here:
        held = programs_that_hold_memory(on_gpu=request.budget.on_gpu, gpu_index=asked.main_gpu or 0)
        rows = with_programs(rows, held)
    return rows[0].changes


class _Finder:
    """What all candidates share: stored runs are read once."""

    def __init__(
        self, models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None
    ) -> None:
        self._request, self._allocator = request, allocator
        self._is_alone = sum(len(model.variants) for model in models) == 1
        self._losses = measured_losses(store)
        self._probes = tuple(_probes(store)) if store is not None and request.budget.is_here else ()
        files = [variant.file for model in models for variant in model.variants]
        keys = [(model.key, number) for model in models for number in range(len(model.variants))]
        self._known: dict[tuple[str, int, KvCacheTypes], SpeedEstimate | None] = {}
        for cache in request.caches:
            known = known_speeds(store, files, with_cache(request.setup, cache), request.budget)
            self._known |= {(*key, cache): each for key, each in zip(keys, known, strict=True)}

    def of_model(self, model: PickedModel) -> list[Candidate]:
        """By cache, then in the order of the variants."""
        headers = {variant.file.header_sha256 for variant in model.variants if variant.file is not None}
        losses = self._losses.among(headers)
        by_cache: dict[tuple[str, str], list[Candidate]] = {}
        for number, variant in enumerate(model.variants):
            for row in self._rows(variant, self._request.needs.n_ctx, self._request.caches):
                cache = next((each for each in self._request.caches if _types(each) == (row.type_k, row.type_v)), None)
                known = None if cache is None else self._known[model.key, number, cache]
                candidate = self._candidate(model.key, variant, row, known, losses, cache)
                by_cache.setdefault(candidate.cache, []).append(candidate)
        return [each for group in by_cache.values() for each in group]

    def _rows(self, variant: Target, n_ctx: int, caches: Sequence[KvCacheTypes]) -> list[PlanRow]:
        request = PlanRequest(self._request.budget, replace(self._request.setup, n_ctx=n_ctx), self._request.options)
        try:
            return list(plan_variant(variant, request, self._allocator, caches))
        except GgbenchError as error:
            if self._is_alone:
                raise
            failed = PlanRow(variant.model, variant.quant, variant.provenance)
            return [replace(failed, outcome=Outcome.FAILED, reason=error.message)]

    def _candidate(
        self,
        key: str,
        variant: Target,
        row: PlanRow,
        known: SpeedEstimate | None,
        losses: MeasuredLosses,
        cache: KvCacheTypes | None,
    ) -> Candidate:
        needs, file = self._request.needs, variant.file
        probe = self._probe(variant, row)
        longest = 0 if row.fits is False and not row.planned_n_ctx else row.planned_n_ctx
        if probe is not None:
            longest = probe[1]
        offered, n_ctx = longest, needs.n_ctx
        if needs.workload.n_depth is None:
            if known is not None and needs.tok_s is not None and longest is not None:
                offered = longest_fast_enough(known, needs.workload, longest, needs.tok_s)
            n_ctx = max(n_ctx, offered or 0)
            if cache is not None and n_ctx != row.n_ctx and row.fits:
                (row,) = self._rows(variant, n_ctx, (cache,))
        header = "" if file is None else file.header_sha256
        speed: TurnSpeed | None = None if known is None else turn_speed(known, needs.workload, n_ctx)
        return Candidate(
            row=row,
            model_key=key,
            selector=variant.selector,
            n_ctx=n_ctx,
            max_n_ctx=longest,
            offered_n_ctx=offered,
            probed_by=None if probe is None else probe[0],
            speed=speed,
            weights_loss=losses.of_weights(header) or typical_loss(variant.quant, row.n_params),
            cache_loss=_cache_loss(losses, header, (row.type_k, row.type_v)),
            joint_loss=losses.of_both(header, (row.type_k, row.type_v)),
            to_run=variant.to_run,
        )

    def _probe(self, variant: Target, row: PlanRow) -> tuple[int, int] | None:
        """The newest run that searched this file with this cache, and what it found.

        None where less memory is free than it had, by what is planned for both.
        """
        if variant.file is None:
            return None
        setup = with_cache(self._request.setup, KvCacheTypes(row.type_k, row.type_v, self._request.setup.flash_attn))
        here = ThisMachine.describe()
        wanted = here.decisive(setup, variant.file.n_layer)
        for run, max_n_ctx, budget_bytes in self._probes:
            if run.subject.header_sha256 != variant.file.header_sha256:
                continue
            if here.decisive(run.head.setup, run.subject.n_layer) != wanted:
                continue
            had_less = budget_bytes <= self._request.budget.usable_bytes
            return (run.run_id, max_n_ctx) if had_less and run.run_id is not None else None
        return None


def _probes(store: Store) -> Iterator[tuple[Run, int, int]]:
    """Searches of this machine that ended as planned, newest first: what they found, and the bytes that they had."""
    here = ThisMachine.describe()
    for stored in store.list_runs(state=Outcome.COMPLETED):
        if here.made(stored.environment):
            with contextlib.suppress(StoreError):  # written by another ggbench
                run = listed_run(stored)
                found = run.result
                if isinstance(found, LargestContext) and found.max_n_ctx is not None:
                    yield run, found.max_n_ctx, found.budget_bytes or 0


def _types(cache: KvCacheTypes) -> tuple[str, str]:
    return cache.type_k, cache.type_v


def _cache_loss(losses: MeasuredLosses, header: str, cache: tuple[str, str]) -> Loss | None:
    return _F16_LOSS if _is_unquantized(cache) else losses.of_cache(header, cache)


def _is_unquantized(cache: Collection[str]) -> bool:
    return UNQUANTIZED.issuperset(cache)


def next_to_measure(pick: Pick, tried: Collection[tuple[str, str, str, str]]) -> Candidate | None:
    """Return the first that matters and whose speed is only estimated, bounded or unknown; None where none is left.

    The recommendation and its alternatives matter; where nothing is recommended, the nearest miss does if it misses a
    speed by an estimate, which a measurement may correct and a bound not.
    """
    return next((each for each in _that_matter(pick) if each.name not in tried and not _is_known(each)), None)


def pick(models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None) -> Pick:
    """Return the pick by what the store knows; None for nothing. Raises as `find_candidates` does."""
    found = recommend(find_candidates(models, request, allocator, store), request.needs)
    if found.nearest_miss is None:
        return found
    return replace(found, changes=what_would_help(found.nearest_miss.candidate, models, request, allocator))


def _that_matter(pick: Pick) -> Iterator[Candidate]:
    if pick.recommended is not None:
        yield pick.recommended.candidate
        yield from (each.checked.candidate for each in pick.alternatives)
    elif pick.nearest_miss is not None and {check.need for check in pick.nearest_miss.missed} == {"speed"}:
        candidate = pick.nearest_miss.candidate
        if candidate.speed is not None and not candidate.speed.is_bound:
            yield candidate


def _is_known(candidate: Candidate) -> bool:
    return candidate.speed is not None and candidate.speed.basis in ("measured", "forecast")


_SAMPLED_STEPS = 9
"""Of an answer: latency grows by straight lines, so that their mean is that of all steps."""


def turn_speed(known: SpeedEstimate, workload: ChatTurn, n_ctx: int) -> TurnSpeed:
    """Return how fast the turn is in a context of `n_ctx` tokens.

    The prompt takes T(depth + n_prompt) - T(depth), where T(n) = b n + c n² is the time of a prompt read from an empty
    context; the answer takes the sum of its steps. Both ends of an interval are carried through by themselves: what
    makes one length slower than expected makes the others slower too.
    """
    depth = workload.depth_in(n_ctx)
    answer_ms = _summed_steps(known, depth + workload.n_prompt, workload.n_gen)
    per_s = 1e3 * workload.n_gen
    return TurnSpeed(
        tok_s=Expected(per_s / answer_ms.value, per_s / answer_ms.high, per_s / answer_ms.low),
        turn_s=_turn_s(known, depth, workload.n_prompt, answer_ms),
        basis=known.basis,
        source=known.source,
    )


def longest_fast_enough(known: SpeedEstimate, workload: ChatTurn, n_ctx: int, tok_s: float) -> int:
    """Return the longest context up to `n_ctx` in which the answer is as fast as `tok_s`, by the value; 0 for none.

    A multiple of 256. Latency does not fall as the context grows, so that halving finds it.
    """
    fast, slow = 0, n_ctx // KV_CELLS + 1
    while slow - fast > 1:
        middle = (fast + slow) // 2
        if turn_speed(known, workload, middle * KV_CELLS).tok_s.value >= tok_s:
            fast = middle
        else:
            slow = middle
    return fast * KV_CELLS


def _summed_steps(known: SpeedEstimate, first: int, n_gen: int) -> Expected:
    """The time in ms of the steps that follow `first` tokens."""
    positions = np.unique(np.linspace(first + 1, first + n_gen, min(n_gen, _SAMPLED_STEPS)).round().astype(int))
    steps = [step_ms_at(known, int(position)) for position in positions]
    return _each_way(lambda way: n_gen * float(np.mean([getattr(step, way) for step in steps])))


def _turn_s(known: SpeedEstimate, depth: int, n_prompt: int, answer_ms: Expected) -> Expected | None:
    if not known.prefill_ms:
        return None
    return _each_way(
        lambda way: (
            (_prompt_ms([(n, getattr(each, way)) for n, each in known.prefill_ms], depth, n_prompt)
             + getattr(answer_ms, way)) / 1e3
        )
    )  # fmt: skip


def _prompt_ms(timings: Sequence[tuple[int, float]], depth: int, n_prompt: int) -> float:
    """The time of a prompt after `depth` tokens, by b n + c n² through the timings, relative errors least."""
    if not all(np.isfinite(ms) for _, ms in timings):
        return float("inf")
    if not all(ms > 0 for _, ms in timings):  # low ends of wide intervals: no fit of relative errors
        return 0.0
    lengths = np.array([n for n, _ in timings], np.float64)
    ms = np.array([each for _, each in timings])
    rows = np.stack([lengths, lengths**2], axis=1)
    linear, square = least_squares_above_zero(rows / ms[:, None], np.ones_like(ms))
    end = depth + n_prompt
    return float(linear * n_prompt + square * (end**2 - depth**2))


def _each_way(value: Callable[[str], float]) -> Expected:
    """The value, and what it is at either end of the interval."""
    return Expected(value("value"), value("low"), value("high"))
