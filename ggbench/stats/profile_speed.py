"""Speed from a machine's profile: what a batch of tokens does in one memory, times what each part of it costs there.

t = step + layers + matrices + weights by type + attention. Weights cost by their bytes, those of chosen experts more or
less than others; each matrix costs something whatever its size, so narrow models are slower than their bytes say.
Attention to one position costs for each query head, by the width of its vectors and by how many heads share KV.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from ggbench.stats.intervals import Expected
from ggbench.units import GIB

MODEL_ERROR = 0.15
"""Share by which a profile's speeds are off besides the spread of its timings, at a probability of 95 %: of 14 steps
that scripts/profile_residuals measured, 12 were in intervals made with it."""
_PROMPT_ERROR = 0.4
"""The same for prompts, in addition: narrow matrices and attention within a batch cost more than wide twins show."""
_OTHER_TYPE_ERROR = 0.5
"""The same for bytes of a tensor type that was not timed."""


_Cost = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Name = Annotated[str, msgspec.Meta(max_length=40, pattern=r"^[\w/ .-]*$")]


class Timed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ms: Annotated[float, msgspec.Meta(gt=0, le=1e12)]
    spread: _Cost
    """How far the median of its rounds is above the fastest, as a share."""


class Attention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time that a batch's attention adds for each position of the context and each query head, of one shape."""

    head_dim: Annotated[int, msgspec.Meta(gt=0, le=1 << 16)]
    kv_bytes: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    """Bytes of K and V for each query head: the fewer, the more heads share them."""
    ns: _Cost
    spread: _Cost


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a batch of some number of tokens costs in one memory."""

    step_ms: _Cost
    """Whatever the model."""
    layer_ms: _Cost
    """For each layer, without its matrices."""
    matrix_ms: _Cost
    """For each matrix of weights, in addition to its bytes."""
    expert_layer_ms: _Cost
    """For each layer with experts, in addition."""
    expert_share: _Cost
    """Time of a byte that an expert reads for one token, relative to other weights of its type."""
    gib_ms: Annotated[dict[_Name, Timed], msgspec.Meta(min_length=1)]
    """For each GiB of weights that one token reads, by tensor type."""
    attention: dict[_Name, Annotated[tuple[Attention, ...], msgspec.Meta(min_length=1)]]
    """Timed shapes by `cache_key`."""


class AttentionWork(msgspec.Struct, frozen=True):
    """Attention of alike layers to one position."""

    head_dim: float
    """Elements of K of a head, or of V if they differ their mean."""
    n_head: float
    """Query heads of all these layers."""
    n_bytes: float
    """Bytes of K and V."""
    window: int | None = None
    """Most positions attended to."""


class Work(msgspec.Struct, frozen=True):
    """What one token of a model does in one memory."""

    n_layer: int
    n_expert_layer: int
    n_matrix: int
    """Matrices of weights; those of a layer's experts count as one."""
    dense_bytes: Mapping[str, float]
    """Weights that one token reads, by tensor type."""
    expert_bytes: Mapping[str, float]
    output_bytes: Mapping[str, float]
    """Weights of the output, which a prompt reads only for its last token."""
    attention: tuple[AttentionWork, ...]


def cache_key(type_k: str, type_v: str, *, flash_attn: bool) -> str:
    return f"{type_k}/{type_v} {'flash' if flash_attn else 'plain'}"


def batch_ms(parts: Sequence[tuple[Rates, Work]], n: float, cache: str, *, has_outputs: bool = True) -> Expected | None:
    """Return the time of one batch with `n` positions of context, in the memories that the model is in.

    `has_outputs` says whether logits of every token are computed. None if this kind of cache was not timed.
    """
    total = spread = 0.0
    for rates, work in parts:
        if work.attention and cache not in rates.attention:
            return None
        total += rates.layer_ms * work.n_layer + rates.expert_layer_ms * work.n_expert_layer
        total += rates.matrix_ms * work.n_matrix
        output_bytes = work.output_bytes if has_outputs else {}
        for share, weights in (
            (1.0, work.dense_bytes), (1.0, output_bytes), (rates.expert_share, work.expert_bytes)
        ):  # fmt: skip
            for type_name, n_bytes in weights.items():
                rate, error = _rate(rates.gib_ms, type_name)
                total += share * rate * n_bytes / GIB
                spread += error * share * rate * n_bytes / GIB
        for each in work.attention:
            ns, error = attention_ns(rates.attention[cache], each)
            ms = ns * min(n, each.window or n) / 1e6
            total += ms
            spread += error * ms
    total += max(rates.step_ms for rates, _ in parts)
    half = math.hypot(spread, MODEL_ERROR * total)
    return Expected(total, max(0.0, total - half), total + half)


def prompt_ms(parts: Sequence[tuple[Rates, Work]], n_prompt: int, n_batch: int, cache: str) -> Expected | None:
    """Return the time to read a prompt from an empty context, given the rates of batches of `n_batch` tokens."""
    whole, rest = divmod(n_prompt, n_batch)
    sums = [0.0, 0.0, 0.0]
    for index, share in enumerate([*([1.0] * whole), rest / n_batch]):
        found = batch_ms(parts, (index + 0.5) * n_batch, cache, has_outputs=False)
        if found is None:
            return None
        for place, end in enumerate((found.value, found.low, found.high)):
            sums[place] += share * end
    value, low, high = sums
    more = _PROMPT_ERROR * value
    return Expected(value, max(0.0, value - math.hypot(value - low, more)), value + math.hypot(high - value, more))


def _rate(gib_ms: Mapping[str, Timed], type_name: str) -> tuple[float, float]:
    """Return the ms per GiB of a type and its error as a share; the median of all for a type that was not timed.

    The few vectors and routers in f32 count as f16.
    """
    type_name = "f16" if type_name == "f32" else type_name
    if type_name in gib_ms:
        return gib_ms[type_name].ms, gib_ms[type_name].spread
    ordered = sorted(each.ms for each in gib_ms.values())
    return ordered[len(ordered) // 2], _OTHER_TYPE_ERROR


def attention_ns(timed: Sequence[Attention], work: AttentionWork) -> tuple[float, float]:
    """Return the time [ns] of attention to one position, and its error as a share, by the shapes of the nearest width.

    Between two of them it is linear in the bytes for each query head; beyond, as in the nearest. A CPU's caches keep
    some of the KV that query heads share, so it is not linear over all.
    """
    nearest = min(timed, key=lambda each: abs(math.log(each.head_dim / work.head_dim))).head_dim
    shapes = sorted((each for each in timed if each.head_dim == nearest), key=lambda each: each.kv_bytes)
    scale = work.head_dim / nearest
    kv_bytes = work.n_bytes / work.n_head / scale
    low = max((each for each in shapes if each.kv_bytes <= kv_bytes), default=shapes[0], key=lambda each: each.kv_bytes)
    high = min((each for each in shapes if each.kv_bytes > kv_bytes), default=low, key=lambda each: each.kv_bytes)
    if kv_bytes <= low.kv_bytes or high is low:
        ns = low.ns
    else:
        share = (kv_bytes - low.kv_bytes) / (high.kv_bytes - low.kv_bytes)
        ns = low.ns + share * (high.ns - low.ns)
    return ns * work.n_head * scale, max(low.spread, high.spread)
