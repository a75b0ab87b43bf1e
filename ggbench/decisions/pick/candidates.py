"""Find the candidates of a pick: plan every quant of every model with every KV cache, then add speeds and losses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from ggbench.decisions.known import (
    UNQUANTIZED,
    KnownSpeeds,
    MeasuredLosses,
    ThisMachine,
    measured_losses,
    typical_loss,
)
from ggbench.decisions.pick.needs import ChatTurn, Needs
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Loss, Pick, TurnSpeed
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile, GgbenchError, UnknownName
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.quants import name_without_quant
from ggbench.hub.access import HubAccess
from ggbench.machine.readings import programs_that_hold_memory
from ggbench.models.added_places import added_models
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel, find_local_models
from ggbench.models.reference import ModelRef
from ggbench.models.targets import Target, resolve_headers
from ggbench.runs.run import LargestContext
from ggbench.runs.store.database import Store
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan_variant, with_cache
from ggbench.sizing.plan_record import Budget, Change, KvCacheTypes, PlanRow
from ggbench.sizing.what_helps import with_programs
from ggbench.stats.intervals import Expected
from ggbench.stats.samples import least_squares_above_zero
from ggbench.stats.speed_estimate import SpeedEstimate, estimate_at, step_ms_at
from ggbench.units import KV_CELLS

CACHE_TYPES = ("f16", "q8_0", "q4_0")
"""Cache types to try for both K and V of each quant."""
_F16_LOSS = Loss(Expected(0.0, 0.0, 0.0), "unquantized", "f16 is the base of comparison")


class PickRequest(msgspec.Struct, frozen=True):
    """What the model is needed for."""

    needs: Needs
    budget: Budget
    setup: LlamaConfig
    """Setup to run with; its n_ctx and cache types are ignored."""
    caches: tuple[KvCacheTypes, ...]
    options: tuple[tuple[str, str], ...] = ()
    """Other command-line options, for the command that reproduces a row."""


def caches_of(types: Sequence[tuple[str, str]], setup: LlamaConfig) -> tuple[KvCacheTypes, ...]:
    """Return the caches to try; without flash attention, only unquantized V. Raises UsageError for none."""
    found = [KvCacheTypes(type_k, type_v, setup.flash_attn) for type_k, type_v in types]
    usable = tuple(each for each in found if setup.flash_attn != "off" or each.type_v in UNQUANTIZED)
    if found and not usable:
        with_cache(setup, found[0]).check()
    return usable


def find_candidates(
    models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None
) -> tuple[Candidate, ...]:
    """Return the candidates of all models, in the order of models, caches and quants.

    One that cannot be planned becomes a candidate with the reason, or raises GgbenchError if it is the only one.
    """
    finder = _Finder(models, request, allocator, store)
    return tuple(candidate for model in models for candidate in finder.of_model(model))


def _what_would_help(
    candidate: Candidate, models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator
) -> tuple[Change, ...]:
    """Return the single changes that would make a candidate fit, the best first; none if it fits."""
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
    """Data shared by all candidates: stored runs are read once."""

    def __init__(
        self, models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None
    ) -> None:
        self._request, self._allocator = request, allocator
        self._is_alone = sum(len(model.variants) for model in models) == 1
        self._losses = measured_losses(store)
        self._speeds = KnownSpeeds(store, request.budget)

    def of_model(self, model: PickedModel) -> list[Candidate]:
        """Return a model's candidates, by cache, then in the order of the variants."""
        headers = {variant.file.header_sha256 for variant in model.variants if variant.file is not None}
        losses = self._losses.among(headers)
        by_cache: dict[tuple[str, str], list[Candidate]] = {}
        for variant in model.variants:
            for row in self._rows(variant, self._request.needs.n_ctx, self._request.caches):
                types = row.type_k, row.type_v
                cache = next((each for each in self._request.caches if (each.type_k, each.type_v) == types), None)
                known = None if cache is None else self._speeds.of(variant.file, with_cache(self._request.setup, cache))
                candidate = self._candidate(model.key, variant, row, known, losses, cache)
                by_cache.setdefault(types, []).append(candidate)
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
        needs, header = self._request.needs, "" if variant.file is None else variant.file.header_sha256
        probe, types = self._probe(variant, row), (row.type_k, row.type_v)
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
        return Candidate(
            row=row,
            model_key=key,
            selector=variant.selector,
            n_ctx=n_ctx,
            max_n_ctx=longest,
            offered_n_ctx=offered,
            probed_by=None if probe is None else probe[0],
            speed=None if known is None else _known_turn(known, needs.workload, n_ctx),
            weights_loss=losses.of_weights(header)
            or typical_loss(
                variant.quant, row.n_params, has_experts=variant.file is not None and variant.file.n_expert > 0
            ),
            cache_loss=_F16_LOSS if UNQUANTIZED.issuperset(types) else losses.of_cache(header, types),
            joint_loss=losses.of_both(header, types),
            to_run=variant.to_run,
        )

    def _probe(self, variant: Target, row: PlanRow) -> tuple[int, int] | None:
        """Return the newest run that searched this file with this cache, and the n_ctx it found.

        None if it had more memory than is planned for.
        """
        if variant.file is None:
            return None
        setup = with_cache(self._request.setup, KvCacheTypes(row.type_k, row.type_v, self._request.setup.flash_attn))
        here, header = ThisMachine.describe(), variant.file.header_sha256
        wanted = here.decisive(setup, variant.file.n_layer)
        for run in self._speeds.runs:
            found = run.result
            if run.subject.header_sha256 != header or here.decisive(run.head.setup, run.subject.n_layer) != wanted:
                continue
            if isinstance(found, LargestContext) and found.max_n_ctx is not None:
                had_less = (found.budget_bytes or 0) <= self._request.budget.usable_bytes
                return (run.run_id, found.max_n_ctx) if had_less and run.run_id is not None else None
        return None


