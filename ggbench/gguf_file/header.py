"""Make a `ModelFile` from a path or from parsed headers, and encode a header as bytes.

Reading and assembling are separate, so that headers fetched over HTTP give the same ModelFile as local files. gguf's
writer is not used, because a plan of a large model needs a header for each quant in memory: that writer only writes to
files, and importing it takes longer than encoding all headers.
"""

from __future__ import annotations

import functools
import hashlib
import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict, replace

from ggbench.errors import BadFile, Unsupported
from ggbench.files import disk_errors
from ggbench.gguf_file.architecture import read_shape
from ggbench.gguf_file.ggml_types import tensor_bytes, type_by_name
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import (
    ALIGNMENT,
    ARCHITECTURE_KEY,
    ARRAY,
    BROKEN_HINT,
    MAGIC,
    NUMBER_CODES,
    STRING,
    VERSION,
    Header,
    open_gguf,
    read_header,
)
from ggbench.gguf_file.quants import model_name, parse_shard_name
from ggbench.record import Record
from ggbench.text import sanitize

SPLIT_NO, SPLIT_COUNT = "split.no", "split.count"
_MOST_SHARDS = 99_999
_VALUE_TYPES = {code: value_type for value_type, code in NUMBER_CODES.items()}
_CODES_BY_KEY = {
    "qwen4exp.ple.head_offsets": "Q",
    "qwen4exp.ple.head_vocab_sizes": "Q",
    SPLIT_NO: "H",
    SPLIT_COUNT: "H",
    "split.tensors.count": "i",
    "tokenizer.ggml.token_type": "i",
}
"""Keys that llama.cpp accepts with only one type."""


def read_model_file(path: Path, *, allow_missing_data: bool = False) -> ModelFile:
    """Return the model in this file, or given one shard of a split model, the whole model.

    `allow_missing_data` accepts files with only the header. Raises BadFile, and Unsupported for old versions.
    """
    header = read_local_header(path, allow_missing_data=allow_missing_data)
    paths = _shard_paths(path, shard_count(header, path.name))
    headers = [
        header if shard == path else read_local_header(shard, allow_missing_data=allow_missing_data)
        for shard in paths
    ]
    return assemble(headers, model_name(path.name), paths)


def read_local_header(path: Path, *, allow_missing_data: bool = False) -> Header:
    """Return the header of this one file, without other shards. Raises BadFile, and Unsupported for old versions."""
    with open_gguf(path) as (source, size):
        return read_header(source, size, path.name, allow_missing_data=allow_missing_data)


def shard_count(header: Header, name: str) -> int:
    """Return the number of files of the model, 1 if not split. Raises BadFile for an absurd number."""
    count = header.metadata.get(SPLIT_COUNT, 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_SHARDS:
        raise BadFile(f"{sanitize(name)}: split.count is {str(count)[:40]!r}", BROKEN_HINT)
    return max(count, 1)


def assemble(headers: Sequence[Header], name: str, paths: Sequence[Path] = ()) -> ModelFile:
    """Make one ModelFile from the headers of all its shards, in order; `paths` stays empty for remote files.

    Raises BadFile if the shards do not belong together.
    """
    printable = sanitize(name)
    first = headers[0]
    _check_shards(headers, printable)
    tensors: dict[str, TensorInfo] = {}
    for index, header in enumerate(headers):
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise BadFile(f"{printable}: tensor {tensor.name[:80]!r} is in two shards", BROKEN_HINT)
            tensors[tensor.name] = replace(tensor, shard=index) if index else tensor
    architecture = first.metadata.get(ARCHITECTURE_KEY)
    architecture = architecture if isinstance(architecture, str) and architecture else "unknown"
    return ModelFile(
        name=name,
        paths=tuple(paths),
        file_bytes=sum(header.file_bytes for header in headers),
        missing_bytes=sum(header.missing_bytes for header in headers),
        version=first.version,
        architecture=architecture,
        metadata=first.metadata,
        tensors=tuple(tensors.values()),
        header_sha256=hashlib.sha256(b"".join(header.raw for header in headers)).hexdigest(),
        **asdict(read_shape(printable, architecture, first.metadata, tensors.values())),
    )


def _shard_paths(path: Path, count: int) -> list[Path]:
    if count == 1:
        return [path]
    shard = parse_shard_name(path.name)
    if shard is None or shard.count != count:
        raise BadFile(
            f"{sanitize(path.name)} is one of {count} shards but is not named so",
            f"name the shards as they were published: NAME-00001-of-{count:05}.gguf",
        )
    paths = shard.shard_paths(path)
    missing = [candidate.name for candidate in paths if not candidate.exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadFile(f"shard {sanitize(missing[0])}{more} is missing", "download it into the same folder")
    return paths


def _check_shards(headers: Sequence[Header], name: str) -> None:
    if len(headers) == 1:
        return
    for index, header in enumerate(headers):
        number, count = header.metadata.get(SPLIT_NO), header.metadata.get(SPLIT_COUNT)
        if number != index or count != len(headers):
            stated = f"{number + 1} of {str(count)[:40]!r}" if isinstance(number, int) else "none"
            raise BadFile(
                f"{name}: the file in place {index + 1} of {len(headers)} claims to be {stated}",
                "download the shards again, all from one place",
            )


class EncodedHeader(Record):
    """Everything before the first tensor; tensors follow consecutively, each padded to `ALIGNMENT`."""

    data: bytes
    """Metadata and tensor table, padded with zeros up to the first tensor."""
    file_bytes: int
    """The whole file, including the padding after the last tensor."""
    n_padding_bytes: int
    """Zeros at the end of `data`."""


def encode_header(metadata: Mapping[str, object], tensors: Iterable[TensorInfo]) -> EncodedHeader:
    """Return the little-endian GGUF v3 header of one file with this metadata and these tensors, in their order.

    Integers become uint32 if they fit, floats float32, lists arrays of one type, as llama.cpp expects; the keys of a
    split model have their own types. Raises Unsupported for a value or a tensor type that cannot be encoded.
    """
    listed = tuple(tensors)
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(listed), len(metadata))]
    for key, value in metadata.items():
        parts += (_string(key), _typed(key, value))
    table, end = _encode_table(listed)
    data = b"".join((*parts, table))
    padding = n_padding(len(data))
    return EncodedHeader(data + bytes(padding), len(data) + padding + end, padding)


