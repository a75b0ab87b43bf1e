"""Storage of a model's tensors under each method: packed weights with their scales and zeros, in bytes.

A method converts the linear layers of the decoder blocks. The embedding, the output, the norms and biases keep a type
of two or four bytes.

Sources. `int8`: bitsandbytes' `Int8Params` (a row of int8 for each output, with one float32 scale in `SCB`). `nf4`:
bitsandbytes' `quantize_4bit` and `QuantState` (two weights to a byte, absmax float32 for each 64, and with double
quantization absmax in int8, with one float32 for each 256). Modules that both skip: Transformers'
`get_keys_to_not_convert`. `gptq-int4`: AutoGPTQ's `qlinear_exllamav2.py`, the same buffers as in GPTQModel. `awq-int4`:
AutoAWQ's `WQLinear_GEMM`. AutoGPTQ ignores `lm_head` and everything outside the layers; AutoAWQ looks for linear layers
only inside the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ggbench.errors import UnknownName, Unsupported
from ggbench.extras.transformers.config_json import Config, Parameter
from ggbench.text import shorten

GROUP = 128
"""Number of weights per scale and zero, in GPTQ and AWQ."""
_BLOCK = 64
"""Number of weights per absmax of nf4: the default of bitsandbytes."""
_NESTED_BLOCK = 256
_WORD_BITS = 32

_DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I8": 1, "U8": 1}


class Stored(msgspec.Struct, frozen=True):
    name: str
    """`model.layers.0.self_attn.q_proj.qweight`."""
    dtype: str
    """Safetensors' name, one of `_DTYPE_BYTES`."""
    shape: tuple[int, ...]
    """In torch's order: outputs first in an unquantized matrix."""

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * _DTYPE_BYTES[self.dtype]


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
_BITS = {"gptq": (4, 8), "awq": (4,)}


def stored_method(config: Config) -> Method:
    """Return the method of a checkpoint, `bf16` if its config states no type.

    Raises Unsupported for a method with unknown tensors, BadFile for impossible values.
    """
    stated = config.quantization
    if stated is None:
        return METHODS[config.dtype or "bf16"]
    kind, found = stated.read("quant_method", str, "an unnamed method").lower(), None
    if kind == "bitsandbytes":
        found = _of_bitsandbytes(stated)
    elif kind in _BITS:
        found = _packed(stated, kind)
    if found is None:
        what = f"{config.name} is stored by {shorten(kind, 30)} in a way that is not supported"
        raise Unsupported(what, f"known are {', '.join(METHODS)}")
    return found


def _of_bitsandbytes(stated: Config) -> Method | None:
    if not stated.flag("load_in_4bit", False):
        return METHODS["int8"]
    if stated.read("bnb_4bit_quant_type", str, "fp4").lower() != "nf4":
        return None
    return METHODS["nf4-dq" if stated.flag("bnb_4bit_use_double_quant", False) else "nf4"]


def _packed(stated: Config, kind: str) -> Method | None:
    bits, group = stated.count("bits", 4), stated.read("group_size", _GROUP_SIZE, GROUP)
    layout = stated.read("version" if kind == "awq" else "checkpoint_format", str, "gemm").lower()
    if bits not in _BITS[kind] or -1 < group < 8 or layout not in ("gemm", "gptq", "gptq_v2"):
        return None
    size = None if group == -1 else group
    convert = partial(gptq, bits=bits, group=size) if kind == "gptq" else partial(awq, group=size)
    return replace(METHODS[f"{kind}-int4"], name=f"{kind}-int{bits}", convert=convert)
