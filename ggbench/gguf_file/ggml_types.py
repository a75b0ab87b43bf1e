"""The tensor types of ggml: names, block lengths and block sizes.

The table is gguf's, imported at its first use, plus the few types of llama.cpp that gguf does not have yet.
"""

from __future__ import annotations

import functools
import math

import msgspec

from ggbench.errors import UnknownName, Unsupported
from ggbench.gguf_file import gguf_constants


class GgmlType(msgspec.Struct, frozen=True):
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