@functools.lru_cache(maxsize=16)
def _encode_table(tensors: tuple[TensorInfo, ...]) -> tuple[bytes, int]:
    """Return the tensor table and the end of the tensors' data; cached, as a plan needs each quant's several times."""
    parts: list[bytes] = []
    end = 0
    for tensor in tensors:
        if tensor.n_bytes is None:
            raise Unsupported(
                f"tensor {tensor.name!r} has a type of unknown size: {tensor.type_name}", "update ggbench"
            )
        n_dims = len(tensor.shape)
        type_id = type_by_name(tensor.type_name).type_id
        parts += (_string(tensor.name), struct.pack(f"<I{n_dims}QIQ", n_dims, *tensor.shape, type_id, end))
        n_bytes = tensor_bytes(
            tensor.type_name, tensor.shape
        )  # `tensor.n_bytes` may be scaled to a published size
        end += n_bytes + n_padding(n_bytes)
    return b"".join(parts), end


def encode_model(metadata: Mapping[str, object], tensors: Iterable[TensorInfo], name: str) -> ModelFile:
    """Return the model described by this header, without a file. Raises like `encode_header`."""
    listed = tuple(tensors)
    header, keys = encode_header(metadata, listed), encode_header(metadata, ()).data
    stored = read_header(io.BytesIO(keys), len(keys), name).metadata  # numbers as in the file
    raw = header.data[: len(header.data) - header.n_padding_bytes]
    return assemble([Header(raw, VERSION, stored, listed, header.file_bytes, len(header.data))], name)


def write_sparse_file(path: Path, data: bytes, n_bytes: int) -> Path:
    """Write `data`, then a hole up to `n_bytes`, and return the path. Raises DoesNotFit."""
    with disk_errors(path.parent, "set TMPDIR to a folder with room"), path.open("wb") as file:
        file.write(data)
        file.truncate(n_bytes)
    return path


def n_padding(n_bytes: int) -> int:
    """Return the bytes of padding up to the next aligned offset."""
    return -n_bytes % ALIGNMENT


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(key: str, value: object) -> bytes:
    if isinstance(value, list | tuple):
        value_type = _type_of_all(key, value)
        return struct.pack("<IIQ", ARRAY, value_type, len(value)) + b"".join(
            _pack(value_type, item) for item in value
        )
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
        return _VALUE_TYPES[_whole_code(min(whole), max(whole))]
    if all(isinstance(value, float) for value in values):
        return _VALUE_TYPES["f"]
    raise Unsupported(
        f"metadata {key!r} has a value of a type that cannot be written",
        "use only numbers, booleans and strings",
    )


def _whole_code(least: int, most: int) -> str:
    """Return the code of the first type that holds whole numbers from `least` to `most`."""
    for code, low, high in (("I", 0, 1 << 32), ("i", -(1 << 31), 1 << 31), ("Q", 0, 1 << 64)):
        if low <= least and most < high:
            return code
    return "q"


def _pack(value_type: int, value: object) -> bytes:
    return _string(value) if isinstance(value, str) else struct.pack(f"<{NUMBER_CODES[value_type]}", value)
