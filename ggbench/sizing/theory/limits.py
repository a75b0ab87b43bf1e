"""All theoretical limits of one model on one machine, for the reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.sizing.theory.hardware import Hardware
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.prefill import PrefillCurve, prefill_curve
from ggbench.sizing.theory.roofline import decode_latency_ms, decode_line
from ggbench.sizing.theory.weights import Weights

DECODE_POSITIONS = (1024, 8192, 32768)
"""1k, 8k and 32k, with K as 1024 tokens."""


class DecodePoint(msgspec.Struct, frozen=True):
    """Maximum decode speed at one position."""

    n: int
    latency_ms: float
    """Latency of one step of the batch."""
    tok_s: float
    """Throughput over all sequences of the batch."""
    fits: bool | None
    """Whether a context of n tokens fits; None if the memory is unknown."""


class SchemeLimits(msgspec.Struct, frozen=True):
    """Limits of one weight and KV type at one batch size; None if the hardware figure is unknown."""

    weights: Weights
    kv: KvCache
    batch_size: int
    max_n_ctx: int | None
    """Tokens for each sequence; None also if the weights alone do not fit."""
    fits: bool | None
    """Whether the weights and one token of each sequence fit."""
    w_tokens_per_ms: float | None
    """None also if the bytes read for a token do not grow with the context."""
    b_ms: float | None
    decode: tuple[DecodePoint, ...]
    prefill: PrefillCurve | None

    @property
    def scheme(self) -> str:
        """`w16kv16`, `q4_k_m kv16`; a KV type other than 16 or 32 bits is named: `w4kv-q8_0`."""
        kv = self.kv
        plain = {"f16": "kv16", "bf16": "kv16", "f32": "kv32"}
        if kv.type_k == kv.type_v or plain.get(kv.type_k, "") == plain.get(kv.type_v):
            name = plain.get(kv.type_k, f"kv-{kv.type_k}")
        else:
            name = f"k-{kv.type_k} v-{kv.type_v}"
        return f"{self.weights.name}{name if self.weights.name.startswith('w') else f' {name}'}"


def model_limits(
    weights: Sequence[Weights],
    kv: KvCache,
    hardware: Hardware,
    lengths: Sequence[int] | range,
    batch_sizes: Sequence[int] = (1,),
    positions: Sequence[int] = DECODE_POSITIONS,
) -> tuple[SchemeLimits, ...]:
    """Return the limits for each of `weights` and batch size, at ascending prompt `lengths` and decode `positions`."""
    n = np.asarray(lengths, np.int64)
    return tuple(
        _scheme_limits(scheme, kv, hardware, n, batch_size, positions)
        for scheme in weights
        for batch_size in batch_sizes
    )


def n_ctx_that_fits(memory_bytes: float, weights: Weights, kv: KvCache, batch_size: int = 1) -> int | None:
    """Return the context length that each of `batch_size` sequences can have; None if the weights alone do not fit.

    Source: the article, sections 3.3, 5.1 and 5.2.3. The embedding table is not counted, since llama.cpp keeps it in
    main memory. Compute buffers are not counted either, so the context that really fits is shorter.
    """
    left_bytes = memory_bytes - weights.resident_bytes
    return kv.n_that_fit(left_bytes / batch_size) if left_bytes >= 0 else None


def _scheme_limits(
    weights: Weights,
    kv: KvCache,
    hardware: Hardware,
    lengths: npt.NDArray[np.int64],
    batch_size: int,
    positions: Sequence[int],
) -> SchemeLimits:
    bandwidth, memory, compute = hardware.bandwidth_bytes_per_s, hardware.memory_bytes, hardware.compute_flop_per_s
    max_n_ctx = None if memory is None else n_ctx_that_fits(memory, weights, kv, batch_size)
    w_tokens_per_ms, b_ms = (None, None) if bandwidth is None else decode_line(weights, kv, bandwidth, batch_size)
    decode: tuple[DecodePoint, ...] = ()
    if bandwidth is not None:
        latencies = decode_latency_ms(weights, kv, bandwidth, compute, positions, batch_size)
        fits = [None if memory is None else (max_n_ctx or 0) >= position for position in positions]
        decode = tuple(
            DecodePoint(n, latency, batch_size * 1e3 / latency, is_enough)
            for n, latency, is_enough in zip(positions, latencies.tolist(), fits, strict=True)
        )
    prefill = None
    if bandwidth is not None and compute is not None:
        prefill = prefill_curve(weights, kv, bandwidth, compute, lengths, batch_size)
    return SchemeLimits(
        weights=weights,
        kv=kv,
        batch_size=batch_size,
        max_n_ctx=max_n_ctx or None,
        fits=None if memory is None else bool(max_n_ctx),
        w_tokens_per_ms=w_tokens_per_ms,
        b_ms=b_ms,
        decode=decode,
        prefill=prefill,
    )
