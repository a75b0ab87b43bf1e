"""How long a context fits into a memory beside the weights; what llama.cpp computes in is left out."""

from __future__ import annotations

from ggbench.theory.kv_cache import KvCache
from ggbench.theory.weights import Weights


def n_ctx_that_fits(memory_bytes: float, weights: Weights, kv: KvCache, batch_size: int = 1) -> int | None:
    """Tokens of context that each of `batch_size` sequences can have; None where the weights alone do not fit.

    Source: the article, sections 3.3, 5.1 and 5.2.3. The embeddings' table is left out, for llama.cpp keeps it in main
    memory, and so are compute buffers: what really fits is less.
    """
    left_bytes = memory_bytes - weights.resident_bytes
    return kv.n_that_fit(left_bytes / batch_size) if left_bytes >= 0 else None
