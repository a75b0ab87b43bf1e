"""What a quant of a type typically loses: the published losses of other models."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping

from ggbench.catalog.published.quality import ln_ppl_ratio, size_octaves
from ggbench.catalog.published.rows import load_published
from ggbench.catalog.published.selection import fold_quant
from ggbench.records.forecast import Expected
from ggbench.records.pick import Loss
from ggbench.units import counted

UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
_NEAR_OCTAVES = 2.0
"""Models of a quarter to four times the size count as near."""
_FEWEST = 3
"""Where fewer are near, the nearest ones are taken."""


def typical_loss(quant: str, n_params: int | None) -> Loss | None:
    """Return what a quant of this type loses in models of about this size, against 16 bits; None where unpublished.

    The figure is ln(PPL / PPL of the 16-bit model), which most sources have: the median over models, with their range.
    Where a table prints both, the KL divergence agrees within a fifth from 0.02 nats on. Of a model that several rows
    are of, with and without an importance matrix, it is the mean.
    """
    name = fold_quant(quant)
    if name in UNQUANTIZED:
        return Loss(Expected(0.0, 0.0, 0.0), "ln PPL ratio", "unquantized", "16 bits are what others are compared with")
    published = _published().get(name)
    if published is None:
        return None
    by_distance = sorted(published, key=lambda model: (size_octaves(published[model][0], n_params), model))
    near = [model for model in by_distance if size_octaves(published[model][0], n_params) <= _NEAR_OCTAVES]
    chosen = near if len(near) >= _FEWEST else by_distance[:_FEWEST]
    losses = {model: published[model][1] for model in chosen}
    low, high = (min(losses.values()), max(losses.values())) if len(losses) > 1 else (0.0, math.inf)
    names = ", ".join(losses) if len(losses) <= _FEWEST else counted(len(losses), "model")
    return Loss(
        Expected(statistics.median(losses.values()), low, high),
        "ln PPL ratio",
        "published typical",
        f"{name} of {names}",
        tuple((model, loss) for model, (_, loss) in published.items()),
    )


@functools.cache
def _published() -> Mapping[str, Mapping[str, tuple[str, float]]]:
    """By quant and model: its size as printed, and its loss."""
    found: dict[str, dict[str, tuple[str, list[float]]]] = {}
    for row in load_published():
        ratio = ln_ppl_ratio(row)
        if ratio is not None and row.quant is not None:
            found.setdefault(row.quant, {}).setdefault(row.model, (row.size, []))[1].append(ratio[0])
    return {
        quant: {model: (size, statistics.fmean(losses)) for model, (size, losses) in models.items()}
        for quant, models in found.items()
    }
