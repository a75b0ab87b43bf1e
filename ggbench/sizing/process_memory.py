"""What llama.cpp's process takes of main memory besides its buffers, by what a model's header says.

No log reports it. Measured with llama.cpp 0.5.0 on a 64-bit machine, under limits of the address space.
"""

from __future__ import annotations

from ggbench.gguf_file.gguf_constants import Keys
from ggbench.gguf_file.model_file import ModelFile
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES
from ggbench.units import MIB

_OF_A_CONTEXT_BYTES, _OF_A_TENSOR_BYTES, _FEWEST_TENSORS = 2 * MIB, 160 << 10, 128
"""Nearly all of it the scheduler's: ggml reserves 60 copies of each node for the inputs of its splits, and llama.cpp
8 nodes for each tensor, 1024 at least. Measured: 43 MiB with 272 tensors, 37 with 236."""
_OF_A_VOCABULARY_ENTRY_BYTES = 170
"""Of each token and each merge: 42.4 MB with 262,144 tokens, 17.1 with 49,152 and as many merges."""
_OF_A_MADE_CELL_BYTES = 50
"""Of the table of cells, before any is in use: Gemma 3 270M under limits from 0.5 to 4 GiB."""
_OF_A_DECODE_BYTES, _OF_A_USED_CELL_BYTES = 5 * MIB, 100
"""What the first decodes take that making the context did not, and what llama.cpp keeps of each cell in use besides K
and V: measured 4.6 MiB and 90 bytes."""

_SMALLEST_CELL_BYTES = 64
"""Of K and V together, in one layer."""


def context_overhead(file: ModelFile | None, n_cells: int) -> int:
    """Return the bytes that making a context takes besides its buffers."""
    n_tensors = 0 if file is None else len(file.tensors)
    return _OF_A_CONTEXT_BYTES + _OF_A_TENSOR_BYTES * max(_FEWEST_TENSORS, n_tensors) + _OF_A_MADE_CELL_BYTES * n_cells


def decode_overhead(n_cells: int) -> int:
    """Return the bytes that decoding takes in addition, with that many cells in use."""
    return _OF_A_DECODE_BYTES + _OF_A_USED_CELL_BYTES * n_cells


def beyond_reserve(file: ModelFile, n_ctx: int, cache_bytes: int) -> int:
    """Return the bytes besides buffers that decoding to the end of a context takes, less those that a budget reserves.

    `cache_bytes` is the whole cache, since a state that is the same at any length has no cells.
    """
    entries = (file.metadata.get(key) for key in (Keys.Tokenizer.LIST, Keys.Tokenizer.MERGES))
    vocabulary = _OF_A_VOCABULARY_ENTRY_BYTES * sum(n for n in entries if isinstance(n, int))
    n_cells = min(n_ctx, cache_bytes // _SMALLEST_CELL_BYTES)
    return max(0, vocabulary + context_overhead(file, n_cells) + decode_overhead(n_cells) - BESIDE_BUFFERS_BYTES)