def pick(models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None) -> Pick:
    """Return the pick from the results in the store, if there is one. Raises like `find_candidates`."""
    found = recommend(find_candidates(models, request, allocator, store), request.needs)
    if found.nearest_miss is None:
        return found
    return replace(found, changes=_what_would_help(found.nearest_miss.candidate, models, request, allocator))


def next_to_measure(pick: Pick, tried: Collection[tuple[str, str, str, str]]) -> Candidate | None:
    """Return the next candidate whose speed matters but is neither measured nor forecast; None if there is none.

    The recommendation and its alternatives matter; without one, so does the nearest miss if it misses a speed by an
    estimate, which measuring may correct.
    """
    matter: list[Candidate] = []
    if pick.recommended is not None:
        matter = [each.candidate for each in (pick.recommended, *(each.checked for each in pick.alternatives))]
    elif pick.nearest_miss is not None and {check.need for check in pick.nearest_miss.missed} == {"speed"}:
        nearest = pick.nearest_miss.candidate
        matter = [nearest] if nearest.speed is not None and not nearest.speed.is_bound else []
    unknown = (each for each in matter if each.speed is None or each.speed.basis not in ("measured", "forecast"))
    return next((each for each in unknown if each.name not in tried), None)


_SAMPLED_STEPS = 9
"""Number of an answer's steps to average: latency is piecewise linear."""


