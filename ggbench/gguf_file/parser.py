"""The grammar of a GGUF header, versions 2 and 3 in either byte order: bytes in, a `Header` out.

gguf's GGUFReader is not used, for three reasons. Headers are untrusted: every count and length here has a limit and is
compared with the size of the file, where GGUFReader trusts them. Headers are remote: this parser reads forward from any
source, such as HTTP ranges, where GGUFReader maps a whole local file into memory. And files are newer than tables: a
tensor of an unknown type keeps its name and shape and lacks only its size, where GGUFReader raises ValueError.

The parser knows nothing of files or architectures, so the same code reads a local shard and a remote one.
Source: the GGUF specification (ggml, docs/gguf.md) and gguf.cpp.
"""

from __future__ import annotations

import struct

import msgspec

from ggbench.errors import BadFile, Unsupported
from ggbench.gguf_file.ggml_types import known_types
from ggbench.gguf_file.header_bytes import (
    ALIGNMENT,
    ALIGNMENT_KEY,
    ARCHITECTURE_KEY,
    ARRAY,
    BROKEN_HINT,
    MAGIC,
    NUMBER_CODES,
    READABLE_VERSIONS,
    STRING,
    ByteSource,
    HeaderBytes,
)
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg")

_MOST_KEYS = 1 << 16
_MOST_TENSORS = 1 << 20
_MOST_DIMS = 4
_MOST_NESTING = 4
_MOST_ELEMENTS = 1 << 62
_KEY_BYTES = (1 << 16) - 1
_TENSOR_NAME_BYTES = 1024
_STRING_BYTES = 64 << 20
_KEPT_ELEMENTS = 4096
"""A longer array is replaced by its length; arrays with a value for each layer are far shorter."""
_LARGEST_ALIGNMENT = 1 << 20
_CHUNK_BYTES, _LEADING_CHUNK_BYTES = 256 << 10, 16 << 10
"""Read at once: of a whole header, and of the metadata before the vocabulary, which takes a few kilobytes."""


class ArrayLength(int):
    """The number of elements of an array that was too long to keep."""

    __slots__ = ()


class Header(msgspec.Struct, frozen=True):
    """One file's header as it was read."""

    raw: bytes
    """The bytes themselves, up to the end of the tensor table."""
    version: int
    big_endian: bool
    metadata: dict[str, object]
    """Arrays of the tokenizer, of more than 4,096 elements or of arrays are an `ArrayLength`."""
    tensors: tuple[TensorInfo, ...]
    file_bytes: int
    data_offset: int
    """Where the first tensor's bytes begin."""
    missing_bytes: int = 0
    """Bytes that the tensor table requires and the file lacks."""


