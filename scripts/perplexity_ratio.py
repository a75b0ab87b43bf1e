"""The loss of a published row by its perplexity: the ratio to that of its base, as printed or from the same table."""

from __future__ import annotations

import functools
import math

from ggbench.models.published import PublishedRow, load_published


def ln_ppl_ratio(row: PublishedRow) -> tuple[float, float | None] | None:
    """Return a row's ln(PPL / PPL of its base) and its standard error; None if unknown.

    Computed from the first of these that is printed: the ratio, the difference, the base in the same table if no
    divergence is, which tells more.
    """
    ppl, ratio, difference = (row.figures.get(name) for name in ("perplexity", "ppl_ratio", "ppl_difference"))
    if ppl is None or ppl.value is None:
        return None
    if ratio is not None and ratio.value is not None:
        return math.log(ratio.value), None if ratio.error is None else ratio.error / ratio.value
    if difference is not None and difference.value is not None:
        return math.log(ppl.value / (ppl.value - difference.value)), None
    base = _bases().get((row.source, row.table, row.model))
    return None if base is None or is_base(row) or "kld" in row.figures else (math.log(ppl.value / base), None)


def is_base(row: PublishedRow) -> bool:
    """Return whether a row is of the quant that the others of its table are compared with."""
    return row.type_k is None and row.quant == (row.base or "f16")


@functools.cache
def _bases() -> dict[tuple[str, str, str], float]:
    """Return the perplexities of the models that others are compared with, by source, table and model."""
    return {
        (row.source, row.table, row.model): ppl.value
        for row in load_published()
        if is_base(row) and (ppl := row.figures.get("perplexity")) and ppl.value
    }
