"""The header of a safetensors file, from a disk or by range: untrusted bytes, of which no tensor is read.

Eight bytes hold the length of the header, a JSON object with the type, shape and place of each tensor after it.
Source of the format and its limits: the README and `tensor.rs` of the safetensors crate (`MAX_HEADER_SIZE`; tensors
follow one another without gaps).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec

from ggbench.engines.transformers.config_json import decode_object
from ggbench.engines.transformers.storage import DTYPE_BITS, Stored
from ggbench.errors import BadFile, Unsupported
from ggbench.gguf_file.header_bytes import Source
from ggbench.text import plain, shorten
from ggbench.units import format_bytes, format_count

LARGEST_HEADER_BYTES = 100_000_000
"""`MAX_HEADER_SIZE` of the safetensors crate."""
_LENGTH_BYTES = 8
_MOST_DIMS = 8
_MOST_ELEMENTS = 1 << 48
_METADATA = "__metadata__"
_HINT = "the file is damaged, incomplete or not safetensors; download it again"


class SafetensorsHeader(msgspec.Struct, frozen=True):
    """One file's header."""

    tensors: tuple[Stored, ...]
    """In the order of their bytes."""
    raw: bytes
    """Length and JSON, as they were read."""
    n_bytes: int
    """The whole file as its header describes it."""
    missing_bytes: int
    """Of those, what the file lacks, as after a download that stopped."""


def read_safetensors(source: Source, size: int, name: str) -> SafetensorsHeader:
    """Return the header of a file of `size` bytes; `name` is for messages.

    A file too short for its tensors is not an error: `missing_bytes` says so. Raises BadFile for a header that is not
    whole or contradicts itself, and Unsupported for a type of unknown size.
    """
    source.seek(0)
    beginning = _read(source, _LENGTH_BYTES, name)
    (n_header,) = struct.unpack("<Q", beginning)
    if not 2 <= n_header <= LARGEST_HEADER_BYTES or beginning[:4] == b"GGUF":
        raise BadFile(f"{name} is not safetensors: its header claims {format_count(n_header)} bytes", _HINT)
    if _LENGTH_BYTES + n_header > size:
        missing = format_bytes(_LENGTH_BYTES + n_header - size)
        raise BadFile(f"{name} ends inside its header: {missing} are missing", _HINT)
    data = _read(source, n_header, name)
    if not data.startswith(b"{"):
        raise BadFile(f"{name} is not safetensors: its header is not a JSON object", _HINT)
    entries = decode_object(data, f"the header of {name}")
    entries.pop(_METADATA, None)
    placed = sorted((_tensor(key, entry, name) for key, entry in entries.items()), key=lambda each: each[0])
    end = 0
    for begin, tensor in placed:
        if begin != end:
            raise BadFile(f"{name}: tensor {shorten(tensor.name, 60)!r} is not where the one before it ends", _HINT)
        end = begin + tensor.n_bytes
    whole = _LENGTH_BYTES + n_header + end
    if size > whole:
        raise BadFile(f"{name} has {format_bytes(size - whole)} after its last tensor", _HINT)
    return SafetensorsHeader(tuple(tensor for _, tensor in placed), beginning + data, whole, whole - size)


def _tensor(name: str, entry: object, file: str) -> tuple[int, Stored]:
    """Return where a tensor begins, and what it is. Raises BadFile and Unsupported."""
    what = f"{file}: tensor {shorten(name, 60)!r}"
    if not isinstance(entry, dict):
        raise BadFile(f"{what} has no type, shape and place", _HINT)
    dtype, shape = entry.get("dtype"), _whole_numbers(entry.get("shape"))
    offsets = _whole_numbers(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2 or len(shape) > _MOST_DIMS:
        raise BadFile(f"{what} has no type, shape and place", _HINT)
    if dtype not in DTYPE_BITS:
        raise Unsupported(f"{what} is of type {shorten(dtype, 20)}, whose size is not known", "update ggbench")
    n_elements = 1
    for side in shape:
        n_elements *= side
        if n_elements > _MOST_ELEMENTS:
            raise BadFile(f"{what} claims more elements than any tensor has", _HINT)
    tensor = Stored(plain(name), dtype, shape)
    if offsets[1] - offsets[0] != tensor.n_bytes:
        raise BadFile(
            f"{what} of {format_count(tensor.n_bytes)} bytes is given {format_count(offsets[1] - offsets[0])}", _HINT
        )
    return offsets[0], tensor


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    """Return a list of numbers from 0 to 2^62; None for anything else."""
    if not isinstance(value, list) or len(value) > _MOST_DIMS + 1:
        return None
    numbers = tuple(each for each in value if type(each) is int and 0 <= each < 1 << 62)
    return numbers if len(numbers) == len(value) else None


def _read(source: Source, n_bytes: int, name: str) -> bytes:
    """Return exactly that many bytes. Raises BadFile where there are fewer."""
    parts, left = [], n_bytes
    while left:
        try:
            part = source.read(left)
        except OSError as error:
            raise BadFile(
                f"{name} cannot be read: {error.strerror or error}", "check the disk or the network"
            ) from None
        if not part:
            raise BadFile(f"{name} is shorter than a safetensors header", _HINT)
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def weight_map(data: bytes, name: str) -> Mapping[str, str]:
    """Return each tensor's file by `model.safetensors.index.json`. Raises BadFile for a name outside the folder."""
    found = decode_object(data, f"the index of {name}").get("weight_map")
    if not isinstance(found, dict) or not found:
        raise BadFile(f"the index of {name} has no weight_map", _HINT)
    files: dict[str, str] = {}
    for tensor, file in found.items():
        if not isinstance(file, str) or not _is_plain_name(file):
            raise BadFile(
                f"the index of {name} names {shorten(str(file), 60)!r}, which is no file of its folder",
                "do not use this checkpoint",
            )
        files[plain(tensor)] = file
    return files


def _is_plain_name(file: str) -> bool:
    return file.endswith(".safetensors") and plain(file) == file and not {"/", "\\", "\0"} & set(file)
