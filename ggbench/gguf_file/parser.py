"""Parse a little-endian GGUF header, version 2 or 3: bytes in, a `Header` out.

gguf's GGUFReader is not used, for three reasons.

Headers are untrusted: this parser limits every count and length and checks it against the bytes left in the file before
reading or allocating. Headers may be remote: it reads forward from any source, such as HTTP ranges, while GGUFReader
maps a local file. And files may be newer than the tables: a tensor of unknown type keeps its name and shape and lacks
only its size. The format's numbers are literals, not gguf's constants, because `ggbench models` reads the start of many
headers without importing gguf; the tests compare them. Source: the GGUF specification (ggml, docs/gguf.md), gguf.cpp
and enum gguf_type of gguf.h.
"""

from __future__ import annotations

import contextlib
import math
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ggbench.errors import BadFile, Unsupported
from ggbench.gguf_file.ggml_types import IK_HINT, IK_TYPES, known_types
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.record import Record
from ggbench.text import sanitize, shorten_middle
from ggbench.units import format_bytes, format_count

MAGIC = b"GGUF"
VERSION = 3
"""The version written by ggbench."""
READABLE_VERSIONS = (2, 3)

ALIGNMENT = 32
"""In bytes; assumed by readers without `general.alignment`, and written by ggbench."""
ALIGNMENT_KEY = "general.alignment"
ARCHITECTURE_KEY = "general.architecture"

NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The `struct` code of each numeric value type."""
STRING, ARRAY = 8, 9
"""The other value types."""

BROKEN_HINT = "the file is damaged, incomplete, or not a GGUF; download or convert it again"

_LARGEST_HEADER_BYTES = 256 << 20
"""Well above any real one: a vocabulary of 262,144 tokens with its merges takes about 15 MiB."""
_LONGEST_NAME = 255
"""Maximum length of a file name in characters, as no file system of Linux or macOS allows more."""
_MOST_KEYS = 1 << 16
_MOST_TENSORS = 1 << 20
_MOST_DIMS = 4
_MOST_NESTING = 4
_MOST_ELEMENTS = 1 << 62
_KEY_BYTES = (1 << 16) - 1
_TENSOR_NAME_BYTES = 1024
_STRING_BYTES = 64 << 20
_KEPT_ELEMENTS = 4096
"""A longer array is replaced by its length; arrays with a value per layer are far shorter."""
_LARGEST_ALIGNMENT = 1 << 20
_U64 = struct.Struct("<Q")
_CHUNK_BYTES, _LEADING_CHUNK_BYTES = 256 << 10, 16 << 10
"""Bytes to read at once: of a whole header, and of the metadata before the vocabulary, a few kilobytes."""


class ArrayLength(int):
    """The number of elements of an array that was too long to keep."""

    __slots__ = ()


class Header(Record):
    raw: bytes
    """Bytes up to the end of the tensor table."""
    version: int
    metadata: dict[str, object]
    """Arrays of the tokenizer, of more than 4,096 elements or of arrays are an `ArrayLength`."""
    tensors: tuple[TensorInfo, ...]
    file_bytes: int
    data_offset: int
    """Offset of the first tensor's bytes."""
    missing_bytes: int = 0
    """Bytes required by the tensor table but missing in the file."""


class ByteSource(Protocol):
    """Source of a header: a binary file, or ranges of a remote one."""

    def seek(self, offset: int, /) -> int: ...

    def read(self, n_bytes: int, /) -> bytes:
        """Return up to this many bytes; none at the end."""


