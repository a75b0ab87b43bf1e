"""Bytes that fill a tensor of a twin: one random tile for each type, quantized once and repeated.

The tile's length is a large prime times the longest block, so that it never divides a row: every row starts at a
different offset in the tile, and no two of a thousand neighbouring rows are equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ggbench.gguf_file.ggml_types import GgmlType, type_by_name
from ggbench.gguf_file.model_file import TensorInfo

if TYPE_CHECKING:
    import numpy as np

_BLOCK = 256
_N_BLOCKS = 1021
_CHUNK_BYTES = 1 << 20
"""Small enough to stay in a CPU's cache while it is written repeatedly."""
_OWN_ELEMENTS = 1 << 22
"""An f32 tensor up to this size gets its own values: norms, biases, and routers, whose rows must differ."""
_WEIGHT_SCALE = 0.02
"""Standard deviation of matrices as transformers are initialized."""
_SEED = 20240424
_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "f64"})


class Tiles:
    """The tiles of one file; the same input gives the same bytes."""

    def __init__(self) -> None:
        self._repeated: dict[str, tuple[memoryview, int]] = {}

    def chunks(self, tensor: TensorInfo) -> Iterator[memoryview]:
        """Yield the bytes of this tensor, about 1 MiB at a time. Raises Unsupported for a type without a quantizer."""
        ggml_type = type_by_name(tensor.type_name)
        left = ggml_type.row_bytes(tensor.n_elements)
        if ggml_type.name == "f32" and tensor.n_elements <= _OWN_ELEMENTS:
            yield memoryview(_own_values(tensor).tobytes())
            return
        buffer, period = self._repeat(ggml_type)
        start = zlib.crc32(tensor.name.encode("utf-8", "surrogateescape")) % _N_BLOCKS * (period // _N_BLOCKS)
        n_chunk = len(buffer) - period
        while left > 0:
            chunk = buffer[start : start + min(n_chunk, left)]
            left -= len(chunk)
            yield chunk

    def _repeat(self, ggml_type: GgmlType) -> tuple[memoryview, int]:
        """Return a buffer of whole tiles, one more than a chunk needs, and the bytes of one tile."""
        known = self._repeated.get(ggml_type.name)
        if known is None:
            tile = _tile(ggml_type)
            n_tiles = 1 + max(1, _CHUNK_BYTES // len(tile))
            known = self._repeated[ggml_type.name] = memoryview(tile * n_tiles), len(tile)
        return known


def _tile(ggml_type: GgmlType) -> bytes:
    import numpy as np

    from ggbench.gguf_file.quantizer import quantize

    if ggml_type.name in _INTEGERS:
        return bytes(ggml_type.row_bytes(_BLOCK * _N_BLOCKS))
    values = np.random.default_rng(_SEED).standard_normal(_BLOCK * _N_BLOCKS, dtype=np.float32)
    return quantize(ggml_type, values * np.float32(_WEIGHT_SCALE))


def _own_values(tensor: TensorInfo) -> np.ndarray:
    """Return values like those of trained models, so that activations neither vanish nor overflow."""
    import numpy as np

    name = tensor.name
    values = np.random.default_rng([_SEED, zlib.crc32(name.encode("utf-8", "surrogateescape"))]).standard_normal(
        tensor.n_elements, dtype=np.float32
    ) * np.float32(_WEIGHT_SCALE)
    if name.endswith("ssm_a"):
        values = -1 - np.abs(values)  # a decay: llama.cpp takes its exponential
    if name.endswith("norm.weight") or name.startswith("rope_"):
        values += 1
    return values
