"""A GGUF v3 header as bytes, little endian, and the length of the file that it belongs to.

An encoder of our own, because one plan of a large model needs a header for each quant in memory, and gguf's writer only
writes to files and takes longer to import than all of them take to encode.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ggbench.errors import Unsupported
from ggbench.gguf_file.ggml_types import type_by_name
from ggbench.gguf_file.model_file import TensorInfo

ALIGNMENT = 32
"""Bytes; what a reader assumes where `general.alignment` is absent."""

_MAGIC, _VERSION = b"GGUF", 3
# Source: enum gguf_type of ggml's gguf.h.
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64, _INT64 = 4, 5, 6, 7, 8, 9, 10, 11
_PACKED = {
    _UINT32: struct.Struct("<I"),
    _INT32: struct.Struct("<i"),
    _FLOAT32: struct.Struct("<f"),
    _BOOL: struct.Struct("<?"),
    _UINT64: struct.Struct("<Q"),
    _INT64: struct.Struct("<q"),
}


@dataclass(frozen=True, slots=True)
class EncodedHeader:
    """What comes before the first tensor; the others follow one another, each padded to `ALIGNMENT`."""

    data: bytes
    """Metadata and tensor table, padded with zeros up to where the tensors begin."""
    file_bytes: int
    """The whole file, the padding after the last tensor included."""


def encode_header(metadata: Mapping[str, object], tensors: Iterable[TensorInfo]) -> EncodedHeader:
    """The header of one file with this metadata and these tensors, in their order.

    Whole numbers become uint32 where they fit, fractions float32, lists arrays of one type: what llama.cpp asks for.
    Raises Unsupported for a value or a tensor type that has no such form.
    """
    table = tuple(tensors)
    parts = [_MAGIC, struct.pack("<IQQ", _VERSION, len(table), len(metadata))]
    for key, value in metadata.items():
        parts += (_string(key), _typed(key, value))
    end = 0
    for tensor in table:
        if tensor.n_bytes is None:
            raise Unsupported(
                f"tensor {tensor.name!r} has a type of unknown size: {tensor.type_name}", "update ggbench"
            )
        n_dims = len(tensor.shape)
        type_id = type_by_name(tensor.type_name).type_id
        parts += (_string(tensor.name), struct.pack(f"<I{n_dims}QIQ", n_dims, *tensor.shape, type_id, end))
        end += tensor.n_bytes + n_padding(tensor.n_bytes)
    data = b"".join(parts)
    data += bytes(n_padding(len(data)))
    return EncodedHeader(data, len(data) + end)


def n_padding(n_bytes: int) -> int:
    """Bytes from there to the next place where a tensor may begin."""
    return -n_bytes % ALIGNMENT


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(key: str, value: object) -> bytes:
    if isinstance(value, list | tuple):
        value_type = _type_of_all(key, value)
        return struct.pack("<IIQ", _ARRAY, value_type, len(value)) + b"".join(_pack(value_type, item) for item in value)
    value_type = _type_of_all(key, (value,))
    return struct.pack("<I", value_type) + _pack(value_type, value)


def _type_of_all(key: str, values: Sequence[object]) -> int:
    if all(isinstance(value, str) for value in values):
        return _STRING
    if all(isinstance(value, bool) for value in values):
        return _BOOL
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(whole) == len(values):
        for value_type, low, high in ((_UINT32, 0, 1 << 32), (_INT32, -(1 << 31), 1 << 31), (_UINT64, 0, 1 << 64)):
            if low <= min(whole) and max(whole) < high:
                return value_type
        return _INT64
    if all(isinstance(value, float) for value in values):
        return _FLOAT32
    raise Unsupported(f"metadata {key!r} is of a kind that cannot be written", "only numbers, truths and texts can")


def _pack(value_type: int, value: object) -> bytes:
    if isinstance(value, str):
        return _string(value)
    packed: bytes = _PACKED[value_type].pack(value)
    return packed
