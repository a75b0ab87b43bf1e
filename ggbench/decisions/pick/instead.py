"""Find what would answer comfortably if no candidate does: a smaller model, a mixture of experts, another GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec.structs import replace

from ggbench.decisions.known_speeds import KnownSpeeds
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Instead, TurnSpeed
from ggbench.decisions.pick.turn import known_turn
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.description import describe_machine
from ggbench.machine.known_devices import known_devices
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.reference import ModelRef
from ggbench.models.targets import resolve_headers
from ggbench.sizing.budget import described_budget
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget

_QUANTS = ("q4_k_m", "mxfp4")
"""The usual quants, of which a model has the first or the second."""
_CONTEXT_SHARE = 1.1
"""Compute buffers, over weights and cache."""


def what_instead(candidate: Candidate, file: ModelFile | None, needs: Needs, budget: Budget) -> tuple[Instead, ...]:
    """Return at most one of each kind that would be comfortable where a candidate, with this header, is not."""
    models = load_catalog()
    own = models.named(candidate.row.model)
    setup = LlamaConfig(n_ctx=needs.n_ctx, n_seq_max=needs.n_slots)
    found: list[Instead | None] = []
    with KnownSpeeds.here(budget) as speeds:
        if own is not None:
            family = [each for each in models if each.family == own.family]
            below = candidate.row.n_params or 0
            found.append(_of_catalog("smaller model", family, setup, needs, budget, speeds, below))
        if not candidate.is_mixture:
            mixtures = [each for each in models if each.hyper.n_expert]
            placed = replace(setup, cpu_moe=budget.on_gpu)
            found.append(_of_catalog("mixture of experts", mixtures, placed, needs, budget, speeds))
    if file is not None:
        found.append(_gpu(candidate, file, needs, budget))
    by_name: dict[str, Instead] = {}
    for each in found:
        if each is not None:
            by_name.setdefault(each.name, each)  # a smaller model may be a mixture
    return tuple(by_name.values())


def _of_catalog(
    kind: Literal["smaller model", "mixture of experts"],
    models: Iterable[CatalogModel],
    setup: LlamaConfig,
    needs: Needs,
    budget: Budget,
    speeds: KnownSpeeds,
    below: float = math.inf,
) -> Instead | None:
    """Return the largest of these models, below a number of parameters, that fits and would be comfortable."""
    for model, file, quant in _files(models):
        speed = _comfortable(file, setup, needs, budget, speeds) if (file.n_params or 0) < below else None
        if speed is not None:
            return Instead(kind, model.id, quant, speed.tok_s.value, speed.is_bound)
    return None


def _gpu(candidate: Candidate, file: ModelFile, needs: Needs, budget: Budget) -> Instead | None:
    """Return the smallest larger GeForce on which all of the candidate would be comfortable.

    None for a candidate that loses what people notice.
    """
    loss = candidate.least_loss
    if loss is not None and needs.notices(loss.value):
        return None
    type_k, type_v = candidate.cache
    setup = LlamaConfig(n_ctx=needs.n_ctx, n_seq_max=needs.n_slots, type_k=type_k, type_v=type_v)
    cards = [each for each in known_devices() if "GeForce" in each.name and "laptop" not in each.family]
    for card in sorted(cards, key=lambda each: (each.memory_gib, each.bandwidth_gb_s)):
        there = described_budget(describe_machine([card.id], None), reserve_bytes=None)
        if budget.on_gpu and there.memory_bytes <= budget.memory_bytes:
            continue
        speed = _comfortable(file, setup, needs, there, KnownSpeeds(None, there))
        if speed is not None:
            name = f"{card.name} of {card.memory_gib:g} GiB"
            return Instead("GPU", name, candidate.row.quant, speed.tok_s.value, speed.is_bound)
    return None


def _files(models: Iterable[CatalogModel]) -> Iterator[tuple[CatalogModel, ModelFile, str]]:
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


def _comfortable(
    file: ModelFile, setup: LlamaConfig, needs: Needs, budget: Budget, speeds: KnownSpeeds
) -> TurnSpeed | None:
    """Return the speed of the turn, or its bound; None if it is less than comfortable, or if the file does not fit."""
    known = speeds.of(file, setup, needs.n_slots) if _fits(file, setup, budget) else None
    speed = None if known is None else known_turn(known, needs.workload, needs.n_ctx_slot)
    wanted = max(needs.workload.comfort_tok_s, needs.tok_s or 0.0)
    return speed if speed is not None and speed.tok_s.value >= wanted else None


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