@contextlib.contextmanager
def open_gguf(path: Path) -> Iterator[tuple[ByteSource, int]]:
    """Open an ordinary file, and yield it with its size. Raises BadFile."""
    name = shorten_middle(path.name, _LONGEST_NAME)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            hint = "give a .gguf file; ggbench models DIR lists those of a folder"
            raise BadFile(f"{sanitize(str(path))} is not an ordinary file", hint)
        with path.open("rb", buffering=0) as source:
            yield source, status.st_size
    except FileNotFoundError:
        raise BadFile(f"{name} does not exist", f"looked in {sanitize(str(path.parent.absolute()))}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadFile(f"{name} cannot be opened: {reason}", "check the path and its permissions") from error


def read_header(source: ByteSource, size: int, name: str, *, allow_missing_data: bool = False) -> Header:
    """Parse the header of a GGUF of `size` bytes; `name` is for messages.

    A file too short for its tensors is an error unless `allow_missing_data` accepts a header alone.
    Raises BadFile for a damaged header and Unsupported for a version that ggbench does not read.
    """
    cursor, version, n_tensors, n_keys = _begin(source, size, name)
    metadata = _read_metadata(cursor, n_keys)
    alignment = metadata.get(ALIGNMENT_KEY, ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.broken(f"{ALIGNMENT_KEY} is {alignment!r}, not a power of two")
    tensors, data_bytes = _read_tensors(cursor, n_tensors, alignment)
    data_offset = -(-cursor.position // alignment) * alignment
    missing = max(0, data_offset + data_bytes - size) if data_bytes else 0
    if missing and not allow_missing_data:
        raise BadFile(
            f"{cursor.name} is truncated: {format_bytes(missing)} of its {format_bytes(size + missing)} are missing",
            "download it again; ggbench needs the whole file here",
        )
    return Header(cursor.consumed, version, metadata, tensors, size, data_offset, missing)


def read_leading_metadata(source: ByteSource, size: int, name: str) -> tuple[dict[str, object], int]:
    """Return the metadata of a GGUF of `size` bytes up to its vocabulary, kilobytes to read instead of megabytes, and
    the number of its tensors.

    Writers put what identifies a model before its vocabulary; in a file that does not, reading continues until the
    architecture is found. Keys after the vocabulary are left out, including `general.file_type` if llama-quantize wrote
    it. Raises like `read_header`, except for errors later in the file.
    """
    cursor, _, n_tensors, n_keys = _begin(source, size, name, _LEADING_CHUNK_BYTES)
    return _read_metadata(cursor, n_keys, up_to_vocabulary=True), n_tensors


class _HeaderBytes:
    """A cursor that moves forward; raises BadFile, naming the file, if bytes are missing."""

    def __init__(self, source: ByteSource, size: int, name: str, chunk_bytes: int) -> None:
        self.name = name
        """Name for messages; printable."""
        self.size = size
        """Size of the whole file."""
        self.position = 0
        self._source, self._chunk_bytes = source, chunk_bytes
        self._data = bytearray()
        source.seek(0)

    @property
    def consumed(self) -> bytes:
        """All bytes read so far."""
        return bytes(self._data[: self.position])

    def broken(self, reason: str) -> BadFile:
        return BadFile(f"{self.name}: {reason}", BROKEN_HINT)

    def expect(self, n_items: int, least_bytes: int) -> None:
        """Raise BadFile unless this many items, of at least this many bytes each, can follow."""
        left = self.size - self.position
        if n_items * least_bytes > left:
            raise self.broken(f"{format_count(n_items)} items cannot fit into its last {format_bytes(left)}")

    def take(self, n_bytes: int) -> bytes:
        start = self.skip(n_bytes)
        return bytes(self._data[start : start + n_bytes])

    def skip(self, n_bytes: int) -> int:
        """Skip bytes, and return their start in the bytes read so far."""
        start, end = self.position, self.position + n_bytes
        if end > len(self._data):
            self._fill(end)
        self.position = end
        return start

    def numbers(self, code: str, count: int = 1) -> tuple[Any, ...]:
        """Return numbers with this code of `struct`."""
        if count > 1:
            self.expect(count, struct.calcsize("<" + code))
        layout = f"<{count}{code}"
        start = self.skip(struct.calcsize(layout))
        return struct.unpack_from(layout, self._data, start)

    def u32(self) -> int:
        return int(self.numbers("I")[0])

    def u64(self) -> int:
        start = self.skip(8)
        value: int = _U64.unpack_from(self._data, start)[0]
        return value

    def string(self, most_bytes: int) -> str:
        """Return a text stored as its length and UTF-8; bytes that are not UTF-8 become U+FFFD."""
        n_bytes = self.u64()
        if n_bytes > most_bytes:
            raise self.broken(f"a text claims a length of {format_count(n_bytes)} bytes")
        return self.take(n_bytes).decode("utf-8", errors="replace")

    def skip_strings(self, count: int) -> None:
        """Skip strings without decoding them: a vocabulary has more than a hundred thousand."""
        self.expect(count, 8)
        length_at = _U64.unpack_from
        while count:
            self._fill(self.position + 8)
            data, position, last = self._data, self.position, len(self._data) - 8
            while count and position <= last:
                position += 8 + length_at(data, position)[0]
                count -= 1
            self._fill(position)
            self.position = position

    def _fill(self, end: int) -> None:
        if end > self.size:
            missing = format_count(end - self.size)
            raise BadFile(f"{self.name} ends inside its header: {missing} bytes are missing", BROKEN_HINT)
        if end > _LARGEST_HEADER_BYTES:
            raise self.broken(f"its header is larger than {format_bytes(_LARGEST_HEADER_BYTES)}")
        while len(self._data) < end:
            try:
                chunk = self._source.read(max(self._chunk_bytes, end - len(self._data)))
            except OSError as error:
                raise BadFile(
                    f"{self.name} cannot be read: {error.strerror or error}", "check the disk or the network"
                ) from error
            if not chunk:
                raise self.broken(
                    f"it ended after {format_bytes(len(self._data))} of {format_bytes(self.size)}"
                )
            self._data += chunk


def _begin(
    source: ByteSource, size: int, name: str, chunk_bytes: int = _CHUNK_BYTES
) -> tuple[_HeaderBytes, int, int, int]:
    """Return the cursor at the first key, the version, and the numbers of tensors and of keys."""
    cursor = _HeaderBytes(source, size, sanitize(name), chunk_bytes)
    if cursor.take(min(4, size)) != MAGIC:
        raise BadFile(
            f"{cursor.name} is not a GGUF",
            "give a .gguf file; it may be a page of a server or a Git LFS pointer in place of one: download it again",
        )
    version = cursor.u32()
    if version not in READABLE_VERSIONS:
        raise Unsupported(
            f"{cursor.name} is GGUF version {version}; ggbench reads versions 2 and 3, little-endian",
            "convert the model again with a current llama.cpp, or update ggbench",
        )
    n_tensors, n_keys = cursor.u64(), cursor.u64()
    cursor.expect(n_tensors, 24)
    cursor.expect(n_keys, 13)
    if n_tensors > _MOST_TENSORS or n_keys > _MOST_KEYS:
        raise cursor.broken(
            f"claims {format_count(n_tensors)} tensors and {format_count(n_keys)} metadata keys"
        )
    return cursor, version, n_tensors, n_keys


def _read_metadata(cursor: _HeaderBytes, n_keys: int, *, up_to_vocabulary: bool = False) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(n_keys):
        key = cursor.string(_KEY_BYTES)
        if not key or key in metadata:
            raise cursor.broken(f"metadata key {index} is empty or a duplicate: {key[:80]!r}")
        value_type = cursor.u32()
        is_vocabulary = value_type == ARRAY and key.startswith("tokenizer.")
        if up_to_vocabulary and is_vocabulary and ARCHITECTURE_KEY in metadata:
            break
        metadata[key] = _read_value(cursor, value_type, key)
    return metadata


def _read_value(cursor: _HeaderBytes, value_type: int, key: str) -> object:
    if value_type == STRING:
        return cursor.string(_STRING_BYTES)
    if value_type != ARRAY:
        return cursor.numbers(_number_code(cursor, value_type))[0]
    element_type, count = cursor.u32(), cursor.u64()
    if key.startswith("tokenizer.") or count > _KEPT_ELEMENTS or element_type == ARRAY:
        _skip_elements(cursor, element_type, count, nesting=1)
        return ArrayLength(count)
    if element_type == STRING:
        cursor.expect(count, 8)
        return [cursor.string(_STRING_BYTES) for _ in range(count)]
    return list(cursor.numbers(_number_code(cursor, element_type), count))


def _skip_elements(cursor: _HeaderBytes, element_type: int, count: int, nesting: int) -> None:
    if element_type == STRING:
        cursor.skip_strings(count)
    elif element_type == ARRAY:
        cursor.expect(count, 12)
        if nesting == _MOST_NESTING:
            raise cursor.broken(f"it nests arrays more than {_MOST_NESTING} deep")
        for _ in range(count):
            _skip_elements(cursor, cursor.u32(), cursor.u64(), nesting + 1)
    else:
        n_bytes = struct.calcsize("<" + _number_code(cursor, element_type))
        cursor.expect(count, n_bytes)
        cursor.skip(count * n_bytes)


def _number_code(cursor: _HeaderBytes, value_type: int) -> str:
    code = NUMBER_CODES.get(value_type)
    if code is None:
        raise cursor.broken(f"a value has the unknown type {value_type}")
    return code


def _read_tensors(cursor: _HeaderBytes, n_tensors: int, alignment: int) -> tuple[tuple[TensorInfo, ...], int]:
    """Return the tensor table, and the number of data bytes that it covers."""
    tensors: dict[str, TensorInfo] = {}
    data_bytes = 0
    for _ in range(n_tensors):
        name = cursor.string(_TENSOR_NAME_BYTES)
        what = f"tensor {name[:80]!r}"
        if name in tensors:
            raise cursor.broken(f"{what} is listed twice")
        n_dims = cursor.u32()
        if n_dims > _MOST_DIMS:
            raise cursor.broken(f"{what} has {format_count(n_dims)} dimensions; GGUF allows {_MOST_DIMS}")
        shape = tuple(cursor.u64() for _ in range(n_dims))
        type_id, offset = cursor.u32(), cursor.u64()
        tensor = _tensor(cursor, name, shape, type_id)
        if offset % alignment:
            raise cursor.broken(f"{what} starts at {offset}, not aligned to {alignment}")
        tensors[name] = tensor
        data_bytes = max(data_bytes, offset + (tensor.n_bytes or 0))
    n_elements = sum(tensor.n_elements for tensor in tensors.values())
    if max(n_elements, data_bytes) > _MOST_ELEMENTS:
        raise cursor.broken("its tensors claim more elements than any model has")
    return tuple(tensors.values()), data_bytes


def _tensor(cursor: _HeaderBytes, name: str, shape: tuple[int, ...], type_id: int) -> TensorInfo:
    ggml_type = known_types().get(type_id)
    if type_id in IK_TYPES:
        what = f"{cursor.name} has tensors of type {IK_TYPES[type_id]}, which only ik_llama.cpp has"
        raise Unsupported(what, IK_HINT)
    if ggml_type is None:
        return TensorInfo(name, shape, f"type {type_id}", None)
    row_length, block_len = shape[0] if shape else 1, ggml_type.block_len
    if row_length % block_len:
        raise cursor.broken(
            f"tensor {name[:80]!r} has rows of {row_length}, not whole {ggml_type.name} blocks of {block_len}"
        )
    return TensorInfo(name, shape, ggml_type.name, ggml_type.row_bytes(math.prod(shape)))
