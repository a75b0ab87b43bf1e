"""Compute the limits set by a machine's bandwidth, compute rate and memory: decode, prompts, context.

Decode reads the active weights once and the KV cache once for each token. A short prompt is bound by reading the
weights, a longer one by compute; as in the article each token reads all KV before it, so very long prompts are
bound by KV.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import asdict

from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.description import Device
from ggbench.machine.known_devices import recognize_device
from ggbench.record import Record
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.weights import Weights, file_weights
from ggbench.stats.decode_timing import Bandwidth, Break, DecodeLimit, LatencyLine
from ggbench.units import GIB

DECODE_POSITIONS = (1024, 8192, 32768)
"""1k, 8k and 32k, with K as 1024 tokens."""
_STEP = 1.01
"""Ratio of adjacent lengths at which a prompt's bound is computed; it changes at most once between them."""


class Bound(enum.StrEnum):
    """The limits of the speed at one prompt length."""

    WEIGHTS = "weights"
    COMPUTE = "compute"
    KV = "kv"


class PrefillLimit(Record):
    """Minimum time [ms] to process a prompt of up to `longest` tokens.

    latency(n) = max(read(n), compute(n)), with:

        read(n)    = (weight bytes + n * (n + 1) / 2 * KV bytes per token) / bandwidth
        compute(n) = 2 * (layer params * n + lm_head params + attention over n * (n + 1) / 2 pairs) / compute rate

    lm_head is computed only for the last token: the article's exact count. Sources: sections 4.3, 5.1 and 5.2.4.
    """

    weights: Weights
    kv: KvCache
    bandwidth_bytes_per_s: float
    compute_flop_per_s: float
    longest: int

    def weights_ms(self, n: float) -> float:
        return self.weights.read_bytes(n) / self.bandwidth_bytes_per_s * 1e3

    def kv_ms(self, n: float) -> float:
        """Return the time to read the KV cache, each token reading all positions up to its own."""
        return self.kv.prefill_bytes(n) / self.bandwidth_bytes_per_s * 1e3

    def compute_ms(self, n: float) -> float:
        parameters = self.weights.parameters
        flop = 2.0 * (parameters.layers_active * n + parameters.lm_head) + self.kv.prefill_flop(n)
        return flop / self.compute_flop_per_s * 1e3

    def read_ms(self, n: float) -> float:
        return self.weights_ms(n) + self.kv_ms(n)

    def latency_ms(self, n: float) -> float:
        return max(self.read_ms(n), self.compute_ms(n))

    def bound(self, n: float) -> Bound:
        """Return what limits a prompt of n tokens: compute, or the larger of the two reads."""
        if self.compute_ms(n) > self.read_ms(n):
            return Bound.COMPUTE
        return Bound.KV if self.kv_ms(n) > self.weights_ms(n) else Bound.WEIGHTS

    def knees(self) -> tuple[int, ...]:
        """Return the last length before each change between read-bound and compute-bound; empty if none is in range.

        At the first the bound changes from weights to compute, at a second from compute to KV (section 4.3).
        """

        def is_computing(n: int) -> bool:
            return self.compute_ms(n) > self.read_ms(n)

        n_steps = math.ceil(math.log(self.longest, _STEP))
        lengths = sorted({min(self.longest, math.ceil(_STEP**power)) for power in range(n_steps + 1)})
        return tuple(
            next(n for n in range(low, high) if is_computing(n + 1) is is_computing(high))
            for low, high in pairwise(lengths)
            if is_computing(low) is not is_computing(high)
        )


class SchemeLimits(Record):
    """Limits of one weight and KV type; None if the hardware parameter is unknown."""

    weights: Weights
    kv: KvCache
    max_n_ctx: int | None
    """Also None if the weights alone do not fit."""
    fits: bool | None
    """Whether the weights and one token fit."""
    line: LatencyLine | None
    """W and B of decoding."""
    tok_s: tuple[float, ...]
    """Speed at `DECODE_POSITIONS`; empty if unknown."""
    prefill: PrefillLimit | None

    @property
    def scheme(self) -> str:
        """Return `w16kv16`, `q4_k_m kv16`; KV types other than 16 bits are named: `w4kv-q8_0`."""
        types = dict.fromkeys((self.kv.type_k, self.kv.type_v))
        kv = "kv16" if types.keys() <= {"f16", "bf16"} else f"kv-{'/'.join(types)}"
        return f"{self.weights.name}{'' if self.weights.name.startswith('w') else ' '}{kv}"


def model_limits(
    weights: Sequence[Weights], kv: KvCache, hardware: Hardware, longest: int
) -> tuple[SchemeLimits, ...]:
    return tuple(_scheme_limits(scheme, kv, hardware, longest) for scheme in weights)


def _scheme_limits(weights: Weights, kv: KvCache, hardware: Hardware, longest: int) -> SchemeLimits:
    bandwidth, memory, compute = (
        hardware.bandwidth_bytes_per_s,
        hardware.memory_bytes,
        hardware.compute_flop_per_s,
    )
    max_n_ctx = None if memory is None else n_ctx_that_fits(memory, weights, kv)
    line = prefill = None
    tok_s: tuple[float, ...] = ()
    if bandwidth is not None:
        line = decode_line(weights, kv, bandwidth)
        steps = (decode_latency_ms(weights, kv, bandwidth, compute, n) for n in DECODE_POSITIONS)
        tok_s = tuple(1e3 / step_ms for step_ms in steps)
        if compute is not None:
            prefill = PrefillLimit(weights, kv, bandwidth, compute, longest)
    return SchemeLimits(
        weights=weights,
        kv=kv,
        max_n_ctx=max_n_ctx or None,
        fits=None if memory is None else bool(max_n_ctx),
        line=line,
        tok_s=tok_s,
        prefill=prefill,
    )


