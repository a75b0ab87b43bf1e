"""Lower bound on the time to process a prompt, what bounds it at each length, and where that changes.

A short prompt is bound by reading the weights, a longer one by compute. As in the article each token reads all KV
before it, so that very long prompts are bound by KV; `PrefillCurve.floor_ms` reads it once, as flash attention does at
best.
"""

from __future__ import annotations

import enum

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.weights import Floats, Weights


class Bound(enum.IntEnum):
    """What limits the speed at some prompt length."""

    WEIGHTS = 0
    COMPUTE = 1
    KV = 2


class Regime(msgspec.Struct, frozen=True):
    """A range of prompt lengths with the same bound, both ends included."""

    bound: Bound
    first_n: int
    last_n: int


class PrefillCurve(msgspec.Struct, frozen=True):
    """Times over a range of prompt lengths; every array has the shape of `n`."""

    n: npt.NDArray[np.int64]
    """Prompt lengths in tokens, ascending."""
    weights_ms: Floats
    """Time to read the weights once."""
    kv_ms: Floats
    """Time to read the KV cache, each token all positions up to its own."""
    kv_once_ms: Floats
    """Time to read the KV cache of the whole prompt once."""
    compute_ms: Floats

    @property
    def floor_ms(self) -> Floats:
        """Maximum of compute time and the time to read weights and KV once.

        FlashAttention (Dao et al. 2022, arXiv:2205.14135, theorem 2): with M numbers of on-chip memory, a head of
        dimension d reads O(n^2 d^2 / M) numbers, which falls to O(n d), that is K and V once, when M is of the order of
        n d. Smaller blocks read more.
        """
        return np.maximum(self.weights_ms + self.kv_once_ms, self.compute_ms)

    @property
    def read_ms(self) -> Floats:
        """Time to read weights and KV."""
        return self.weights_ms + self.kv_ms

    @property
    def latency_ms(self) -> Floats:
        """First-token latency: maximum of read time and compute time."""
        return np.maximum(self.read_ms, self.compute_ms)

    def bounds(self) -> npt.NDArray[np.int64]:
        """Return the `Bound` at each length: compute, or the larger of the two reads."""
        reading = np.where(self.kv_ms > self.weights_ms, Bound.KV, Bound.WEIGHTS)
        return np.where(self.compute_ms > self.read_ms, Bound.COMPUTE, reading)

    def regimes(self) -> tuple[Regime, ...]:
        """Return the ranges of lengths with the same bound, in order."""
        bounds = self.bounds()
        starts = np.flatnonzero(np.diff(bounds, prepend=-1))
        ends = np.append(starts[1:], len(bounds)) - 1
        return tuple(
            Regime(Bound(int(bounds[start])), int(self.n[start]), int(self.n[end]))
            for start, end in zip(starts, ends, strict=True)
        )

    def knees(self) -> tuple[int, ...]:
        """Return the last length before each change between read-bound and compute-bound; empty if none is in range.

        At the first the bound changes from weights to compute, at a second from compute to KV (section 4.3).
        """
        computing = self.compute_ms > self.read_ms
        return tuple(int(n) for n in self.n[:-1][computing[1:] != computing[:-1]])


def prefill_curve(
    weights: Weights,
    kv: KvCache,
    bandwidth_bytes_per_s: float,
    compute_flop_per_s: float,
    n: npt.ArrayLike,
    batch_size: int = 1,
) -> PrefillCurve:
    """Compute the minimum time [ms] to process prompts of ascending lengths n, `batch_size` of them together.

    latency(n) = max(read(n), compute(n)), with, for one sequence:

        read(n)    = (weight bytes + n * (n + 1) / 2 * KV bytes per token) / bandwidth
        compute(n) = 2 * (layer params * n + lm_head params + attention over n * (n + 1) / 2 pairs) / compute rate

    lm_head is computed for the last token alone: the article's exact count. Sources: sections 4.3, 5.1 and 5.2.4.
    """
    lengths = np.asarray(n, np.int64)
    parameters = weights.parameters
    per_token, once = parameters.layers_active * lengths.astype(np.float64), parameters.lm_head
    flop = batch_size * (2.0 * (per_token + once) + kv.prefill_flop(lengths))
    ms_per_byte = 1e3 / bandwidth_bytes_per_s
    return PrefillCurve(
        n=lengths,
        weights_ms=weights.read_bytes(lengths * batch_size) * ms_per_byte,
        kv_ms=batch_size * kv.prefill_bytes(lengths) * ms_per_byte,
        kv_once_ms=batch_size * kv.prompt_bytes(lengths) * ms_per_byte,
        compute_ms=flop / compute_flop_per_s * 1e3,
    )