def read_header(source: ByteSource, size: int, name: str, *, allow_missing_data: bool = False) -> Header:
    """Parse the header of a GGUF of `size` bytes; `name` is for messages.

    A file too short for its tensors is an error, unless `allow_missing_data` accepts a header alone.
    Raises BadFile for a damaged header and Unsupported for a version that ggbench does not read.
    """
    cursor, version, big_endian, n_tensors, n_keys = _begin(source, size, name)
    name = cursor.name
    metadata = _read_metadata(cursor, n_keys)
    alignment = _alignment(cursor, metadata)
    tensors, data_bytes = _read_tensors(cursor, n_tensors, alignment)
    data_offset = -(-cursor.position // alignment) * alignment
    missing = data_offset + data_bytes - size
    if data_bytes and missing > 0 and not allow_missing_data:
        raise BadFile(
            f"{name} is truncated: {format_bytes(missing)} of its {format_bytes(size + missing)} are missing",
            "download it again; ggbench needs the whole file here",
        )
    missing = max(0, missing) if data_bytes else 0
    return Header(cursor.consumed, version, big_endian, metadata, tensors, size, data_offset, missing)


def read_leading_metadata(source: ByteSource, size: int, name: str) -> dict[str, object]:
    """Return the metadata of a GGUF of `size` bytes up to its vocabulary: kilobytes to read instead of megabytes.

    Writers put what identifies a model before its vocabulary; in a file that does not, reading goes on until the
    architecture is found. Keys after the vocabulary are left out, also `general.file_type` where llama-quantize wrote
    it. Raises as `read_header` does, except for errors later in the file.
    """
    cursor, _, _, _, n_keys = _begin(source, size, name, _LEADING_CHUNK_BYTES)
    return _read_metadata(cursor, n_keys, up_to_vocabulary=True)


def _begin(
    source: ByteSource, size: int, name: str, chunk_bytes: int = _CHUNK_BYTES
) -> tuple[HeaderBytes, int, bool, int, int]:
    """Return the cursor at the first key, the version, the byte order, and the numbers of tensors and of keys."""
    name = sanitize(name)
    if size == 0:
        raise BadFile(f"{name} is empty", "download it again")
    cursor = HeaderBytes(source, size, name, chunk_bytes)
    _check_magic(cursor)
    version, big_endian = _read_version(cursor)
    n_tensors = cursor.u64("the number of tensors")
    n_keys = cursor.u64("the number of metadata keys")
    cursor.expect(n_tensors, 24, "tensors")
    cursor.expect(n_keys, 13, "metadata keys")
    if n_tensors > _MOST_TENSORS or n_keys > _MOST_KEYS:
        raise BadFile(
            f"{name} claims {format_count(n_tensors)} tensors and {format_count(n_keys)} metadata keys", BROKEN_HINT
        )
    return cursor, version, big_endian, n_tensors, n_keys


def _check_magic(cursor: HeaderBytes) -> None:
    magic = cursor.take(min(4, cursor.n_left), "its first bytes")
    if magic == MAGIC:
        return
    if magic in _OLD_MAGICS:
        raise Unsupported(
            f"{cursor.name} is a GGML file from before GGUF", "convert the model again with a current llama.cpp"
        )
    if magic == b"vers":
        raise BadFile(
            f"{cursor.name} is not a GGUF but may be a Git LFS pointer", "fetch the file itself: git lfs pull"
        )
    raise BadFile(f"{cursor.name} is not a GGUF: it begins with {magic!r}", "name a .gguf file")


def _read_version(cursor: HeaderBytes) -> tuple[int, bool]:
    raw = cursor.take(4, "the version")
    version = int.from_bytes(raw, "little")
    big_endian = version > 0xFFFF
    if big_endian:
        version = int.from_bytes(raw, "big")
        if version > 0xFFFF:
            raise cursor.broken("its GGUF version is garbage")
        cursor.use_big_endian()
    if version not in READABLE_VERSIONS:
        raise Unsupported(
            f"{cursor.name} is GGUF version {version}; ggbench reads versions 2 and 3",
            "convert the model again with a current llama.cpp"
            if version < min(READABLE_VERSIONS)
            else "update ggbench",
        )
    return version, big_endian


def _read_metadata(cursor: HeaderBytes, n_keys: int, *, up_to_vocabulary: bool = False) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(n_keys):
        key = cursor.string(_KEY_BYTES, f"the name of metadata key {index}")
        if not key or key in metadata:
            raise cursor.broken(f"metadata key {index}, {key!r}, {'repeats' if key else 'is empty'}")
        what = f"metadata key {key[:80]!r}"
        value_type = cursor.u32(what)
        is_vocabulary = value_type == ARRAY and key.startswith("tokenizer.")
        if up_to_vocabulary and is_vocabulary and ARCHITECTURE_KEY in metadata:
            break
        metadata[key] = _read_value(cursor, value_type, key, what)
    return metadata


def _read_value(cursor: HeaderBytes, value_type: int, key: str, what: str) -> object:
    if value_type in NUMBER_CODES:
        return cursor.number(NUMBER_CODES[value_type], what)
    if value_type == STRING:
        return cursor.string(_STRING_BYTES, what)
    if value_type != ARRAY:
        raise cursor.broken(f"{what} has the unknown value type {value_type}")
    element_type, count = cursor.u32(what), cursor.u64(what)
    if key.startswith("tokenizer.") or count > _KEPT_ELEMENTS or element_type == ARRAY:
        _skip_elements(cursor, element_type, count, what, nesting=1)
        return ArrayLength(count)
    if element_type == STRING:
        cursor.expect(count, 8, f"strings of {what}")
        return [cursor.string(_STRING_BYTES, what) for _ in range(count)]
    return list(cursor.numbers(_number_code(cursor, element_type, what), count, f"values of {what}"))


def _skip_elements(cursor: HeaderBytes, element_type: int, count: int, what: str, nesting: int) -> None:
    if element_type == STRING:
        cursor.skip_strings(count, f"strings of {what}")
    elif element_type == ARRAY:
        cursor.expect(count, 12, f"arrays of {what}")
        if nesting == _MOST_NESTING:
            raise cursor.broken(f"{what} nests arrays more than {_MOST_NESTING} deep")
        for _ in range(count):
            _skip_elements(cursor, cursor.u32(what), cursor.u64(what), what, nesting + 1)
    else:
        n_bytes = struct.calcsize("<" + _number_code(cursor, element_type, what))
        cursor.expect(count, n_bytes, f"values of {what}")
        cursor.skip(count * n_bytes, what)


def _number_code(cursor: HeaderBytes, element_type: int, what: str) -> str:
    code = NUMBER_CODES.get(element_type)
    if code is None:
        raise cursor.broken(f"{what} is an array of the unknown type {element_type}")
    return code


def _alignment(cursor: HeaderBytes, metadata: dict[str, object]) -> int:
    alignment = metadata.get(ALIGNMENT_KEY, ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.broken(f"{ALIGNMENT_KEY} is {alignment!r}, not a power of two")
    return alignment


def _read_tensors(cursor: HeaderBytes, n_tensors: int, alignment: int) -> tuple[tuple[TensorInfo, ...], int]:
    """Return the tensor table, and how many bytes of data it points into."""
    tensors: dict[str, TensorInfo] = {}
    data_bytes = 0
    for index in range(n_tensors):
        name = cursor.string(_TENSOR_NAME_BYTES, f"the name of tensor {index}")
        what = f"tensor {name[:80]!r}"
        if name in tensors:
            raise cursor.broken(f"{what} is in the table twice")
        n_dims = cursor.u32(what)
        if n_dims > _MOST_DIMS:
            raise cursor.broken(f"{what} claims {format_count(n_dims)} dimensions")
        shape = tuple(cursor.u64(what) for _ in range(n_dims))
        type_id, offset = cursor.u32(what), cursor.u64(what)
        tensor = _tensor(cursor, name, shape, type_id, what)
        if offset % alignment:
            raise cursor.broken(f"{what} begins at {offset}, off the alignment of {alignment}")
        tensors[name] = tensor
        data_bytes = max(data_bytes, offset + (tensor.n_bytes or 0))
    if sum(tensor.n_elements for tensor in tensors.values()) > _MOST_ELEMENTS:
        raise cursor.broken("its tensors claim more elements than any model has")
    if data_bytes > _MOST_ELEMENTS:
        raise cursor.broken(f"its table points {format_count(data_bytes)} bytes into the file")
    return tuple(tensors.values()), data_bytes


def _tensor(cursor: HeaderBytes, name: str, shape: tuple[int, ...], type_id: int, what: str) -> TensorInfo:
    ggml_type = known_types().get(type_id)
    tensor = TensorInfo(name, shape, ggml_type.name if ggml_type else f"type {type_id}", None)
    if tensor.n_elements > _MOST_ELEMENTS:
        raise cursor.broken(f"{what} claims {format_count(tensor.n_elements)} elements")
    if ggml_type is None:
        return tensor
    row_length, block_len = shape[0] if shape else 1, ggml_type.block_len
    if row_length % block_len:
        raise cursor.broken(f"{what} has rows of {row_length}, not whole {ggml_type.name} blocks of {block_len}")
    return TensorInfo(name, shape, ggml_type.name, ggml_type.row_bytes(tensor.n_elements))
