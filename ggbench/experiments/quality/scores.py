"""Perplexity and divergence as llama-perplexity computes them (llama.cpp, tools/perplexity), with our intervals.

llama-perplexity's errors assume independent positions. Those of one chunk are not: over chunks the error is 2.0 to 3.5
times as large on real files. So an interval is Student's of the means of the chunks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ggbench.experiments.quality.record import Divergence
from ggbench.stats.intervals import ChunkMean, chunk_mean

Floats = NDArray[np.float32] | NDArray[np.float64]

PERCENTILES = (100.0, 99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1, 0.0)
"""The percentiles printed by llama-perplexity."""
_POSITIVE, _SHARE = (0.0, math.inf), (0.0, 1.0)


def perplexity(nll: Floats, n_per_chunk: int) -> ChunkMean:
    """Return exp of the mean nll, with its interval."""
    return chunk_mean(chunk_means(nll, n_per_chunk), math.exp)


def divergence(
    nll: Floats,
    base_nll: Floats,
    kld: Floats,
    p_diff: Floats,
    same_top: tuple[float, ...],
) -> Divergence:
    """Reduce the results of all positions; all arrays have the same length, at least 1.

    `same_top` is the share of the positions of each chunk with the same most likely token.
    """
    n_per_chunk = len(nll) // len(same_top)
    squares, klds = np.square(p_diff, dtype=np.float64), chunk_means(kld, n_per_chunk)
    change = np.asarray(nll, np.float64) - base_nll
    return Divergence(
        kld=chunk_mean(klds, bounds=_POSITIVE),
        kld_percentiles=tuple(zip(PERCENTILES, map(float, np.percentile(kld, PERCENTILES)), strict=True)),
        same_top=chunk_mean(same_top, bounds=_SHARE),
        p_diff=chunk_mean(chunk_means(p_diff, n_per_chunk)),
        rms_p_diff=chunk_mean(chunk_means(squares, n_per_chunk), math.sqrt, _POSITIVE),
        ln_ppl_ratio=chunk_mean(chunk_means(change, n_per_chunk)),
        base_ppl=perplexity(base_nll, n_per_chunk),
        chunk_kld=klds,
        chunk_same_top=same_top,
    )


def floats(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, np.float32)


def chunk_means(values: Floats, n_per_chunk: int) -> tuple[float, ...]:
    return tuple(map(float, values.reshape(-1, n_per_chunk).mean(axis=1, dtype=np.float64)))
