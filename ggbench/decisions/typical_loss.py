"""What a quant of a type typically loses: the published losses of other models."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence

from ggbench.decisions.pick.record import Loss, PublishedLoss
from ggbench.models.published.quality import ln_ppl_ratio, size_octaves
from ggbench.models.published.rows import PublishedRow, load_published
from ggbench.models.published.selection import fold_quant
from ggbench.stats.intervals import Expected
from ggbench.units import counted

UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
_NEAR_OCTAVES = 2.0
"""Models of a quarter to four times the size count as near."""
_FEWEST = 3
"""Where fewer are near, the nearest ones are taken."""


def typical_loss(quant: str, n_params: int | None) -> Loss | None:
    """Return what a quant of this type loses in other models, against 16 bits; None where nobody published it.

    The value is the median KL divergence over models. Those were published of few models, so the interval is their
    range together with that of ln(PPL / PPL of the 16-bit model), of models of about this size: where a table prints
    both, they agree within a fifth from 0.02 nats on.
    """
    name = fold_quant(quant)
    if name in UNQUANTIZED:
        return Loss(Expected(0.0, 0.0, 0.0), "unquantized", "16 bits are what others are compared with")
    rows = _rows().get(name, ())
    klds = _by_model([(row, row.kld.value) for row in rows if row.kld is not None and row.kld.value is not None])
    if not klds:
        return None
    ratios = _by_model([(row, ratio[0]) for row in rows if (ratio := ln_ppl_ratio(row)) is not None])
    near = _near(ratios, {row.model: size_octaves(row.size, n_params) for row in rows})
    value, known = statistics.median(klds.values()), [*klds.values(), *(ratios[model] for model in near)]
    others = [model for model in near if model not in klds]
    source = f"{name} of {' and '.join(klds)}"
    if others:
        source += f"; range with ln PPL ratios of {counted(len(others), 'model')}"
    return Loss(
        Expected(value, max(0.0, min(known)), max(known)),
        "published typical",
        source,
        tuple(
            PublishedLoss(f"{row.model}, imatrix {row.imatrix}", row.kld.value, row.kld.error or 0.0)
            for row in rows
            if row.kld is not None and row.kld.value is not None
        ),
    )


def _near(ratios: Mapping[str, float], octaves: Mapping[str, float]) -> list[str]:
    """The models of about the size, at least a few."""
    by_distance = sorted(ratios, key=lambda model: (octaves[model], model))
    near = [model for model in by_distance if octaves[model] <= _NEAR_OCTAVES]
    return near if len(near) >= _FEWEST else by_distance[:_FEWEST]


def _by_model(rows: Sequence[tuple[PublishedRow, float]]) -> dict[str, float]:
    """The median of each model, with and without an importance matrix."""
    found: dict[str, list[float]] = {}
    for row, loss in rows:
        found.setdefault(row.model, []).append(loss)
    return {model: statistics.median(losses) for model, losses in found.items()}


@functools.cache
def _rows() -> Mapping[str, tuple[PublishedRow, ...]]:
    """The rows with a perplexity, by quant."""
    found: dict[str, list[PublishedRow]] = {}
    for row in load_published():
        if row.perplexity is not None and row.quant is not None:
            found.setdefault(row.quant, []).append(row)
    return {quant: tuple(rows) for quant, rows in found.items()}
