"""Find what would answer comfortably if no candidate does: a smaller model, a mixture of experts, another GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from ggbench.decisions.known_speeds import KnownSpeeds
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Instead, Pick
from ggbench.decisions.pick.turn import known_turn
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.description import parse_gpus
from ggbench.machine.known_devices import known_devices
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.reference import ModelRef
from ggbench.models.targets import resolve_headers
from ggbench.sizing.budget import CARD_RESERVE_BYTES
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget

_QUANTS = ("q4_k_m", "mxfp4")
"""The usual quants, of which a model has the first or the second."""
_OF_BOUND = 0.6
"""Share of the bandwidth that a bound is expected to reach: llama-bench of Q4_0 on GPUs reaches 50 to 75 %."""
_CONTEXT_SHARE = 1.1
"""Compute buffers, over weights and cache."""


def what_instead(pick: Pick, budget: Budget) -> tuple[Instead, ...]:
    """Return at most one of each kind that would be comfortable, by estimates and bounds alone."""
    checked = pick.recommended or pick.nearest_miss
    if checked is None:
        return ()
    candidate, needs = checked.candidate, pick.needs
    models = {model.id: model for model in load_catalog()}
    own = models.get(candidate.row.model.removeprefix("twin:"))
    setup = LlamaConfig(n_ctx=needs.n_ctx, n_seq_max=needs.n_slots)
    found = [_gpu(candidate, needs, budget)]
    with KnownSpeeds.here(budget) as speeds:
        if not candidate.setup.n_cpu_moe and (budget.on_gpu or own is None or not own.hyper.n_expert):
            mixtures = [model for model in models.values() if model.hyper.n_expert]
            placed = replace(setup, cpu_moe=budget.on_gpu)
            found.insert(0, _of_catalog("mixture of experts", mixtures, placed, needs, budget, speeds))
        if own is not None:
            family = [model for model in models.values() if model.family == own.family]
            below = candidate.row.n_params or 0
            found.insert(0, _of_catalog("smaller model", family, setup, needs, budget, speeds, below))
    by_name = {each.name: each for each in reversed(found) if each is not None}  # a smaller model may be a mixture
    return tuple(reversed(by_name.values()))


def _of_catalog(
    kind: Literal["smaller model", "mixture of experts"],
    models: list[CatalogModel],
    setup: LlamaConfig,
    needs: Needs,
    budget: Budget,
    speeds: KnownSpeeds,
    below: float = math.inf,
) -> Instead | None:
    """Return the largest of these models, below a number of parameters, that fits and would be comfortable."""
    for model, file, quant in _files(models):
        if (file.n_params or 0) >= below or not _fits(file, setup, budget):
            continue
        known = speeds.of(file, setup, needs.n_slots)
        speed = None if known is None else known_turn(known, needs.workload, needs.n_ctx_slot)
        if speed is not None and speed.tok_s.value * (_OF_BOUND if speed.is_bound else 1.0) >= _wanted(needs):
            return Instead(kind, model.id, quant, speed.tok_s.value, speed.is_bound)
    return None


def _gpu(candidate: Candidate, needs: Needs, budget: Budget) -> Instead | None:
    """Return the smallest GeForce on which all of the candidate would be comfortable, by its specifications.

    None for a candidate that loses what people notice.
    """
    row, loss = candidate.row, candidate.least_loss
    if loss is not None and needs.notices(loss.value):
        return None
    needed = (row.weight_bytes or 0) + (row.kv_bytes or 0) * _CONTEXT_SHARE + CARD_RESERVE_BYTES
    cards = [each for each in known_devices() if "GeForce" in each.name and "laptop" not in each.family]
    for card in sorted(cards, key=lambda each: (each.memory_gib, each.bandwidth_gb_s)):
        device = parse_gpus(card.id)[0]
        if device.memory_bytes < needed or device.memory_bytes <= budget.memory_bytes * budget.on_gpu:
            continue
        read = (row.weight_bytes or 0) + (row.kv_bytes or 0)
        tok_s = card.bandwidth_gb_s * 1e9 / read if read else 0.0
        if tok_s * _OF_BOUND >= _wanted(needs):
            return Instead("GPU", f"{card.name} of {card.memory_gib:g} GiB", row.quant, tok_s, is_bound=True)
    return None


def _files(models: list[CatalogModel]) -> Iterator[tuple[CatalogModel, ModelFile, str]]:
    """Yield models with the header of their usual quant, those with most parameters first."""
    found = []
    for model in models:
        quant = next((each for each in _QUANTS if each in model.quants), _QUANTS[0])
        try:
            (target,) = resolve_headers(ModelRef("catalog", model.id, label=model.id).of_quants(quant))
        except (GgbenchError, ValueError):
            continue
        if target.file is not None:
            found.append((model, target.file, quant))
    yield from sorted(found, key=lambda each: -(each[1].n_params or 0))


def _fits(file: ModelFile, setup: LlamaConfig, budget: Budget) -> bool:
    """Return whether weights and cache fit by the theory, with something for compute buffers."""
    placement = Placement(file, setup, on_gpu=budget.on_gpu, devices=budget.devices, host=budget.host)
    if placement.theory is None or placement.weight_bytes is None or setup.n_ctx is None:
        return False
    host = budget.host.usable_bytes if budget.host is not None and budget.host.free_bytes else None
    if host is not None and (placement.host_weight_bytes or 0) > host:
        return False
    needed = placement.weight_bytes + placement.theory.cached_bytes(setup.n_ctx)
    return needed * _CONTEXT_SHARE <= budget.usable_bytes


def _wanted(needs: Needs) -> float:
    return max(needs.workload.comfort_tok_s, needs.tok_s or 0.0)
