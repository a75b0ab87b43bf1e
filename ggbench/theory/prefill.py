"""How fast a prompt can be read: what bounds it at each length, and the lengths where that changes.

A short prompt waits for the weights, a longer one computes, and a very long one may read its own KV cache for longer
than it computes. "Rough" applies lm_head to every token, "exact" to the last one alone.

That last regime is the article's: each token reads all of the cache before it from memory. Flash attention shares the
reads of neighbouring tokens, so real prompts get below that line, down to `floor_ms`.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.theory.kv_cache import KvCache
from ggbench.theory.weights import Floats, Weights


class Bound(enum.IntEnum):
    """What a prompt of some length waits for."""

    WEIGHTS = 0
    COMPUTE = 1
    KV = 2


@dataclass(frozen=True, slots=True)
class Regime:
    """A range of lengths with one bound, both ends included."""

    bound: Bound
    first_n: int
    last_n: int


@dataclass(frozen=True, slots=True)
class PrefillCurve:
    """Times over a range of lengths; every array has the shape of `n`."""

    n: npt.NDArray[np.int64]
    """Rising lengths of the prompt, in tokens."""
    weights_ms: Floats
    """To read the weights once."""
    kv_ms: Floats
    """To read the KV cache, each token all before it."""
    kv_once_ms: Floats
    """To read the KV cache of the whole prompt once: what kernels come near to that share a read between tokens."""
    compute_ms: Floats

    @property
    def floor_ms(self) -> Floats:
        """The later of computing and of reading everything once; no implementation is quicker."""
        return np.maximum(self.weights_ms + self.kv_once_ms, self.compute_ms)

    @property
    def read_ms(self) -> Floats:
        """To read weights and KV."""
        return self.weights_ms + self.kv_ms

    @property
    def latency_ms(self) -> Floats:
        """First-token latency: the later of reading and computing."""
        return np.maximum(self.read_ms, self.compute_ms)

    def bounds(self) -> npt.NDArray[np.int64]:
        """The `Bound` at each length; of the two kinds of reading the longer one."""
        reading = np.where(self.kv_ms > self.weights_ms, Bound.KV, Bound.WEIGHTS)
        return np.where(self.compute_ms > self.read_ms, Bound.COMPUTE, reading)

    def regimes(self) -> tuple[Regime, ...]:
        """The ranges of lengths with one bound, in order."""
        bounds = self.bounds()
        starts = np.flatnonzero(np.diff(bounds, prepend=-1))
        ends = np.append(starts[1:], len(bounds)) - 1
        return tuple(
            Regime(Bound(int(bounds[start])), int(self.n[start]), int(self.n[end]))
            for start, end in zip(starts, ends, strict=True)
        )

    def knees(self) -> tuple[int, ...]:
        """The last length before each change between reading and computing; empty where there is none in the range.

        Of two, the first is where weights give way to compute, the second where compute gives way to KV (section 4.3).
        """
        computing = self.compute_ms > self.read_ms
        return tuple(int(n) for n in self.n[:-1][computing[1:] != computing[:-1]])


def prefill_curve(
    weights: Weights,
    kv: KvCache,
    bandwidth_bytes_per_s: float,
    compute_flop_per_s: float,
    n: npt.ArrayLike,
    *,
    exact: bool = True,
    batch_size: int = 1,
) -> PrefillCurve:
    """Times [ms] to read prompts of rising lengths n, `batch_size` of them together.

    Source: the article, sections 4.3, 5.1 and 5.2.4: the weights are read once, token i reads i positions of KV, each
    parameter costs two operations for each token. Not `exact`: lm_head is computed for every token.
    """
    lengths = np.asarray(n, np.int64)
    parameters = weights.parameters
    per_token = parameters.layers_active if exact else parameters.active
    once = parameters.lm_head if exact else 0
    flop = batch_size * (2.0 * (per_token * lengths.astype(np.float64) + once) + kv.prefill_flop(lengths))
    weight_bytes = weights.read_bytes(lengths * batch_size)
    return PrefillCurve(
        n=lengths,
        weights_ms=weight_bytes / bandwidth_bytes_per_s * 1e3,
        kv_ms=batch_size * kv.prefill_bytes(lengths) / bandwidth_bytes_per_s * 1e3,
        kv_once_ms=batch_size * kv.cached_bytes(lengths) / bandwidth_bytes_per_s * 1e3,
        compute_ms=flop / compute_flop_per_s * 1e3,
    )


def with_weights(curve: PrefillCurve, weights: Weights, bandwidth_bytes_per_s: float, batch_size: int) -> PrefillCurve:
    """The same prompts with the same model's weights stored otherwise, which changes the time to read them alone."""
    weight_bytes = weights.read_bytes(curve.n * batch_size)
    return dataclasses.replace(curve, weights_ms=weight_bytes / bandwidth_bytes_per_s * 1e3)
