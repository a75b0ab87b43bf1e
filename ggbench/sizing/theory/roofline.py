"""Bandwidth bound on decode speed: each token reads the active weights once and the KV cache once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggbench.errors import UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.weights import Floats, Weights, file_weights
from ggbench.stats.decode_timing import Bandwidth, DecodeLimit


def decode_limit(
    model: ModelFile, bandwidth: Bandwidth, type_k: str = "f16", type_v: str = "f16", n_seqs: int = 1
) -> DecodeLimit:
    """Return the bandwidth bound on decode latency: B [ms] reads the active weights and one position, 1/W one more.

    Of `n_seqs` sequences a step reads the weights once and the position of each. Source: the article, section 4.4, and
    5.1 for a batch. Raises Unsupported if the state is not a KV cache or a tensor's size is unknown,
    and UsageError for a bandwidth that is not above zero.
    """
    weights = file_weights(model, model.name)
    w_tokens_per_ms, b_ms = decode_line(weights, kv_cache(model, type_k, type_v), bandwidth.bytes_per_s, n_seqs)
    return DecodeLimit(
        w_tokens_per_ms=w_tokens_per_ms,
        b_ms=b_ms,
        bandwidth_bytes_per_s=bandwidth.bytes_per_s,
        bandwidth_source=bandwidth.source,
    )


def decode_line(
    weights: Weights, kv: KvCache, bandwidth_bytes_per_s: float, batch_size: int = 1
) -> tuple[float | None, float]:
    """Return W [tokens/ms] and B [ms] of latency(n) = (n - 1) / W + B for a batch of sequences, each at position n.

    Source: the article, sections 4.4, 5.1 and 5.2.5. B is the latency at n = 1, so it includes one position of KV,
    which the article's text omits but its figures include. If some layers have a window, latency is piecewise linear
    and W is that of the part beyond the window; None if every layer has one, so that latency does not grow. Raises
    UsageError for a bandwidth that is not above zero.
    """
    if not bandwidth_bytes_per_s > 0:
        raise UsageError(f"a bandwidth of {bandwidth_bytes_per_s} bytes/s is not above zero", "write it as 1008GB/s")
    growth = (kv.full.read_bytes + (0 if kv.window else kv.windowed.read_bytes)) * batch_size
    w_tokens_per_ms = bandwidth_bytes_per_s / growth / 1e3 if growth else None
    return w_tokens_per_ms, float(decode_read_ms(weights, kv, bandwidth_bytes_per_s, 1, batch_size))


def decode_read_ms(
    weights: Weights, kv: KvCache, bandwidth_bytes_per_s: float, n: npt.ArrayLike, batch_size: int = 1
) -> Floats:
    """Return the time [ms] to read the weights once, and what each sequence keeps at position n (section 4.4)."""
    n_bytes = weights.read_bytes(batch_size) + batch_size * kv.read_bytes(n)
    return np.asarray(n_bytes / bandwidth_bytes_per_s * 1e3)


def decode_compute_ms(
    weights: Weights, kv: KvCache, compute_flop_per_s: float, n: npt.ArrayLike, batch_size: int = 1
) -> Floats:
    """Return the compute time [ms] of one step: two operations per active parameter, and attention (section 4.4)."""
    flop = batch_size * (2 * weights.parameters.active + kv.attention_flop(n))
    return np.asarray(flop / compute_flop_per_s * 1e3)


def decode_latency_ms(
    weights: Weights,
    kv: KvCache,
    bandwidth_bytes_per_s: float,
    compute_flop_per_s: float | None,
    n: npt.ArrayLike,
    batch_size: int = 1,
) -> Floats:
    """Return the maximum of read time and compute time [ms]; the read time if the compute rate is unknown."""
    read_ms = decode_read_ms(weights, kv, bandwidth_bytes_per_s, n, batch_size)
    if compute_flop_per_s is None:
        return read_ms
    return np.maximum(read_ms, decode_compute_ms(weights, kv, compute_flop_per_s, n, batch_size))
