"""What could draft for a pick, without a measurement: the model's own MTP layers, or a small model of its family.

Only a bound is known. With k drafted tokens, llama-server reads the model's weights once, and the draft's at least
k + 1 times: for each token, and for the batch again. So a step takes at least 1 + (k + 1) x draft / model of a token's
time, in bytes read, and pays only if it yields more tokens than that. It never decides a pick.
"""

from __future__ import annotations

import msgspec

from ggbench.decisions.pick.record import Pick
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import plan_twin
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.published.acceptance import Method, load_acceptance
from ggbench.sizing.drafts import MOST_TOKENS_APART
from ggbench.sizing.plan_record import Budget
from ggbench.units import format_bytes, format_number

_N_DRAFTED = 3
"""llama-server's default."""
_QUANT = "q8_0"
_LARGEST_SHARE = 0.25
"""Of the model's parameters: a larger draft reads too much to pay."""


class PossibleDraft(msgspec.Struct, frozen=True):
    """Something that could draft for a candidate."""

    method: Method
    model: str
    """Id of the catalog; empty for MTP layers."""
    quant: str
    weight_bytes: int | None
    """None for MTP layers, which are part of the model."""
    least_len: float | None
    """Mean tokens of a step that it needs at least to pay; None for MTP layers, whose cost is not known."""
    published_len: tuple[float, float]
    """Range of the mean lengths that others published for this method."""

    @property
    def words(self) -> str:
        """The options of speculate."""
        return f"... --draft {self.model} {self.quant}" if self.model else "... --mtp --engine llama-server"


def possible_draft(pick: Pick, budget: Budget) -> PossibleDraft | None:
    """Return what could draft for the pick, if it is a model of the catalog.

    None if something already drafts, or no small model of the family fits beside it.
    """
    if pick.recommended is None or budget.draft is not None or pick.recommended.candidate.setup.mtp:
        return None
    candidate = pick.recommended.candidate
    model = _in_catalog(candidate.row.model)
    if model is None or not candidate.row.weight_bytes:
        return None
    if model.hyper.n_layer_nextn:
        return PossibleDraft("mtp", "", "", None, None, _published("mtp"))
    planned = _planned(model)
    alike = [each for each in load_catalog() if each.family == model.family and not each.hyper.n_expert]
    compatible = [each for each in alike if abs(each.hyper.n_vocab - model.hyper.n_vocab) <= MOST_TOKENS_APART]
    smaller = [(small.n_params, each.id, small) for each in compatible for small in (_planned(each),)]
    n_params, name, small = min(smaller, default=(planned.n_params, "", planned))
    has_room = candidate.row.left_bytes is None or (small.weight_bytes or 0) < candidate.row.left_bytes
    if n_params > _LARGEST_SHARE * planned.n_params or not has_room:
        return None
    share = _read_bytes(small, small.weight_bytes) / _read_bytes(planned, candidate.row.weight_bytes)
    return PossibleDraft("draft", name, _QUANT, small.weight_bytes, 1 + (_N_DRAFTED + 1) * share, _published("draft"))


def _read_bytes(planned: ModelFile, weight_bytes: int | None) -> float:
    """Return the bytes of a file of this size that a token reads: of a mixture, those of its active experts."""
    return (weight_bytes or 0) * (planned.active_weight_bytes or 0) / (planned.weight_bytes or 1)


def _planned(model: CatalogModel) -> ModelFile:
    return plan_twin(model.hyper, [_QUANT], name=model.id)[_QUANT]


def _in_catalog(name: str) -> CatalogModel | None:
    catalog, bare = load_catalog(), name.removeprefix("twin:").lower()
    return next((each for each in catalog if each.id == bare), None) or catalog.of_repo(bare)


def _published(method: Method) -> tuple[float, float]:
    lens = [row.mean_len for row in load_acceptance() if row.method == method]
    return min(lens), max(lens)


def draft_remark(found: PossibleDraft | None) -> str:
    """Return what could draft, from which length it can pay, and how to measure it; empty for nothing."""
    if found is None:
        return ""
    low, high = map(format_number, found.published_len)
    what = "the model's MTP layers"
    if found.model:
        size, least = format_bytes(found.weight_bytes), format_number(found.least_len)
        what = f"{found.model} {found.quant} ({size}): pays above {least} tokens per step at best (k {_N_DRAFTED})"
    return f"{what}; others' reach {low} to {high}; ggbench speculate {found.words} measures it"
