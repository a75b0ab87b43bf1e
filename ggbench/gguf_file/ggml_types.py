"""The tensor types of ggml: names, block lengths and block sizes.

A table of our own and not gguf's: importing that costs more than reading a header, and it lags behind llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.errors import UnknownName, Unsupported


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One way of storing the numbers of a tensor."""

    type_id: int
    """The number in a GGUF header, `enum ggml_type`."""
    name: str
    """As `ggml_type_name` says it: `q4_K`, `iq4_nl`, `f16`."""
    block_len: int
    """Elements in one block; a row is whole blocks."""
    block_bytes: int

    @property
    def bits_per_element(self) -> float:
        """Bits that one element takes, its share of the block's scales included."""
        return self.block_bytes * 8 / self.block_len

    def row_bytes(self, n_elements: int) -> int:
        """Bytes of that many elements. Raises Unsupported where they are not whole blocks."""
        n_blocks, rest = divmod(n_elements, self.block_len)
        if rest or n_elements < 0:
            raise Unsupported(
                f"a row of {n_elements} elements cannot be {self.name}, which stores blocks of {self.block_len}",
                "take a type with shorter blocks; f16 always fits",
            )
        return n_blocks * self.block_bytes


# Source: enum ggml_type and the type_traits table of ggml (ggml.h, ggml.c, ggml-common.h); a removed type has no row.
_TYPES = (
    GgmlType(0, "f32", 1, 4),
    GgmlType(1, "f16", 1, 2),
    GgmlType(2, "q4_0", 32, 18),
    GgmlType(3, "q4_1", 32, 20),
    GgmlType(6, "q5_0", 32, 22),
    GgmlType(7, "q5_1", 32, 24),
    GgmlType(8, "q8_0", 32, 34),
    GgmlType(9, "q8_1", 32, 36),
    GgmlType(10, "q2_K", 256, 84),
    GgmlType(11, "q3_K", 256, 110),
    GgmlType(12, "q4_K", 256, 144),
    GgmlType(13, "q5_K", 256, 176),
    GgmlType(14, "q6_K", 256, 210),
    GgmlType(15, "q8_K", 256, 292),
    GgmlType(16, "iq2_xxs", 256, 66),
    GgmlType(17, "iq2_xs", 256, 74),
    GgmlType(18, "iq3_xxs", 256, 98),
    GgmlType(19, "iq1_s", 256, 50),
    GgmlType(20, "iq4_nl", 32, 18),
    GgmlType(21, "iq3_s", 256, 110),
    GgmlType(22, "iq2_s", 256, 82),
    GgmlType(23, "iq4_xs", 256, 136),
    GgmlType(24, "i8", 1, 1),
    GgmlType(25, "i16", 1, 2),
    GgmlType(26, "i32", 1, 4),
    GgmlType(27, "i64", 1, 8),
    GgmlType(28, "f64", 1, 8),
    GgmlType(29, "iq1_m", 256, 56),
    GgmlType(30, "bf16", 1, 2),
    GgmlType(34, "tq1_0", 256, 54),
    GgmlType(35, "tq2_0", 256, 66),
    GgmlType(39, "mxfp4", 32, 17),
    GgmlType(40, "nvfp4", 64, 36),
    GgmlType(41, "q1_0", 128, 18),
    GgmlType(42, "q2_0", 64, 18),
)
_BY_ID = {entry.type_id: entry for entry in _TYPES}
_BY_NAME = {entry.name.lower(): entry for entry in _TYPES}


def known_types() -> tuple[GgmlType, ...]:
    """Every type of the table, by rising id."""
    return _TYPES


def type_by_id(type_id: int) -> GgmlType | None:
    """The type with this number in a header; None where the table does not have it."""
    return _BY_ID.get(type_id)


def type_by_name(name: str) -> GgmlType:
    """The type of this name in any case. Raises UnknownName."""
    try:
        return _BY_NAME[name.lower()]
    except KeyError:
        raise UnknownName("tensor type", name, _BY_NAME) from None


def row_bytes(type_name: str, n_elements: int) -> int:
    """Bytes of one row of that many elements in the type of this name.

    Raises UnknownName for a name, and Unsupported where the elements are not whole blocks.
    """
    return type_by_name(type_name).row_bytes(n_elements)
