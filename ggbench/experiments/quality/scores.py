"""Perplexity and divergence with their errors, as llama-perplexity computes them (llama.cpp, tools/perplexity).

Its errors assume independent positions. Those of one chunk are not quite independent, so comparisons of two runs pair
the means of whole chunks instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ggbench.experiments.quality.record import Divergence
from ggbench.stats.intervals import Estimate, MeanError, t_95

Floats = NDArray[np.float32] | NDArray[np.float64]

PERCENTILES = (100.0, 99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1, 0.0)
"""The percentiles printed by llama-perplexity."""

_MIN_PAIRS = 4


def perplexity(nll: Floats) -> MeanError:
    """Return exp of the mean nll, and its standard error; 0 for a single position, whose error is unknown."""
    mean = mean_and_error(nll)
    ppl = math.exp(mean.mean)
    return MeanError(ppl, ppl * mean.error)


def mean_and_error(values: Floats) -> MeanError:
    """Return the mean and its standard error, sqrt((E[v²] - E[v]²) / (n - 1)); 0 for fewer than two values."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    return MeanError(mean, float(values.std()) / math.sqrt(len(values) - 1) if len(values) > 1 else 0.0)


def divergence(nll: Floats, base_nll: Floats, kld: Floats, p_diff: Floats, n_same_top: int) -> Divergence:
    """Reduce the results of all positions; all arrays have the same length, at least 1."""
    count = len(kld)
    squares = mean_and_error(np.square(p_diff, dtype=np.float64))
    rms = math.sqrt(squares.mean)
    same = n_same_top / count
    return Divergence(
        kld=mean_and_error(kld),
        kld_percentiles=tuple(zip(PERCENTILES, map(float, np.percentile(kld, PERCENTILES)), strict=True)),
        same_top=MeanError(same, math.sqrt(same * (1 - same) / (count - 1)) if count > 1 else 0.0),
        p_diff=mean_and_error(p_diff),
        rms_p_diff=MeanError(rms, 0.5 / rms * squares.error if rms else 0.0),
        ln_ppl_ratio=mean_and_error(np.asarray(nll, np.float64) - base_nll),
        base_ppl=perplexity(base_nll),
    )


def paired_difference(one: Sequence[float], other: Sequence[float]) -> Estimate | None:
    """Return the difference of the mean nll of two runs, ln of the ratio of their perplexities, from the means of the
    chunks that both scored, with Student's interval; None if they share too few chunks.
    """
    count = min(len(one), len(other))
    if count < _MIN_PAIRS:
        return None
    found = mean_and_error(np.asarray(one[:count], np.float64) - np.asarray(other[:count], np.float64))
    half = t_95(count - 1) * found.error
    return Estimate(found.mean, found.mean - half, found.mean + half)


def running_means(values: Floats, n_per_chunk: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of all values up to the end of each chunk, and its standard error, like `mean_and_error`."""
    chunks = np.asarray(values, np.float64).reshape(-1, n_per_chunk)
    count = n_per_chunk * np.arange(1, len(chunks) + 1)
    mean = np.cumsum(chunks.sum(axis=1)) / count
    variance = np.cumsum(np.square(chunks).sum(axis=1)) / count - np.square(mean)
    return mean, np.sqrt(np.maximum(variance, 0.0) / np.maximum(count - 1, 1))


def floats(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, np.float32)


def chunk_means(values: Floats, n_per_chunk: int) -> tuple[float, ...]:
    return tuple(map(float, values.reshape(-1, n_per_chunk).mean(axis=1, dtype=np.float64)))
