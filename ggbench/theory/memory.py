"""Longest context that fits in memory next to the weights, compute buffers not counted."""

from __future__ import annotations

from ggbench.theory.kv_cache import KvCache
from ggbench.theory.weights import Weights


def n_ctx_that_fits(memory_bytes: float, weights: Weights, kv: KvCache, batch_size: int = 1) -> int | None:
    """Return the context length that each of `batch_size` sequences can have; None if the weights alone do not fit.

    Source: the article, sections 3.3, 5.1 and 5.2.3. The embedding table is not counted, since llama.cpp keeps it in
    main memory. Compute buffers are not counted either, so the context that really fits is shorter.
    """
    left_bytes = memory_bytes - weights.resident_bytes
    return kv.n_that_fit(left_bytes / batch_size) if left_bytes >= 0 else None
