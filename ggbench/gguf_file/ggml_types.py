"""The tensor types of ggml: names, block lengths and block sizes.

The table is gguf's, imported at its first use, plus the few types of llama.cpp that gguf does not have yet.
"""

from __future__ import annotations

import functools
import math

from ggbench.errors import UnknownName, Unsupported
from ggbench.gguf_file import gguf_constants
from ggbench.record import Record


class GgmlType(Record):
    type_id: int
    """The number in a GGUF header, `enum ggml_type`."""
    name: str
    """ggml's name: `q4_K`, `iq4_nl`, `f16`."""
    block_len: int
    """Elements per block; a row consists of whole blocks."""
    block_bytes: int

    def row_bytes(self, n_elements: int) -> int:
        """Return the bytes of this many elements. Raises Unsupported if they are not whole blocks."""
        n_blocks, rest = divmod(n_elements, self.block_len)
        if rest or n_elements < 0:
            raise Unsupported(
                f"a row of {n_elements} elements cannot be {self.name}, which stores blocks of {self.block_len}",
                "use a type with shorter blocks; f16 always fits",
            )
        return n_blocks * self.block_bytes


ADDED_TYPES = {GgmlType(42, "q2_0", 64, 18): 41}
"""Types of llama.cpp that gguf 0.19 lacks, each with its `general.file_type`; gguf's own entry wins once it has one.
Source: https://github.com/ggml-org/llama.cpp/pull/24448."""

_IK = """133 q6_0 134 iq1_bn 135 iq2_bn 137 iq2_k 138 iq3_k 139 iq4_k 140 iq5_k 141 iq6_k 144 iq4_ks 145 iq2_ks
146 iq4_kss 151 q8_kv 152 iq5_ks 153 iq2_kt 154 iq3_kt 155 iq4_kt 156 iq3_ks 157 iq2_kl 158 iq1_kt 202 q4_0_r8
206 q5_0_r4 208 q8_0_r8 210 q2_k_r4 211 q3_k_r4 212 q4_k_r4 213 q5_k_r4 214 q6_k_r4 216 iq2_xxs_r4 217 iq2_xs_r4
218 iq3_xxs_r4 219 iq1_s_r4 220 iq4_nl_r4 221 iq3_s_r4 222 iq2_s_r4 223 iq4_xs_r8 229 iq1_m_r4 230 bf16_r16 233 q6_0_r4
335 iq2_bn_r4 337 iq2_k_r4 338 iq3_k_r4 339 iq4_k_r4 340 iq5_k_r4 344 iq4_ks_r4 352 iq5_ks_r4 398 q8_kv_r8
399 q8_k_r8"""
IK_TYPES = dict(zip(map(int, _IK.split()[::2]), _IK.split()[1::2], strict=True))
"""Types of ik_llama.cpp alone, by id. Source: gguf-py/gguf/constants.py of github.com/ikawrakow/ik_llama.cpp."""
IK_HINT = "take a quant that llama.cpp has, such as q4_k_m or iq4_xs, or run it with ik_llama.cpp"

CORRECTED_BLOCK_BYTES = {"Q8_1": 36}
"""`block_q8_1` of ggml-common.h holds two fp16 and 32 bytes; gguf 0.19 counts two fp32. No file stores it."""


@functools.cache
def known_types() -> dict[int, GgmlType]:
    """Return every known type by its id, in order, without types that ggml removed."""
    by_id = {added.type_id: added for added in ADDED_TYPES}
    for entry, (block_len, stated_bytes) in gguf_constants.GGML_QUANT_SIZES.items():
        block_bytes = CORRECTED_BLOCK_BYTES.get(entry.name, stated_bytes)
        # ggml writes `q4_K` for gguf's `Q4_K`, and all other names in lower case
        name = f"{entry.name[:-2].lower()}_K" if entry.name.endswith("_K") else entry.name.lower()
        by_id[int(entry)] = GgmlType(int(entry), name, block_len, block_bytes)
    return dict(sorted(by_id.items()))


def type_by_name(name: str) -> GgmlType:
    """Return the type of this name, in any case. Raises UnknownName."""
    try:
        return _by_name()[name.lower()]
    except KeyError:
        raise UnknownName("tensor type", name, _by_name()) from None


@functools.cache
def row_bytes(type_name: str, n_elements: int) -> int:
    """Return the bytes of a row of this many elements. Raises UnknownName, Unsupported."""
    return type_by_name(type_name).row_bytes(n_elements)


@functools.cache
def tensor_bytes(type_name: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor; cached, because a model's layers are alike. Raises like `row_bytes`.

    One without dimensions, as in a damaged header, has one element.
    """
    return row_bytes(type_name, shape[0] if shape else 1) * math.prod(shape[1:])


@functools.cache
def _by_name() -> dict[str, GgmlType]:
    return {entry.name.lower(): entry for entry in known_types().values()}
