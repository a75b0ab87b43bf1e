"""Published perplexities and divergences: which are nearest to a score of one's own, and in what they differ."""

from __future__ import annotations

import functools
import math
import re

import msgspec

from ggbench.models.published.rows import PublishedRow, load_published
from ggbench.models.published.selection import NearRow, fold_quant, nominal_bits

_BILLION = re.compile(r"([0-9]+(?:\.[0-9]+)?)B")
_FAR_OCTAVES = 32.0


class Scored(msgspec.Struct, frozen=True):
    """How one's own score was made; None where it is not known."""

    model: str | None
    """The published name of the model; None where nobody published it."""
    own_model: str
    """Its name otherwise."""
    n_params: int | None
    quant: str
    kv_types: str
    """`f16`, or both types of the KV cache."""
    text: str
    """Its name; `wikitext-2` for that text, whatever the file's name."""
    n_ctx: int
    n_chunks: int
    is_whole: bool
    """Whether these are all chunks of the text."""
    base: str | None
    """Quant and KV type of what it was compared with."""


def nearest_quality(own: Scored, limit: int = 3) -> tuple[NearRow, ...]:
    """Return the published qualities nearest to a score.

    The same quant comes first, then the same model, then rows with a KL divergence, then models of that size. Rows of
    other models are among them: what a quant costs relative to its base compares, which perplexity does not.
    """

    def distance(row: PublishedRow) -> tuple[float, bool, bool, float, bool]:
        same = row.quant == fold_quant(own.quant)
        return (
            -1.0 if same else abs(nominal_bits(row.quant or "") - nominal_bits(own.quant)),
            row.model != own.model,
            row.kld is None,
            size_octaves(row.size, own.n_params),
            row.imatrix is not None,
        )

    rows = (row for row in load_published() if row.perplexity is not None)
    return tuple(NearRow(row, _differences(row, own)) for row in sorted(rows, key=distance)[:limit])


def ln_ppl_ratio(row: PublishedRow) -> tuple[float, float | None] | None:
    """Return ln(PPL / PPL of the 16-bit model) of a published row, and its standard error; None for what is not known.

    It follows from the printed ratio, else from the difference, else from the 16-bit model in the same table.
    """
    ppl, ratio, difference = row.perplexity, row.ppl_ratio, row.ppl_difference
    if ppl is None or ppl.value is None:
        return None
    if ratio is not None and ratio.value is not None:
        return math.log(ratio.value), None if ratio.error is None else ratio.error / ratio.value
    if difference is not None and difference.value is not None:
        return math.log(ppl.value / (ppl.value - difference.value)), None
    unquantized = _unquantized().get((row.source, row.table, row.model))
    return None if unquantized is None or row.quant == "f16" else (math.log(ppl.value / unquantized), None)


@functools.cache
def _unquantized() -> dict[tuple[str, str, str], float]:
    """Perplexities of the 16-bit models, by source, table and model."""
    return {
        (row.source, row.table, row.model): row.perplexity.value
        for row in load_published()
        if row.quant == "f16" and row.perplexity is not None and row.perplexity.value
    }


def _differences(row: PublishedRow, own: Scored) -> tuple[str, ...]:
    found = [] if row.model == own.model else [f"model {row.model}, not {own.own_model}"]
    if row.quant != fold_quant(own.quant):
        found.append(f"quant {row.quant}, not {own.quant}")
    if row.imatrix:
        found.append(f"importance matrix {row.imatrix}")
    if own.kv_types != "f16":
        found.append(f"KV cache f16, not {own.kv_types}")
    if row.text != own.text:
        found.append(f"text {row.text}, not {own.text}")
    if row.n_ctx != own.n_ctx:
        found.append(f"n_ctx {'not stated' if row.n_ctx is None else row.n_ctx}, not {own.n_ctx}")
    if not own.is_whole:
        found.append(f"the whole text, not {own.n_chunks} chunks")
    if row.base is not None and own.base is not None and row.base != own.base:
        found.append(f"compared with {row.base}, not {own.base}")
    return tuple(found)


def size_octaves(printed: str, n_params: int | None) -> float:
    """Return the distance of a printed size, `7B`, from a number of parameters, in octaves; far where unknown."""
    size = _BILLION.match(printed)
    return _FAR_OCTAVES if size is None or not n_params else abs(math.log2(float(size[1]) * 1e9 / n_params))
