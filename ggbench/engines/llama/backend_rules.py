"""What backends' kernels support, and the memory that they reserve in a compute buffer, as far as it changes a plan.

Sources: ggml of llama.cpp 0c1e570 (llama-cpp-python 0.3.36); each rule names its file in ggml/src, with the line.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from ctypes import c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import NamedTuple


class Tensor(ctypes.Structure):
    """The first fields of `ggml_tensor` in ggml.h."""

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
    )

    def source(self, index: int) -> Tensor:
        return Tensor.from_address(self.src[index])

    @property
    def n_elements(self) -> int:
        return math.prod(self.ne)


class Backend(NamedTuple):
    """A backend's rules, by ggml's name of an operation."""

    supports: Mapping[str, Callable[[Tensor], bool]]
    """Without a rule an operation is supported."""
    size: Mapping[str, Callable[[Tensor, int], int]]
    """The bytes to allocate for an operation, from those of its result, which are the default."""


_F32, _F16, _BF16, _Q4_0, _Q8_0, _IQ4_NL = 0, 1, 30, 2, 8, 20
_QUANTIZED = frozenset((_Q4_0, 3, 6, 7, _Q8_0))
"""Those with kernels for any backend: also q4_1, q5_0 and q5_1."""
_CACHE_TYPES = _QUANTIZED | {_F32, _F16, _BF16}
_ANY, _GROUPED = range(1, 1 << 10), range(2, 1 << 10)
"""GQA ratios: query heads for each KV head."""
_EQUAL_HEADS = {(width, width): _ANY for width in (40, 64, 72, 80, 96, 112, 128, 256)}
_CUDA_HEADS = _EQUAL_HEADS | {
    (192, 128): range(8, 1 << 10, 8),
    (320, 256): range(32, 1 << 10, 32),
    (512, 512): _GROUPED,
    (576, 512): _GROUPED,
}
"""The GQA ratios that there is a kernel for, by the widths of K and V. Source: ggml-cuda/fattn.cu:576."""
_SYCL_HEADS = _EQUAL_HEADS | {(512, 512): _ANY, (576, 512): _GROUPED}
"""Source: ggml-sycl/fattn.cpp:187. What oneDNN and MKL compute of prompts alone is left out."""
_CUDA_DECODES = ("f16", "bf16", "q4_0", "q8_0")
"""Types of both K and V that a usual build decodes with. Source: GGML_CUDA_FA_QUANTS in ggml/CMakeLists.txt:207."""
_METAL_WIDTHS = frozenset((32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576))


def _kernels(
    fits: Callable[[int, int, int], bool],
    types: frozenset[int] = _CACHE_TYPES,
    mixed: frozenset[int] = frozenset(),
) -> Callable[[Tensor], bool]:
    """Return the rule of flash attention: `fits` takes the widths of K and V, and the GQA ratio.

    K and V have one of `types`, or two different ones of the `mixed`.
    """

    def is_supported(op: Tensor) -> bool:
        q, k, v = map(op.source, range(3))
        allowed = types if k.type == v.type else mixed
        return {k.type, v.type} <= allowed and fits(k.ne[0], v.ne[0], q.ne[2] // k.ne[2])

    return is_supported


def decodes_cache(backend: str, type_k: str, type_v: str) -> bool:
    """Return whether usual builds of a backend have a flash attention kernel that decodes with K and V of these types.

    Without one CUDA copies the whole cache to f16 for each token, and before llama.cpp's PR 28079 left attention to
    the CPU, with which an RTX 4090 read prompts 30 times as slowly (PR 27150). Source: ggml-cuda/fattn.cu:494.
    """
    return backend not in ("CUDA", "ROCm") or type_k == type_v in _CUDA_DECODES


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment


def _cached(op: Tensor) -> Iterator[Tensor]:
    """Yield K, and V unless it is a view of K, as in a latent cache (MLA)."""
    k, v = op.source(1), op.source(2)
    yield k
    if v.view_src not in (op.src[1], k.view_src) or v.view_offs != k.view_offs:
        yield v


def _cuda_attention(op: Tensor, n_bytes: int) -> int:
    """Return the size with a K and V that are not f16 copied to it, as the kernels for prompts do.

    Source: ggml-cuda/fattn-common.cuh:53, ggml-cuda/fattn.cu:722.
    """
    for cached in _cached(op):
        if cached.type != _F16:
            n_bytes = _padded(n_bytes, 128) + 2 * cached.n_elements
    return n_bytes


def _sycl_attention(op: Tensor, n_bytes: int) -> int:
    """Return CUDA's size, with Q and the result in f16 if oneDNN can compute it.

    Source: ggml-sycl/fattn.cpp:396, ggml-sycl/fattn-onednn.cpp:28.
    """
    n_bytes, q = _cuda_attention(op, n_bytes), op.source(0)
    is_plain = op.src[3] and not op.src[4] and not any(op.op_params[1:3])  # a mask; no sinks, ALiBi or softcap
    if is_plain and q.ne[3] == 1 and op.source(1).ne[0] == op.source(2).ne[0]:
        n_bytes += 2 * 2 * q.n_elements + 128
    return n_bytes


def _metal_attention(op: Tensor, n_bytes: int) -> int:
    """Return the size with K and V in f16 whatever their types, the parts of results, the padded end of K, V and mask,
    and the mask by blocks of 64 x 8.

    Source: ggml-metal/ggml-metal-ops.cpp:3064, 3122, 3161, 3190.
    """
    q, k, v = map(op.source, range(3))
    n_bytes += sum(_padded(2 * cached.n_elements, 16) for cached in _cached(op))
    n_bytes += 4 * min(q.ne[1], 32) * q.ne[2] * q.ne[3] * 32 * (v.ne[0] + 2)
    for padded in (k, v):
        row_bytes = 2 * padded.ne[0] if padded.type in _QUANTIZED else padded.nb[1]
        n_bytes += 64 * row_bytes * padded.ne[2] * padded.ne[3]
    if op.src[3]:
        n_cells, n_rows, *n_masks = op.source(3).ne
        blocks = _padded(-(-n_cells // 64) * -(-q.ne[1] // 8), 32)
        n_bytes += math.prod(n_masks) * (64 * 2 * n_rows + blocks)
    return n_bytes


def _doubled(_: Tensor, n_bytes: int) -> int:
    return 2 * n_bytes


_CUDA = Backend(
    {"FLASH_ATTN_EXT": _kernels(lambda k, v, gqa: gqa in _CUDA_HEADS.get((k, v), ()), mixed=_CACHE_TYPES)},
    {"FLASH_ATTN_EXT": _cuda_attention},
)
_METAL = Backend(  # ggml-metal/ggml-metal-device.m:1727, 1772; ggml-metal/ggml-metal.cpp:220
    {
        "FLASH_ATTN_EXT": _kernels(lambda k, v, _: k in _METAL_WIDTHS and v <= k and (k != 72 or v == 72)),
        "LIGHTNING_INDEXER": lambda op: op.source(0).ne[1] == 64,
    },
    {
        "FLASH_ATTN_EXT": _metal_attention,
        "MUL_MAT_ID": lambda op, n_bytes: n_bytes + 4 * op.source(0).ne[2] * (1 + op.source(2).ne[1]),
        "ARGSORT": _doubled,
        "CUMSUM": _doubled,
        "TOP_K": lambda op, _: 8 * op.source(0).n_elements,
    },
)
_VULKAN = Backend(  # ggml-vulkan/ggml-vulkan.cpp:15451
    {
        "FLASH_ATTN_EXT": _kernels(
            lambda k, v, _: k % 8 == v % 8 == 0,
            _CACHE_TYPES | {_IQ4_NL},
            (_CACHE_TYPES | {_IQ4_NL}) - {_BF16},
        )
    },
    {},
)
_SYCL = Backend(
    {
        "FLASH_ATTN_EXT": _kernels(
            lambda k, v, gqa: gqa in _SYCL_HEADS.get((k, v), ()),
            frozenset((_F32, _F16, _BF16, _Q4_0, _Q8_0)),
        )
    },
    {"FLASH_ATTN_EXT": _sycl_attention},
)
BACKENDS = {"CUDA": _CUDA, "ROCm": _CUDA, "MTL": _METAL, "Vulkan": _VULKAN, "SYCL": _SYCL}
"""Rules by ggml's name of the backend. Others support everything and reserve nothing, as llama.cpp's RPC client says
of its servers.
"""
