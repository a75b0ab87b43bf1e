"""The constants of the gguf package, imported at their first use and without the rest of the package.

`gguf_constants.Keys` is `gguf.constants.Keys`, and so on. Importing gguf as a whole takes 90 ms, for numpy, yaml and an
HTTP client; its constants alone take 6 ms, and `ggbench --help` and `ggbench models` need neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ggbench.gguf_file.deferred_package import defer_package


@dataclass(frozen=True, slots=True)
class AddedType:
    """A tensor type of llama.cpp that the installed gguf may not know, and the quant of the same name."""

    name: str
    """As gguf would write it: `Q2_0`."""
    type_id: int
    """The number in a tensor table, `enum ggml_type`."""
    block_len: int
    block_bytes: int
    file_type: int
    """The value of `general.file_type`, `enum llama_ftype`."""
    source: str


ADDED_TYPES = (AddedType("Q2_0", 42, 64, 18, file_type=41, source="https://github.com/ggml-org/llama.cpp/pull/24448"),)
"""What gguf 0.19 lacks. gguf's own entry wins where there is one; a test asks for the row to be deleted then."""

CORRECTED_BLOCK_BYTES = {"Q8_1": 36}
"""`block_q8_1` of ggml-common.h holds two fp16 beside its 32 bytes; gguf 0.19 counts two fp32. No file stores it."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the constants have types of many kinds
    if name.startswith("__"):  # probed by the import system
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    defer_package("gguf")
    import gguf.constants

    value = getattr(gguf.constants, name)
    globals()[name] = value
    return value
