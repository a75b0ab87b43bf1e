"""How a checkpoint is stored, by `quantization_config` of its config.json and the type of its weights."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from ggbench.engines.transformers.config_json import Config
from ggbench.engines.transformers.storage import METHODS, Method, awq, gptq
from ggbench.errors import BadFile, Unsupported
from ggbench.text import shorten

_LARGEST_GROUP = 1 << 20


def stored_method(config: Config) -> Method:
    """Return the method of a checkpoint, `bf16` where its config states no type.

    Raises Unsupported for a method whose tensors are not known, BadFile for impossible values.
    """
    stated = config.quantization
    if stated is None:
        return METHODS[config.dtype or "bf16"]
    kind = stated.text("quant_method").lower()
    if not kind and (stated.flag("load_in_4bit", False) or stated.flag("load_in_8bit", False)):
        kind = "bitsandbytes"  # Transformers added quant_method later
    if kind == "bitsandbytes":
        return _bitsandbytes(stated)
    if kind in ("gptq", "awq"):
        bits, group = stated.count("bits" if "bits" in stated.values else "w_bit", 4, most=16), _group(stated)
        version = stated.text("version" if kind == "awq" else "checkpoint_format", "gemm" if kind == "awq" else "gptq")
        if bits not in ((4, 8) if kind == "gptq" else (4,)) or version.lower() not in ("gemm", "gptq", "gptq_v2"):
            raise _unknown(config, f"{kind} of {bits} bits as {shorten(version, 20)}")
        base = METHODS[f"{kind}-int4"]
        convert = partial(gptq, bits=bits, group=group) if kind == "gptq" else partial(awq, group=group)
        return replace(base, name=f"{kind}-int{bits}", convert=convert)
    raise _unknown(config, shorten(kind, 30) or "an unnamed method")


def _bitsandbytes(stated: Config) -> Method:
    if not stated.flag("load_in_4bit", False):
        return METHODS["int8"]
    kind = stated.text("bnb_4bit_quant_type", "fp4").lower()
    if kind != "nf4":
        raise _unknown(stated, f"bitsandbytes' {shorten(kind, 20)}")
    return METHODS["nf4-dq" if stated.flag("bnb_4bit_use_double_quant", False) else "nf4"]


def _group(stated: Config) -> int | None:
    """Return the weights of one scale; None for whole rows."""
    key = "group_size" if "group_size" in stated.values else "q_group_size"
    value = stated.values.get(key, 128)
    if value == -1 and not isinstance(value, bool):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 8 <= value <= _LARGEST_GROUP:
        raise BadFile(
            f"{stated.name}: {key} of its config.json is {shorten(str(value), 20)}, which is no size of a group",
            "the file is damaged or incomplete; download the checkpoint again",
        )
    return value


def _unknown(config: Config, what: str) -> Unsupported:
    return Unsupported(
        f"{config.name} is stored by {what}, whose tensors are not counted", f"known are {', '.join(METHODS)}"
    )
