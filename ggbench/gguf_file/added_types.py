"""The tensor types of llama.cpp that the installed gguf may not know yet, and the quants of the same names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AddedType:
    """One type of llama.cpp and where it comes from."""

    name: str
    """As gguf would write it: `Q2_0`."""
    type_id: int
    """The number in a tensor table, `enum ggml_type`."""
    block_len: int
    """Elements in one block."""
    block_bytes: int
    file_type: int
    """The value of `general.file_type`, `enum llama_ftype`."""
    source: str


ADDED_TYPES = (AddedType("Q2_0", 42, 64, 18, file_type=41, source="https://github.com/ggml-org/llama.cpp/pull/24448"),)
"""What gguf 0.19 lacks. gguf's own entry wins where there is one; a test asks for the row to be deleted then."""

CORRECTED_BLOCK_BYTES = {"Q8_1": 36}
"""`block_q8_1` of ggml-common.h holds two fp16 beside its 32 bytes; gguf 0.19 counts two fp32. No file stores it."""
