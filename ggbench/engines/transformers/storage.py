"""Storage of a model's tensors under each method: packed weights with their scales and zeros, in bytes.

A method converts the linear layers of the decoder blocks. The embedding, the output, the norms and biases keep a type
of two or four bytes.

Sources. `int8`: bitsandbytes' `Int8Params` (a row of int8 for each output, with one float32 scale in `SCB`). `nf4`:
bitsandbytes' `quantize_4bit` and `QuantState` (two weights to a byte, absmax float32 for each 64, and with double
quantization absmax in int8, with one float32 for each 256). Modules that both skip: Transformers'
`get_keys_to_not_convert`. `gptq-int4`: AutoGPTQ's `qlinear_exllamav2.py`, the same buffers as in GPTQModel. `awq-int4`:
AutoAWQ's `WQLinear_GEMM`. AutoGPTQ ignores `lm_head` and everything outside the layers; AutoAWQ looks for linear layers
only inside the blocks.

A safetensors file starts with eight bytes, the length of the header, then the header, a JSON object with the type,
shape and offsets of each tensor. Source of the format and its limits: the README and `tensor.rs` of the safetensors
crate (`MAX_HEADER_SIZE`; tensors follow one another without gaps).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ggbench.engines.transformers.config_json import DAMAGED_HINT, Config, Parameter, decode_object
from ggbench.errors import BadFile, UnknownName, Unsupported
from ggbench.gguf_file.parser import ByteSource
from ggbench.text import sanitize, shorten
from ggbench.units import format_bytes, format_count

GROUP = 128
"""Number of weights per scale and zero, in GPTQ and AWQ."""
_BLOCK = 64
"""Number of weights per absmax of nf4: the default of bitsandbytes."""
_NESTED_BLOCK = 256
_WORD_BITS = 32

DTYPE_BITS: Mapping[str, int] = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Bits of an element of each type of safetensors. Source: `Dtype::bitsize` of the safetensors crate."""


class Stored(msgspec.Struct, frozen=True):
    name: str
    """`model.layers.0.self_attn.q_proj.qweight`."""
    dtype: str
    """Safetensors' name, one of `DTYPE_BITS`."""
    shape: tuple[int, ...]
    """In torch's order: outputs first in an unquantized matrix."""

    @property
    def n_bytes(self) -> int:
        return (math.prod(self.shape) * DTYPE_BITS[self.dtype] + 7) // 8


class Method(msgspec.Struct, frozen=True):
    name: str
    dtype: str | None
    """Type of unconverted parameters; None for the config's, or two bytes if not stated."""
    convert: Callable[[Parameter], Iterator[Stored]] | None = None
    """Yields the stored parts of a converted matrix; None if it is stored like the rest."""
    quant_method: str | None = None
    """`quant_method` in the checkpoint's `quantization_config`; None if it is not quantized."""

    def stored(self, parameter: Parameter, dtype: str) -> tuple[Stored, ...]:
        """Return the stored parts of a parameter; `dtype` is a config's, `bf16`. Raises Unsupported."""
        if parameter.is_converted and self.convert is not None:
            return tuple(self.convert(parameter))
        return (Stored(parameter.name, (self.dtype or dtype).upper(), parameter.shape),)


def _int8(parameter: Parameter) -> Iterator[Stored]:
    yield Stored(parameter.name, "I8", parameter.shape)
    yield Stored(_beside(parameter, "SCB"), "F32", (parameter.shape[0],))


