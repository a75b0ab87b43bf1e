"""Perplexity and divergence as llama-perplexity computes them (llama.cpp, tools/perplexity), with our intervals.

llama-perplexity's errors assume independent positions. Those of one chunk are not: over chunks the error is 2.0 to 3.5
times as large on real files. So an interval is Student's of the means of the chunks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ggbench.experiments.quality.record import Divergence
from ggbench.stats.intervals import ChunkMean, chunk_mean, t_95

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
    same_top: tuple[int, tuple[int, ...]],
    n_per_chunk: int,
) -> Divergence:
    """Reduce the results of all positions; all arrays have the same length, at least 1.

    `same_top` counts all positions with the same most likely token, and those of each chunk if that is known.
    """
    n_same_top, by_chunk = same_top
    shares = tuple(each / n_per_chunk for each in by_chunk)
    squares, klds = np.square(p_diff, dtype=np.float64), chunk_means(kld, n_per_chunk)
    change = np.asarray(nll, np.float64) - base_nll
    return Divergence(
        kld=chunk_mean(klds, bounds=_POSITIVE),
        kld_percentiles=tuple(zip(PERCENTILES, map(float, np.percentile(kld, PERCENTILES)), strict=True)),
        same_top=chunk_mean(shares, bounds=_SHARE) if shares else ChunkMean(n_same_top / len(kld)),
        p_diff=chunk_mean(chunk_means(p_diff, n_per_chunk)),
        rms_p_diff=chunk_mean(chunk_means(squares, n_per_chunk), math.sqrt, _POSITIVE),
        ln_ppl_ratio=chunk_mean(chunk_means(change, n_per_chunk)),
        base_ppl=perplexity(base_nll, n_per_chunk),
        chunk_kld=klds,
        chunk_same_top=shares,
    )


def running_means(values: Floats, n_per_chunk: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of all values up to the end of each chunk, and half its interval, like `chunk_mean`; 0 if
    unknown.
    """
    means = np.array(chunk_means(values, n_per_chunk))
    count = np.arange(1, len(means) + 1)
    mean = np.cumsum(means) / count
    variance = np.maximum(np.cumsum(np.square(means)) / count - np.square(mean), 0.0)
    points = np.array([0.0, *map(t_95, range(1, len(means)))])
    return mean, points * np.sqrt(variance / np.maximum(count - 1, 1))


def floats(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, np.float32)


def chunk_means(values: Floats, n_per_chunk: int) -> tuple[float, ...]:
    return tuple(map(float, values.reshape(-1, n_per_chunk).mean(axis=1, dtype=np.float64)))
