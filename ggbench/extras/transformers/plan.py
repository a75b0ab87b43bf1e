"""Memory that a checkpoint needs under each method: weights as stored, and a static cache.

Transformers allocates as it runs, so only weights and cache are known beforehand; the reserve covers the rest. All
weights are in one memory, including the input embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ggbench.commands.budget_options import BudgetOptions
from ggbench.commands.options import HubOptions
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, Unsupported, UsageError
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.models import FoundCheckpoint, find_checkpoint, wanted_methods
from ggbench.extras.transformers.storage import Method
from ggbench.fields import config_options, reproduce
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.reference import ModelRef
from ggbench.sizing.fit import planning_ceiling
from ggbench.sizing.plan import DEFAULT_N_CTX, PlanRequest
from ggbench.sizing.plan_record import Budget, EnginePlan, Note, PlannedDevice, PlanRow
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.limits import decode_read_ms
from ggbench.sizing.theory.weights import file_weights
from ggbench.sizing.what_helps import with_other_quants
from ggbench.text import in_words

_SHARED = ("n_ctx", "memory_limit_bytes", "main_gpu", "n_gpu_layers")
"""Fields for the memory and the context, common to all engines."""


def plan_model(ref: ModelRef, memory: BudgetOptions, setup: LlamaConfig, hub: HubOptions) -> EnginePlan:
    """Plan each of QUANTs, by default all. Raises GgbenchError, also for an option that only llama.cpp has."""
    defaults = LlamaConfig()
    rest = replace(setup, **{name: getattr(defaults, name) for name in _SHARED})
    given = config_options(rest) or [f"--{name}" for name in ("mmproj", "draft") if getattr(memory, name)]
    if given:
        raise UsageError(
            f"{given[0]} is an option of llama.cpp, but a checkpoint is run by Transformers",
            "omit it: the cache has the type of the unquantized weights",
        )
    found = find_checkpoint(ref, hub=hub.access())
    methods = wanted_methods(found, ref)
    request = PlanRequest(memory.budget(setup), setup, memory.given)
    rows = plan_checkpoint(ref.label, found, methods or found.checkpoint.methods(), request)
    sources = {
        "weights": "config.json, and the storage of each method",
        "kv_and_compute": "K and V by formula, a static cache; Transformers allocates the rest as it runs",
    }
    return EnginePlan(request.budget, tuple(with_other_quants(rows)), sources, found.listing)


def plan_checkpoint(
    model: str, found: FoundCheckpoint, methods: Sequence[Method], request: PlanRequest
) -> tuple[PlanRow, ...]:
    """Return one row for each method, in order; one that cannot be computed has a reason.

    `model` is MODEL as typed, without QUANT. Raises GgbenchError if the only one cannot be computed.
    """
    rows = []
    for method in methods:
        row = PlanRow(
            model=model,
            quant=method.name,
            provenance=found.origin,
            engine=TransformersConfig.engine,
            budget_bytes=request.budget.usable_bytes,
            command=reproduce("plan", (model, method.name), request.setup, dict(request.options)),
        )
        try:
            rows.append(_planned(row, found, method, request))
        except GgbenchError as error:
            if len(methods) == 1:
                raise
            rows.append(replace(row, outcome=Outcome.FAILED, reason=error.message))
    return tuple(rows)


def _planned(row: PlanRow, found: FoundCheckpoint, method: Method, request: PlanRequest) -> PlanRow:
    budget, file = request.budget, found.checkpoint.model_file(method)
    cache_type = found.checkpoint.dtype(method)
    cache = kv_cache(file, cache_type, cache_type)
    n_ctx = request.setup.n_ctx or min(DEFAULT_N_CTX, file.n_ctx_train or DEFAULT_N_CTX)
    weight_bytes, kv_bytes = file.weight_bytes or 0, round(float(cache.cached_bytes(n_ctx)))
    needed = weight_bytes + kv_bytes
    ceiling = planning_ceiling(file, n_ctx)
    longest = min(cache.n_that_fit(budget.usable_bytes - weight_bytes), ceiling)
    return replace(
        row,
        type_k=cache_type,
        type_v=cache_type,
        file=str(file.paths[0]) if file.paths else "",
        file_bytes=file.file_bytes,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=weight_bytes,
        device_weight_bytes=weight_bytes,
        n_ctx=n_ctx,
        n_ctx_train=file.n_ctx_train,
        kv_bytes=kv_bytes,
        device_kv_bytes=kv_bytes,
        theory_kv_bytes=kv_bytes,
        kv_bytes_per_token=cache.bytes_per_token,
        needed_bytes=needed,
        left_bytes=budget.usable_bytes - needed,
        fits=needed <= budget.usable_bytes,
        planned_n_ctx=longest or None,
        reached_ceiling=longest >= ceiling,
        devices=(
            PlannedDevice(
                device=", ".join(each.device for each in budget.planned),
                n_layers=file.n_layer + 1,
                memory_bytes=budget.memory_bytes,
                weight_bytes=weight_bytes,
                kv_bytes=kv_bytes,
                reserve_bytes=budget.reserve_bytes,
            ),
        ),
        limit_tok_s=_limit(file, cache, budget, n_ctx),
        notes=tuple(_notes(found, method)),
    )


def _limit(file: ModelFile, cache: KvCache, budget: Budget, n_ctx: int) -> float | None:
    """Return the tokens/s at `n_ctx` that bandwidth allows; None if it is unknown."""
    if budget.bandwidth is None:
        return None
    try:
        weights = file_weights(file, file.name)
    except Unsupported:
        return None
    return 1e3 / decode_read_ms(weights, cache, budget.bandwidth.bytes_per_s, n_ctx)


def _notes(found: FoundCheckpoint, method: Method) -> Iterator[Note]:
    checkpoint = found.checkpoint
    if checkpoint.method.quant_method is None and method.quant_method in ("gptq", "awq"):
        yield Note("plan.if_quantized", {"method": method.quant_method.upper()})
    if checkpoint.config.code_files:
        yield Note("plan.own_code", {"files": in_words(list(checkpoint.config.code_files))})
