"""Simulated latencies of a decode: a climb on a ramp or in stairs, and correlated noise."""

import itertools
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

W, B = 2064.0, 13.12
"""The article's 7B at 16 bits on its GPU (section 4.4)."""

NOISE = 0.03
"""Standard deviation over B."""


def positions(n: int) -> Floats:
    return np.arange(26, 26 + n, dtype=np.float64)


def ramp(position: Floats, w: float = W) -> Floats:
    return B + (position - 1) / w


def stairs(position: Floats, w: float = W) -> Floats:
    """Latency in ms where 256 cells are read at a time: the middle of a stair lies on the ramp."""
    return B + (np.ceil(position / 256) * 256 - 128.5) / w


def correlated(rng: np.random.Generator, n: int, n_runs: int, phi: float) -> Floats:
    """One-sided multiplicative noise of mean 0, AR(1) in its logarithm; shape (n_runs, n)."""
    shocks = rng.standard_normal((n, n_runs))
    shocks[1:] *= math.sqrt(1 - phi**2)
    for earlier, later in itertools.pairwise(shocks):
        later += phi * earlier
    return np.exp(NOISE * shocks.T - NOISE**2 / 2) - 1