def n_ctx_that_fits(memory_bytes: float, weights: Weights, kv: KvCache) -> int | None:
    """Return the context length that fits; None if the weights alone do not fit.

    Source: the article, sections 3.3 and 5.2.3. The embedding table is not counted, since llama.cpp keeps it in
    main memory. Compute buffers are not counted either, so the context that actually fits is shorter.
    """
    left_bytes = memory_bytes - weights.resident_bytes
    return kv.n_that_fit(left_bytes) if left_bytes >= 0 else None


def decode_limit(
    model: ModelFile, bandwidth: Bandwidth, type_k: str = "f16", type_v: str = "f16", n_seqs: int = 1
) -> DecodeLimit:
    """Return the bandwidth bound on decode latency: B [ms] reads the active weights and one position, 1/W one more.

    A step of `n_seqs` sequences reads the weights once and the position of each. Sequences of a mixture that agree on
    experts more often than by chance read less than this. Source: the article, section 4.4, and 5.1 for a batch.
    Raises Unsupported if the state is not a KV cache or a tensor's size is unknown.
    """
    weights = file_weights(model, model.name)
    line = decode_line(weights, kv_cache(model, type_k, type_v), bandwidth.bytes_per_s, n_seqs)
    return DecodeLimit(
        **asdict(line), bandwidth_bytes_per_s=bandwidth.bytes_per_s, bandwidth_source=bandwidth.source
    )


def decode_line(
    weights: Weights, kv: KvCache, bandwidth_bytes_per_s: float, batch_size: int = 1
) -> LatencyLine:
    """Return latency(n) = (n - 1) / W + B for a batch of sequences, each at position n.

    Source: the article, sections 4.4, 5.1 and 5.2.5. B is the latency at n = 1, so it includes one position of KV,
    which the article's text omits but its numbers include. W changes where a window or a budget is full.
    """

    def w_tokens_per_ms(n: float) -> float | None:
        growth = kv.read_growth(n) * batch_size
        return bandwidth_bytes_per_s / growth / 1e3 if growth else None

    breaks = tuple(Break(n, w_tokens_per_ms(n - 1)) for n in kv.breaks)
    b_ms = decode_read_ms(weights, kv, bandwidth_bytes_per_s, 1, batch_size)
    return LatencyLine(w_tokens_per_ms(math.inf), b_ms, breaks)


def decode_read_ms(
    weights: Weights, kv: KvCache, bandwidth_bytes_per_s: float, n: float, batch_size: int = 1
) -> float:
    """Return the time [ms] to read the weights once, and each sequence's state at position n (section 4.4)."""
    return (weights.read_bytes(batch_size) + batch_size * kv.read_bytes(n)) / bandwidth_bytes_per_s * 1e3


def decode_latency_ms(
    weights: Weights,
    kv: KvCache,
    bandwidth_bytes_per_s: float,
    compute_flop_per_s: float | None,
    n: float,
) -> float:
    """Return the larger of read time and compute time [ms]; the read time if the compute rate is unknown.

    A step computes two operations for each active parameter, and attention (section 4.4).
    """
    read_ms = decode_read_ms(weights, kv, bandwidth_bytes_per_s, n)
    if compute_flop_per_s is None:
        return read_ms
    flop = 2 * weights.parameters.active + kv.attention_flop(n)
    return max(read_ms, flop / compute_flop_per_s * 1e3)


GIGA, TERA = GIB, 1 << 40
MEANING = (
    "the source article's: GB/s is 2^30 bytes/s, TFLOPS 2^40 flop/s, so W and speeds are 7 % above "
    "plan's with 10^9 bytes/s; compute is the GPU's FP16 rate without tensor cores; in prefill each token reads all KV "
    "before it"
)


class Hardware(Record):
    name: str
    memory_bytes: int | None = None
    memory_source: str = ""
    bandwidth_bytes_per_s: float | None = None
    bandwidth_source: str = ""
    compute_flop_per_s: float | None = None
    compute_source: str = ""


def hardware_of(device: Device) -> Hardware:
    """Return the data of a GPU, as described or by its driver; the compute rate is that of the known card of its name.

    The article's value for the RTX 4090, 82.58 TFLOPS, is the rate without tensor cores, so that rate is used for
    every GPU, and the tensor rate if it is unknown; None if both are.
    """
    known, rate = recognize_device(device.name, device.shared_bytes or device.memory_bytes), device.bandwidth
    tflops, source = None, ""
    if known is not None and known.fp16_tflops is not None:
        tflops, source = known.fp16_tflops, f"FP16 without tensor cores; {known.fp16_source}"
    elif known is not None and known.fp16_matrix_tflops is not None:
        tflops = known.fp16_matrix_tflops
        source = f"FP16 with tensor or matrix cores, dense; {known.fp16_matrix_source}"
    return Hardware(
        name=device.name,
        memory_bytes=device.memory_bytes or None,
        memory_source=device.memory_source,
        bandwidth_bytes_per_s=None if rate is None else rate.bytes_per_s / 1e9 * GIGA,
        bandwidth_source="" if rate is None else rate.source,
        compute_flop_per_s=None if tflops is None else tflops * TERA,
        compute_source=source,
    )
