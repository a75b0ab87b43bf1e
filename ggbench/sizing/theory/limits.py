"""Compute the limits set by a machine's bandwidth, compute rate and memory: decode, prompts, context.

Decode reads the active weights once and the KV cache once for each token. A short prompt is bound by reading the
weights, a longer one by compute; as in the article each token reads all KV before it, so very long prompts are
bound by KV. `Prefill.floor_ms` reads it once, as flash attention does at best.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from ggbench.errors import UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.description import Device
from ggbench.machine.gpus import gpu_bandwidth
from ggbench.machine.known_devices import KnownDevice, recognize_device
from ggbench.machine.records import Gpu
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.weights import Weights, file_weights
from ggbench.stats.decode_timing import Bandwidth, DecodeLimit
from ggbench.text import counted_names
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


class Regime(msgspec.Struct, frozen=True):
    """A range of prompt lengths with the same bound, both ends included."""

    bound: Bound
    first_n: int
    last_n: int


class PrefillLimit(msgspec.Struct, frozen=True):
    """Minimum time [ms] to process prompts of up to `longest` tokens, `batch_size` of them together.

    latency(n) = max(read(n), compute(n)), with, for one sequence:

        read(n)    = (weight bytes + n * (n + 1) / 2 * KV bytes per token) / bandwidth
        compute(n) = 2 * (layer params * n + lm_head params + attention over n * (n + 1) / 2 pairs) / compute rate

    lm_head is computed only for the last token: the article's exact count. Sources: sections 4.3, 5.1 and 5.2.4.
    """

    weights: Weights
    kv: KvCache
    bandwidth_bytes_per_s: float
    compute_flop_per_s: float
    longest: int
    batch_size: int = 1

    def weights_ms(self, n: float) -> float:
        return self.weights.read_bytes(n * self.batch_size) / self.bandwidth_bytes_per_s * 1e3

    def kv_ms(self, n: float) -> float:
        """Return the time to read the KV cache, each token reading all positions up to its own."""
        return self.batch_size * self.kv.prefill_bytes(n) / self.bandwidth_bytes_per_s * 1e3

    def compute_ms(self, n: float) -> float:
        parameters = self.weights.parameters
        flop = 2.0 * (parameters.layers_active * n + parameters.lm_head) + self.kv.prefill_flop(n)
        return self.batch_size * flop / self.compute_flop_per_s * 1e3

    def read_ms(self, n: float) -> float:
        return self.weights_ms(n) + self.kv_ms(n)

    def latency_ms(self, n: float) -> float:
        return max(self.read_ms(n), self.compute_ms(n))

    def floor_ms(self, n: float) -> float:
        """Return the maximum of compute time and the time to read weights and KV once.

        FlashAttention (Dao et al. 2022, arXiv:2205.14135, theorem 2): with M numbers of on-chip memory, a head of
        dimension d reads O(n^2 d^2 / M) numbers, which falls to O(n d), that is K and V once, when M is of the order of
        n d. Smaller blocks read more.
        """
        kv_once_ms = self.batch_size * self.kv.prompt_bytes(n) / self.bandwidth_bytes_per_s * 1e3
        return max(self.weights_ms(n) + kv_once_ms, self.compute_ms(n))

    def bound(self, n: float) -> Bound:
        """Return what limits a prompt of n tokens: compute, or the larger of the two reads."""
        if self.compute_ms(n) > self.read_ms(n):
            return Bound.COMPUTE
        return Bound.KV if self.kv_ms(n) > self.weights_ms(n) else Bound.WEIGHTS

    def prompts(self) -> tuple[PromptLimit, ...]:
        """Return the limits at powers of two, and at the longest."""
        lengths = {1 << power for power in range(int(math.log2(self.longest)) + 1)} | {self.longest}
        return tuple(
            PromptLimit(n, self.read_ms(n), self.compute_ms(n), self.latency_ms(n), self.floor_ms(n))
            for n in sorted(lengths)
        )

    def regimes(self) -> tuple[Regime, ...]:
        n_steps = math.ceil(math.log(self.longest, _STEP)) + 1
        lengths = list(dict.fromkeys(math.ceil(_STEP**power) for power in range(n_steps)))
        lengths = [n for n in lengths if n < self.longest] + [self.longest]
        firsts = [1]
        for low, high in pairwise(lengths):
            if self.bound(low) != (after := self.bound(high)):
                between = range(low, high + 1)
                is_after = [self.bound(n) == after for n in between]
                firsts.append(between[is_after.index(True)])
        lasts = [first - 1 for first in firsts[1:]] + [self.longest]
        return tuple(Regime(self.bound(first), first, last) for first, last in zip(firsts, lasts, strict=True))

    def knees(self) -> tuple[int, ...]:
        """Return the last length before each change between read-bound and compute-bound; empty if none is in range.

        At the first the bound changes from weights to compute, at a second from compute to KV (section 4.3).
        """
        regimes = self.regimes()
        return tuple(a.last_n for a, b in pairwise(regimes) if Bound.COMPUTE in (a.bound, b.bound))


class PromptLimit(msgspec.Struct, frozen=True):
    """Minimum time to process a prompt of one length."""

    n_prompt: int
    read_ms: float
    compute_ms: float
    first_token_ms: float
    floor_ms: float


class LimitAt(msgspec.Struct, frozen=True):
    """The limit of the speed of decoding at one position."""

    n: int
    latency_ms: float
    """Latency of one step of the batch."""
    tok_s: float
    """Throughput over all sequences of the batch."""
    fits: bool | None
    """Whether a context of n tokens fits; None if unknown."""


class SchemeLimits(msgspec.Struct, frozen=True):
    """Limits of one weight and KV type at one batch size; None if the hardware parameter is unknown."""

    weights: Weights
    kv: KvCache
    batch_size: int
    max_n_ctx: int | None
    """Tokens per sequence; also None if the weights alone do not fit."""
    fits: bool | None
    """Whether the weights and one token of each sequence fit."""
    w_tokens_per_ms: float | None
    """Also None if the bytes read per token do not grow with the context."""
    b_ms: float | None
    decode: tuple[LimitAt, ...]
    prefill: PrefillLimit | None

    @property
    def scheme(self) -> str:
        """Return `w16kv16`, `q4_k_m kv16`; KV types other than 16 or 32 bits are named: `w4kv-q8_0`."""
        kv = self.kv
        plain = {"f16": "kv16", "bf16": "kv16", "f32": "kv32"}
        if kv.type_k == kv.type_v or plain.get(kv.type_k, "") == plain.get(kv.type_v):
            name = plain.get(kv.type_k, f"kv-{kv.type_k}")
        else:
            name = f"k-{kv.type_k} v-{kv.type_v}"
        return f"{self.weights.name}{name if self.weights.name.startswith('w') else f' {name}'}"


def model_limits(
    weights: Sequence[Weights], kv: KvCache, hardware: Hardware, longest: int, batch_sizes: Sequence[int] = (1,)
) -> tuple[SchemeLimits, ...]:
    return tuple(
        _scheme_limits(scheme, kv, hardware, longest, batch_size)
        for scheme in weights
        for batch_size in batch_sizes
    )


def _scheme_limits(
    weights: Weights, kv: KvCache, hardware: Hardware, longest: int, batch_size: int
) -> SchemeLimits:
    bandwidth, memory, compute = (
        hardware.bandwidth_bytes_per_s,
        hardware.memory_bytes,
        hardware.compute_flop_per_s,
    )
    max_n_ctx = None if memory is None else n_ctx_that_fits(memory, weights, kv, batch_size)
    w_tokens_per_ms, b_ms = (
        (None, None) if bandwidth is None else decode_line(weights, kv, bandwidth, batch_size)
    )
    decode, prefill = [], None
    if bandwidth is not None:
        for n in DECODE_POSITIONS:
            latency_ms = decode_latency_ms(weights, kv, bandwidth, compute, n, batch_size)
            fits = None if memory is None else (max_n_ctx or 0) >= n
            decode.append(LimitAt(n, latency_ms, batch_size * 1e3 / latency_ms, fits))
        if compute is not None:
            prefill = PrefillLimit(weights, kv, bandwidth, compute, longest, batch_size)
    return SchemeLimits(
        weights=weights,
        kv=kv,
        batch_size=batch_size,
        max_n_ctx=max_n_ctx or None,
        fits=None if memory is None else bool(max_n_ctx),
        w_tokens_per_ms=w_tokens_per_ms,
        b_ms=b_ms,
        decode=tuple(decode),
        prefill=prefill,
    )


def n_ctx_that_fits(memory_bytes: float, weights: Weights, kv: KvCache, batch_size: int = 1) -> int | None:
    """Return the context length that each of `batch_size` sequences can have; None if the weights alone do not fit.

    Source: the article, sections 3.3, 5.1 and 5.2.3. The embedding table is not counted, since llama.cpp keeps it in
    main memory. Compute buffers are not counted either, so the context that actually fits is shorter.
    """
    left_bytes = memory_bytes - weights.resident_bytes
    return kv.n_that_fit(left_bytes / batch_size) if left_bytes >= 0 else None


def decode_limit(
    model: ModelFile, bandwidth: Bandwidth, type_k: str = "f16", type_v: str = "f16", n_seqs: int = 1
) -> DecodeLimit:
    """Return the bandwidth bound on decode latency: B [ms] reads the active weights and one position, 1/W one more.

    A step of `n_seqs` sequences reads the weights once and the position of each. Sequences of a mixture that agree on
    experts more often than by chance read less than this. Source: the article, section 4.4, and 5.1 for a batch.
    Raises Unsupported if the state is not a KV cache or a tensor's size is unknown, and UsageError for a bandwidth that
    is not above zero.
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
    which the article's text omits but its numbers include. If some layers have a window, latency is piecewise linear
    and W is that of the part beyond the window; None if every layer has one, so latency does not grow. Raises
    UsageError for a bandwidth that is not above zero.
    """
    if not bandwidth_bytes_per_s > 0:
        raise UsageError(
            f"a bandwidth of {bandwidth_bytes_per_s} bytes/s is not above zero", "write it as 1008GB/s"
        )
    growth = (kv.full.read_bytes + (0 if kv.window else kv.windowed.read_bytes)) * batch_size
    w_tokens_per_ms = bandwidth_bytes_per_s / growth / 1e3 if growth else None
    return w_tokens_per_ms, decode_read_ms(weights, kv, bandwidth_bytes_per_s, 1, batch_size)


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
    batch_size: int = 1,
) -> float:
    """Return the larger of read time and compute time [ms]; the read time if the compute rate is unknown.

    A step computes two operations for each active parameter, and attention (section 4.4).
    """
    read_ms = decode_read_ms(weights, kv, bandwidth_bytes_per_s, n, batch_size)
    if compute_flop_per_s is None:
        return read_ms
    flop = batch_size * (2 * weights.parameters.active + kv.attention_flop(n))
    return max(read_ms, flop / compute_flop_per_s * 1e3)


GIGA, TERA = GIB, 1 << 40
MEANING = (
    "the source article's: GB/s is 2^30 bytes/s, TFLOPS 2^40 flop/s, B 2^30 parameters, so W and speeds are 7 % above "
    "plan's with 10^9 bytes/s; compute is the GPU's FP16 rate without tensor cores; in prefill each token reads all KV "
    "before it"
)


class Hardware(msgspec.Struct, frozen=True):
    name: str
    memory_bytes: int | None = None
    memory_source: str = ""
    bandwidth_bytes_per_s: float | None = None
    bandwidth_source: str = ""
    compute_flop_per_s: float | None = None
    compute_source: str = ""


def known_hardware(gpu: KnownDevice) -> Hardware:
    """Return the data of a known GPU.

    The article's value for the RTX 4090, 82.58 TFLOPS, is the rate without tensor cores, so that rate is used for
    every GPU, and the tensor rate if it is unknown; None if both are.
    """
    tflops, source = (
        gpu.fp16_matrix_tflops,
        f"FP16 with tensor or matrix cores, dense; {gpu.fp16_matrix_source}",
    )
    if gpu.fp16_tflops is not None:
        tflops, source = gpu.fp16_tflops, f"FP16 without tensor cores; {gpu.fp16_source}"
    return Hardware(
        name=gpu.name,
        memory_bytes=gpu.gpu_bytes,
        memory_source=gpu.memory_source,
        bandwidth_bytes_per_s=gpu.bandwidth_gb_s * GIGA,
        bandwidth_source=gpu.bandwidth_source,
        compute_flop_per_s=None if tflops is None else tflops * TERA,
        compute_source="" if tflops is None else source,
    )


def described_hardware(devices: Sequence[Device]) -> Hardware:
    """Return the data of described GPUs, which get layers in proportion to their memory and work in turn.

    Memory is summed. The bandwidth is the average over each GPU's share; the compute rate is one GPU's, and unknown if
    they differ.
    """
    first, memory_bytes = devices[0], sum(device.memory_bytes for device in devices)
    known = recognize_device(first.name, first.shared_bytes or first.memory_bytes)
    of_first = Hardware(first.name) if known is None else known_hardware(known)
    rates = [device.bandwidth.bytes_per_s for device in devices if device.bandwidth is not None]
    rate = None
    if len(rates) == len(devices):
        rate = memory_bytes / sum(each.memory_bytes / rate for each, rate in zip(devices, rates, strict=True))
    names = [device.name for device in devices]
    hardware = Hardware(
        name=counted_names(names),
        memory_bytes=memory_bytes,
        memory_source=first.memory_source,
        bandwidth_bytes_per_s=None if rate is None else rate / 1e9 * GIGA,
        bandwidth_source=first.bandwidth.source if first.bandwidth else "",
    )
    if len(set(names)) > 1:
        return hardware
    return replace(
        hardware, compute_flop_per_s=of_first.compute_flop_per_s, compute_source=of_first.compute_source
    )


def driver_hardware(gpu: Gpu) -> Hardware:
    """Return the data of a GPU of this machine: memory and bandwidth from its driver, compute from the table."""
    known = recognize_device(gpu.name, gpu.total_bytes)
    hardware = Hardware(gpu.name)
    if known is not None:
        hardware = replace(known_hardware(known), name=gpu.name)
    if gpu.total_bytes:
        hardware = replace(hardware, memory_bytes=gpu.total_bytes, memory_source="NVML")
    if reported := gpu_bandwidth(gpu):
        rate = reported.bytes_per_s / 1e9 * GIGA
        hardware = replace(hardware, bandwidth_bytes_per_s=rate, bandwidth_source=reported.source)
    return hardware
