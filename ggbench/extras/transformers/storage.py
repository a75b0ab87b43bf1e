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

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ggbench.errors import UnknownName, Unsupported
from ggbench.extras.transformers.config_json import Config
from ggbench.record import Record
from ggbench.text import shorten

GROUP = 128
"""Number of weights per scale and zero, in GPTQ and AWQ."""
_BLOCK = 64
"""Number of weights per absmax of nf4: the default of bitsandbytes."""
_NESTED_BLOCK = 256
_WORD_BITS = 32
_F32_BYTES, _F16_BYTES = 4, 2


class Method(Record):
    name: str
    dtype: str | None
    """Type of unconverted parameters; None for the config's, or two bytes if not stated."""
    converted_bytes: Callable[[int, int], int] | None = None
    """Bytes stored for a converted matrix of this many outputs and inputs; None if it is stored like the rest."""
    quant_method: str | None = None
    """`quant_method` in the checkpoint's `quantization_config`; None if it is not quantized."""


def _int8(n_out: int, n_in: int) -> int:
    return n_out * n_in + n_out * _F32_BYTES


def _nf4(n_out: int, n_in: int) -> int:
    n_weights = n_out * n_in
    return -(-n_weights // 2) + _n_blocks(n_out, n_in) * _F32_BYTES + 16 * _F32_BYTES


def _nf4_twice(n_out: int, n_in: int) -> int:
    """Return the bytes with double quantization: a byte for each absmax, and a table of 256 for those."""
    n_blocks = _n_blocks(n_out, n_in)
    nested = -(-n_blocks // _NESTED_BLOCK) + 256
    return _nf4(n_out, n_in) - n_blocks * (_F32_BYTES - 1) + nested * _F32_BYTES


def _n_blocks(n_out: int, n_in: int) -> int:
    return -(-n_out * n_in // _BLOCK)


def _gptq(n_out: int, n_in: int, *, bits: int = 4, group: int = GROUP) -> int:
    """Return the bytes of packed weights, of zeros and scales for each group, and of each input's group."""
    return _in_groups(n_out, n_in, bits, group) + n_in * 4


def _in_groups(n_out: int, n_in: int, bits: int, group: int = GROUP) -> int:
    """Return the bytes of packed weights, zeros and scales; a `group` of -1 is a whole row. Raises Unsupported."""
    size = n_in if group == -1 else group
    if n_in % size or n_out * bits % _WORD_BITS or n_in * bits % _WORD_BITS:
        raise Unsupported(
            f"a matrix of {n_out} x {n_in} cannot be packed in groups of {size}",
            "use bf16, int8 or nf4, which have no such groups",
        )
    n_groups = n_in // size
    return (n_in + n_groups) * n_out * bits // 8 + n_groups * n_out * _F16_BYTES


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("bf16", "bf16"),
        Method("f16", "f16"),
        Method("f32", "f32"),
        Method("int8", None, _int8, "bitsandbytes"),
        Method("nf4", None, _nf4, "bitsandbytes"),
        Method("nf4-dq", None, _nf4_twice, "bitsandbytes"),
        Method("gptq-int4", "f16", _gptq, "gptq"),
        Method("awq-int4", "f16", partial(_in_groups, bits=4), "awq"),
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
    bits, group = stated.read("bits", int, 4), stated.read("group_size", _GROUP_SIZE, GROUP)
    layout = stated.read("version" if kind == "awq" else "checkpoint_format", str, "gemm").lower()
    if bits not in _BITS[kind] or -1 < group < 8 or layout not in ("gemm", "gptq", "gptq_v2"):
        return None
    stored = partial(_gptq if kind == "gptq" else _in_groups, bits=bits, group=group)
    return replace(METHODS[f"{kind}-int4"], name=f"{kind}-int{bits}", converted_bytes=stored)