def _nf4(parameter: Parameter, *, twice: bool = False) -> Iterator[Stored]:
    name, n_blocks = parameter.name, -(-parameter.n_elements // _BLOCK)
    yield Stored(name, "U8", (-(-parameter.n_elements // 2), 1))
    yield Stored(f"{name}.absmax", "U8" if twice else "F32", (n_blocks,))
    if twice:
        yield Stored(f"{name}.nested_absmax", "F32", (-(-n_blocks // _NESTED_BLOCK),))
        yield Stored(f"{name}.nested_quant_map", "F32", (256,))
    yield Stored(f"{name}.quant_map", "F32", (16,))


def gptq(parameter: Parameter, bits: int = 4, group: int | None = GROUP) -> Iterator[Stored]:
    """Yield the parts that GPTQ stores of a matrix, inputs packed; a `group` of None is a whole row. Raises
    Unsupported.
    """
    n_out, n_in, n_groups = _grouped(parameter, "GPTQ", bits, group)
    yield Stored(_beside(parameter, "qweight"), "I32", (n_in * bits // _WORD_BITS, n_out))
    yield Stored(_beside(parameter, "qzeros"), "I32", (n_groups, n_out * bits // _WORD_BITS))
    yield Stored(_beside(parameter, "scales"), "F16", (n_groups, n_out))
    yield Stored(_beside(parameter, "g_idx"), "I32", (n_in,))


def awq(parameter: Parameter, group: int | None = GROUP) -> Iterator[Stored]:
    """Yield the parts that 4-bit AWQ stores of a matrix, outputs packed; a `group` of None is a whole row. Raises
    Unsupported.
    """
    n_out, n_in, n_groups = _grouped(parameter, "AWQ", 4, group)
    yield Stored(_beside(parameter, "qweight"), "I32", (n_in, n_out * 4 // _WORD_BITS))
    yield Stored(_beside(parameter, "qzeros"), "I32", (n_groups, n_out * 4 // _WORD_BITS))
    yield Stored(_beside(parameter, "scales"), "F16", (n_groups, n_out))


def _beside(parameter: Parameter, suffix: str) -> str:
    return f"{parameter.name.rpartition('.')[0]}.{suffix}"


def _grouped(parameter: Parameter, method: str, bits: int, group: int | None) -> tuple[int, int, int]:
    """Return outputs, inputs and groups of a row, which must consist of complete groups. Raises Unsupported."""
    n_out, n_in = parameter.shape
    size = group or n_in
    if n_in % size or n_out * bits % _WORD_BITS or n_in * bits % _WORD_BITS:
        raise Unsupported(
            f"{parameter.name} of {n_out} x {n_in} cannot be {method} in groups of {size}",
            "use bf16, int8 or nf4, which have no such groups",
        )
    return n_out, n_in, n_in // size


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("bf16", "bf16"),
        Method("f16", "f16"),
        Method("f32", "f32"),
        Method("int8", None, _int8, "bitsandbytes"),
        Method("nf4", None, _nf4, "bitsandbytes"),
        Method("nf4-dq", None, partial(_nf4, twice=True), "bitsandbytes"),
        Method("gptq-int4", "f16", gptq, "gptq"),
        Method("awq-int4", "f16", awq, "awq"),
    )
}
"""QUANT of a checkpoint, in the order of tables; `nf4-dq` is nf4 with double quantization."""


def method_by_name(name: str) -> Method:
    try:
        return METHODS[name.lower()]
    except KeyError:
        raise UnknownName("quant of a checkpoint", name, (), f"known: {', '.join(METHODS)}") from None


_GROUP_SIZE = Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)]


def stored_method(config: Config) -> Method:
    """Return the method of a checkpoint, `bf16` if its config states no type.

    Raises Unsupported for a method with unknown tensors, BadFile for impossible values.
    """
    stated = config.quantization
    if stated is None:
        return METHODS[config.dtype or "bf16"]
    kind = stated.read("quant_method", str, "").lower()
    if not kind and (stated.flag("load_in_4bit", False) or stated.flag("load_in_8bit", False)):
        kind = "bitsandbytes"  # Transformers added quant_method later
    what = shorten(kind, 30) or "an unnamed method"
    if kind == "bitsandbytes":
        if not stated.flag("load_in_4bit", False):
            return METHODS["int8"]
        quant_type = stated.read("bnb_4bit_quant_type", str, "fp4").lower()
        if quant_type == "nf4":
            return METHODS["nf4-dq" if stated.flag("bnb_4bit_use_double_quant", False) else "nf4"]
        what = f"bitsandbytes' {shorten(quant_type, 20)}"
    elif kind in ("gptq", "awq"):
        bits = stated.count("bits" if "bits" in stated.values else "w_bit", 4)
        key = "group_size" if "group_size" in stated.values else "q_group_size"
        group = stated.read(key, _GROUP_SIZE, GROUP)
        if 0 <= group < 8:
            raise BadFile(f"{config.name}: {key} of its config.json is {group}", DAMAGED_HINT)
        version = stated.read("version" if kind == "awq" else "checkpoint_format", str, "gemm").lower()
        if bits in ((4, 8) if kind == "gptq" else (4,)) and version in ("gemm", "gptq", "gptq_v2"):
            size = None if group == -1 else group
            convert = partial(gptq, bits=bits, group=size) if kind == "gptq" else partial(awq, group=size)
            return replace(METHODS[f"{kind}-int4"], name=f"{kind}-int{bits}", convert=convert)
        what = f"{kind} of {bits} bits as {shorten(version, 20)}"
    raise Unsupported(f"{config.name} is stored by {what}, which is not supported", f"known are {', '.join(METHODS)}")


LARGEST_HEADER_BYTES = 100_000_000
"""`MAX_HEADER_SIZE` of the safetensors crate."""
_LENGTH_BYTES = 8
_MOST_ELEMENTS = 1 << 48
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_HINT = "the file is damaged, incomplete or not safetensors; download it again"


class SafetensorsHeader(msgspec.Struct, frozen=True):
    tensors: tuple[Stored, ...]
    """In the order of their offsets."""
    raw: bytes
    n_bytes: int
    missing_bytes: int
    """Missing bytes of the file, e.g. after an interrupted download."""


def read_safetensors(source: ByteSource, size: int, name: str) -> SafetensorsHeader:
    """Return the header of a file of `size` bytes; `name` is for messages.

    A file too short for its tensors is not an error: `missing_bytes` says so. Raises BadFile for an incomplete or
    inconsistent header, and Unsupported for a type of unknown size.
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
    entries.pop("__metadata__", None)
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


class _Entry(msgspec.Struct):
    dtype: str
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=8)]
    data_offsets: tuple[_Size, _Size]


def _tensor(name: str, entry: object, file: str) -> tuple[int, Stored]:
    """Return the offset of a tensor and its description. Raises BadFile and Unsupported."""
    what = f"{file}: tensor {shorten(name, 60)!r}"
    try:
        found = msgspec.convert(entry, _Entry)
    except msgspec.ValidationError:
        raise BadFile(f"{what} has no type, shape and place", _HINT) from None
    if found.dtype not in DTYPE_BITS:
        raise Unsupported(f"{what} is of type {shorten(found.dtype, 20)}, whose size is unknown", "update ggbench")
    if math.prod(found.shape) > _MOST_ELEMENTS:
        raise BadFile(f"{what} claims more elements than any tensor has", _HINT)
    tensor = Stored(sanitize(name), found.dtype, found.shape)
    begin, end = found.data_offsets
    if end - begin != tensor.n_bytes:
        raise BadFile(f"{what} of {format_count(tensor.n_bytes)} bytes is given {format_count(end - begin)}", _HINT)
    return begin, tensor


def _read(source: ByteSource, n_bytes: int, name: str) -> bytes:
    """Return exactly this many bytes. Raises BadFile if there are fewer."""
    parts, left = [], n_bytes
    while left:
        try:
            part = source.read(left)
        except OSError as error:
            why = error.strerror or error
            raise BadFile(f"{name} cannot be read: {why}", "check the disk or the network") from None
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
        is_name = isinstance(file, str) and file.endswith(".safetensors") and sanitize(file) == file
        if not is_name or {"/", "\\"} & set(file):
            raise BadFile(
                f"the index of {name} names {shorten(str(file), 60)!r}, which is not a file in its folder",
                "do not use this checkpoint",
            )
        files[sanitize(tensor)] = file
    return files