def turn_speed(known: SpeedEstimate, workload: ChatTurn, n_ctx: int) -> TurnSpeed:
    """Return the speed of the turn in a context of `n_ctx` tokens.

    The prompt takes T(depth + n_prompt) - T(depth), where T(n) = b n + c n² is the time of a prompt read from an empty
    context; the answer takes the sum of its steps. Each end of an interval is computed from the same ends of all parts,
    since errors at different lengths are correlated.
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


def _known_turn(known: SpeedEstimate, workload: ChatTurn, n_ctx: int) -> TurnSpeed | None:
    """Return the speed of the turn by the estimate that covers the end of its answer; None if none does."""
    found = estimate_at(known, workload.depth_in(n_ctx) + workload.n_turn)
    return None if found is None else turn_speed(found, workload, n_ctx)


def longest_fast_enough(known: SpeedEstimate, workload: ChatTurn, n_ctx: int, tok_s: float) -> int:
    """Return the longest context up to `n_ctx`, a multiple of 256, with an answer at `tok_s` or faster; 0 for none."""
    fast, slow = 0, n_ctx // KV_CELLS + 1
    while slow - fast > 1:
        middle = (fast + slow) // 2
        speed = _known_turn(known, workload, middle * KV_CELLS)
        if speed is not None and speed.tok_s.value >= tok_s:
            fast = middle
        else:
            slow = middle
    return fast * KV_CELLS


def _summed_steps(known: SpeedEstimate, first: int, n_gen: int) -> Expected:
    """Return the time in ms of the steps that follow `first` tokens."""
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
    """Return the time of a prompt after `depth` tokens, by fitting b n + c n² with the least relative errors."""
    if not all(np.isfinite(ms) for _, ms in timings):
        return float("inf")
    if not all(ms > 0 for _, ms in timings):  # low ends of wide intervals cannot be fitted by relative errors
        return 0.0
    lengths = np.array([n for n, _ in timings], np.float64)
    ms = np.array([each for _, each in timings])
    rows = np.stack([lengths, lengths**2], axis=1)
    linear, square = least_squares_above_zero(rows / ms[:, None], np.ones_like(ms))
    end = depth + n_prompt
    return float(linear * n_prompt + square * (end**2 - depth**2))


def _each_way(value: Callable[[str], float]) -> Expected:
    """Return a value and its interval, each computed from the corresponding values or ends of its parts."""
    return Expected(value("value"), value("low"), value("high"))


class PickedModel(msgspec.Struct, frozen=True):
    """The quants of one model; their losses are comparable."""

    key: str
    variants: tuple[Target, ...]


def of_model(
    ref: ModelRef, hub: HubAccess | None = None, on_progress: Callable[[int, int], None] | None = None
) -> tuple[tuple[Target, ...], tuple[PickedModel, ...]]:
    """Return the targets of a reference and the models among them. Raises like `resolve_headers`."""
    planned = resolve_headers(ref, hub=hub, on_progress=on_progress)
    return planned, of_planned(planned)


def of_planned(planned: Sequence[Target]) -> tuple[PickedModel, ...]:
    """Return the models of the targets of a plan."""
    return _grouped((_model_name(variant), variant) for variant in planned)


def on_disk(quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return every runnable model on this disk except twins. Raises BadFile if there is none."""
    found = [*added_models(), *find_local_models()]
    usable = {each.paths: each for each in found if each.paths and not each.reason and not each.is_twin}
    wanted = {quant.lower() for quant in quants}
    models = [each for each in usable.values() if not wanted or each.quant in wanted]
    if not models:
        quant = f" of {', '.join(sorted(wanted))}" if wanted else ""
        raise BadFile(f"this disk has no model{quant}", "name one: ggbench pick MODEL, e.g. org/name or qwen3-8b")
    return _grouped((f"{each.store} {name_without_quant(each.name)}", _of_local(each)) for each in models)


def of_family(name: str, quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return the sizes of a family of the catalog, e.g. `qwen3`, without files. Raises UnknownName."""
    catalog = load_catalog()
    wanted = name.strip().lower()
    ids = [model.id for model in catalog if model.id == wanted or model.id.startswith(f"{wanted}-")]
    if not ids:
        raise UnknownName("family", name, sorted({model.id.partition("-")[0] for model in catalog}))
    return tuple(
        PickedModel(
            model_id, resolve_headers(ModelRef("catalog", model_id, label=model_id).of_quants(*quants), catalog=catalog)
        )
        for model_id in ids
    )


def _of_local(model: LocalModel) -> Target:
    quant = model.quant or "unknown"
    try:
        file = read_model_file(model.paths[0], allow_missing_data=True)
    except GgbenchError as error:
        return Target(model.model, quant, "file", reason=error.message)
    return Target(model.model, quant, "file", model.paths[0], model.file_bytes, file=file)


def _model_name(variant: Target) -> str:
    """Return the name of the model in a file; MODEL if there is no file."""
    if variant.file is None or not variant.file.paths or variant.provenance == "hub":
        return variant.model
    return name_without_quant(variant.file.paths[0].name)


def _grouped(named: Iterable[tuple[str, Target]]) -> tuple[PickedModel, ...]:
    groups: dict[str, list[Target]] = {}
    for key, variant in named:
        groups.setdefault(key, []).append(variant)
    return tuple(PickedModel(key, tuple(variants)) for key, variants in groups.items())
