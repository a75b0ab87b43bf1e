"""A GGUF v3 header as bytes, little endian, and the length of the file that it belongs to.

Not gguf's writer, because a plan of a large model needs one header for each quant in memory: gguf's writer only writes
to files, and importing it takes longer than encoding all of them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ggbench.errors import DoesNotFit, Unsupported
from ggbench.gguf_file.ggml_types import type_by_name
from ggbench.gguf_file.header import assemble
from ggbench.gguf_file.header_bytes import ALIGNMENT, ARRAY, MAGIC, NUMBER_CODES, STRING, VERSION
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import read_header

_VALUE_TYPES = {code: value_type for value_type, code in NUMBER_CODES.items()}
_CODES_BY_KEY = {"split.no": "H", "split.count": "H", "split.tensors.count": "i"}
"""Of the keys that llama.cpp takes in one type alone."""


class EncodedHeader(msgspec.Struct, frozen=True):
    """What comes before the first tensor; the tensors follow one another, each padded to `ALIGNMENT`."""

    data: bytes
    """Metadata and tensor table, padded with zeros up to where the tensors begin."""
    file_bytes: int
    """The whole file, including the padding after the last tensor."""


def encode_header(metadata: Mapping[str, object], tensors: Iterable[TensorInfo]) -> EncodedHeader:
    """Return the header of one file with this metadata and these tensors, in their order.

    Integers become uint32 where they fit, floats float32, lists arrays of one type: what llama.cpp expects. Those of a
    split model have types of their own.
    Raises Unsupported for a value or a tensor type that cannot be encoded.
    """
    table = tuple(tensors)
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(table), len(metadata))]
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


def encode_model(metadata: Mapping[str, object], tensors: Iterable[TensorInfo], name: str) -> ModelFile:
    """Return the model that this header describes, with no file. Raises as `encode_header` does."""
    header = encode_header(metadata, tensors)
    return assemble([read_header(io.BytesIO(header.data), header.file_bytes, name)], name)


def write_sparse_file(path: Path, data: bytes, n_bytes: int) -> Path:
    """Write `data`, then a hole up to `n_bytes`, and return the path. Raises DoesNotFit."""
    try:
        with path.open("wb") as file:
            file.write(data)
            file.truncate(n_bytes)
    except OSError as error:
        raise DoesNotFit(
            f"no temporary file for a header: {error.strerror}", "set TMPDIR to a folder with room"
        ) from error
    return path


def n_padding(n_bytes: int) -> int:
    """Return the bytes of padding up to the next offset at which a tensor may begin."""
    return -n_bytes % ALIGNMENT


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(key: str, value: object) -> bytes:
    if isinstance(value, list | tuple):
        value_type = _type_of_all(key, value)
        return struct.pack("<IIQ", ARRAY, value_type, len(value)) + b"".join(_pack(value_type, item) for item in value)
    value_type = _type_of_all(key, (value,))
    return struct.pack("<I", value_type) + _pack(value_type, value)


def _type_of_all(key: str, values: Sequence[object]) -> int:
    if all(isinstance(value, str) for value in values):
        return STRING
    if all(isinstance(value, bool) for value in values):
        return _VALUE_TYPES["?"]
    if key in _CODES_BY_KEY:
        return _VALUE_TYPES[_CODES_BY_KEY[key]]
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(whole) == len(values):
        for code, low, high in (("I", 0, 1 << 32), ("i", -(1 << 31), 1 << 31), ("Q", 0, 1 << 64)):
            if low <= min(whole) and max(whole) < high:
                return _VALUE_TYPES[code]
        return _VALUE_TYPES["q"]
    if all(isinstance(value, float) for value in values):
        return _VALUE_TYPES["f"]
    raise Unsupported(
        f"metadata {key!r} has a value of a type that cannot be written", "only numbers, booleans and strings can"
    )


def _pack(value_type: int, value: object) -> bytes:
    return _string(value) if isinstance(value, str) else struct.pack(f"<{NUMBER_CODES[value_type]}", value)
