"""What could draft for a pick, without a measurement: the model's own MTP layers, or a small model of its family.

Only a bound is known. With k drafted tokens, llama-server reads the model's weights once, and the draft's at least
k + 1 times: for each token, and for the batch again. So a step takes at least 1 + (k + 1) x draft / model of a token's
time, in bytes read, and pays only if it yields more tokens than that. It never decides a pick.
"""

from __future__ import annotations

import shlex

import msgspec

from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.llama.defaults import DRAFT_TOKENS
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import plan_twin
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.published.acceptance import Method, load_acceptance
from ggbench.sizing.drafts import MOST_TOKENS_APART
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget
from ggbench.stats.speculation import acceptance_of, mean_len
from ggbench.text import sanitize
from ggbench.units import counted, format_bytes, format_number

_QUANT = "q8_0"


class PossibleDraft(msgspec.Struct, frozen=True):
    """Something that could draft for a candidate."""

    method: Method
    command: str
    """Measures whether it pays."""
    published_len: tuple[float, float]
    """Range of the mean lengths of llama-server's steps at the acceptances that others published for this method."""
    n_published: int
    model: str = ""
    """Id of the catalog; empty for MTP layers."""
    quant: str = ""
    weight_bytes: int | None = None
    """None for MTP layers, which are part of the model."""
    needed_bytes: int | None = None
    """Weights, cache at the pick's n_ctx, and compute buffers as large as the pick's; None for MTP layers."""
    left_bytes: int | None = None
    """Bytes that the candidate leaves free; None if unknown."""
    least_len: float | None = None
    """Mean tokens of a step that it needs at least to pay; None for MTP layers, whose cost is not known."""


def possible_draft(pick: Pick, budget: Budget) -> PossibleDraft | None:
    """Return what could draft for the pick, if it is a model of the catalog.

    None if something already drafts, if no draft of the family fits beside it, or if each needs longer steps than
    anyone published.
    """
    if pick.recommended is None or budget.draft is not None or pick.recommended.candidate.setup.mtp:
        return None
    candidate = pick.recommended.candidate
    row, model = candidate.row, load_catalog().named(candidate.row.model)
    if model is None or not row.weight_bytes:
        return None
    smallest, command = _smallest(model), speculate_command(row.model, candidate.quant)
    if model.hyper.n_layer_nextn:
        lens = _published_lens("mtp")
        return PossibleDraft("mtp", command, (lens[0], lens[-1]), len(lens))
    if smallest is None:
        return None
    lens = _published_lens("draft")
    small, whole = _planned(smallest), _planned(model)
    share = _read_bytes(small, small.weight_bytes) / _read_bytes(whole, row.weight_bytes)
    least_len = 1 + (DRAFT_TOKENS + 1) * share
    needed_bytes = _needed_bytes(small, candidate, budget)
    has_room = needed_bytes is not None and (row.left_bytes is None or needed_bytes <= row.left_bytes)
    if least_len > lens[-1] or not has_room:
        return None
    return PossibleDraft(
        "draft",
        command,
        (lens[0], lens[-1]),
        len(lens),
        smallest.id,
        _QUANT,
        small.weight_bytes,
        needed_bytes,
        row.left_bytes,
        least_len,
    )


def _needed_bytes(small: ModelFile, candidate: Candidate, budget: Budget) -> int | None:
    """Return at most what a draft takes of the planned memory beside a candidate; None if it cannot be counted.

    Compute buffers grow with a model's width and vocabulary, so the draft's count as large as the candidate's.
    """
    setup = candidate.setup.for_draft()
    placement = Placement(small, setup, on_gpu=budget.on_gpu, devices=budget.devices, host=budget.host)
    row = candidate.row
    if placement.theory is None or placement.weight_bytes is None or row.n_ctx is None or row.compute_bytes is None:
        return None
    return placement.weight_bytes + round(placement.theory.cached_bytes(row.n_ctx)) + row.compute_bytes


def speculate_command(name: str, quant: str) -> str:
    """Return the command that measures the MTP layers of a model of the catalog, or the smallest one of its family.

    Empty if nothing is known to draft for it.
    """
    model = load_catalog().named(name)
    smallest = None if model is None else _smallest(model)
    drafts: tuple[str, ...] = ()
    if model is not None and model.hyper.n_layer_nextn:
        drafts = "--mtp", "--engine", "llama-server"
    elif smallest is not None:
        drafts = "--draft", f"{smallest.id}:{_QUANT}"
    return shlex.join(["ggbench", "speculate", name, quant, *drafts]) if drafts else ""


def _smallest(model: CatalogModel) -> CatalogModel | None:
    """Return the smallest other model of the family, with about the same vocabulary; None if it is the model itself."""
    alike = [each for each in load_catalog() if each.family == model.family and not each.hyper.n_expert]
    compatible = [each for each in alike if abs(each.hyper.n_vocab - model.hyper.n_vocab) <= MOST_TOKENS_APART]
    smallest = min(compatible, key=lambda each: (count_params(each.hyper), each.id), default=model)
    return None if smallest == model else smallest


def _read_bytes(planned: ModelFile, weight_bytes: int | None) -> float:
    """Return the bytes of a file of this size that a token reads: of a mixture, those of its active experts."""
    return (weight_bytes or 0) * (planned.active_weight_bytes or 0) / (planned.weight_bytes or 1)


def _planned(model: CatalogModel) -> ModelFile:
    return plan_twin(model.hyper, [_QUANT], name=model.id)[_QUANT]


def _published_lens(method: Method) -> list[float]:
    """Return the lengths of steps of llama-server's k at each published acceptance, shortest first."""
    rows = [row for row in load_acceptance() if row.method == method]
    accepted = [acceptance_of(row.mean_len, row.n_draft) for row in rows if row.n_draft]
    return sorted(mean_len(each, DRAFT_TOKENS) for each in accepted if each is not None)


def draft_remark(found: PossibleDraft | None, *, is_here: bool) -> str:
    """Return what could draft, from which length it can pay, and how to measure it; empty for nothing.

    `is_here` is false for a described machine, which speculate does not measure.
    """
    if found is None:
        return ""
    low, high = map(format_number, found.published_len)
    what = "the model's MTP layers"
    if found.model:
        least = format_number(found.least_len)
        room = "" if found.left_bytes is None else f" of the {format_bytes(found.left_bytes)} left"
        what = (
            f"{found.model} {found.quant} (at most {format_bytes(found.needed_bytes)}{room}, with its cache): with k"
            f" {DRAFT_TOKENS}, pays above {least} tokens per step at best"
        )
    others = f"others' acceptance gives {low} to {high} ({counted(found.n_published, 'figure')})"
    where = "" if is_here else " on that machine"
    return sanitize(f"{what}; {others}; measure it{where}: {found.command}")
