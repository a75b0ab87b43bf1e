"""The config.json of a checkpoint: its values, the model it describes, and one written for a twin.

It is untrusted JSON of limited size and depth; errors name the key. Parameters and cache are computed from it alone for
decoder architectures, each a row of a table. Mixtures of experts are not included: Transformers stores experts
separately in some releases and stacked in others. Source: `modeling_*.py` and `configuration_*.py` of Transformers,
whose defaults apply to missing keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from ggbench.errors import BadFile, Unsupported
from ggbench.files import make_folders, replace_file
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import LayerState, ModelShape
from ggbench.text import sanitize, shorten
from ggbench.units import format_bytes

_T = TypeVar("_T")

CONFIG = "config.json"
LARGEST_JSON_BYTES = 16 << 20
"""Real ones take a few kilobytes, or a few hundred with a list of modules per layer; a tensor index takes a few MB."""
DAMAGED_HINT = "the file is damaged or incomplete; download the checkpoint again"
_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "half": "f16", "float": "f32"}
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
"""A size; the maximum is above any vocabulary."""
_LayerCount = Annotated[int, msgspec.Meta(ge=1, le=1024)]
_LayerIndex = Annotated[int, msgspec.Meta(ge=0, le=1024)]


class Config(msgspec.Struct, frozen=True):
    """A config.json; its methods raise BadFile, naming the key, for a value of the wrong type or size."""

    name: str
    values: Mapping[str, object]

    @property
    def architecture(self) -> str:
        """The class used by Transformers, `Qwen2ForCausalLM`. Raises BadFile if none is named."""
        names = self.values.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise BadFile(
                f"{self.name}: its {CONFIG} names no architecture", "give the folder of a language model"
            )
        return sanitize(names[0])

    @property
    def dtype(self) -> str | None:
        """The saved type of the weights: `bf16`, `f16` or `f32`; None if it is another or not stated."""
        stated = self.values.get("dtype", self.values.get("torch_dtype"))
        return _DTYPES.get(stated.removeprefix("torch.")) if isinstance(stated, str) else None

    @property
    def code_files(self) -> tuple[str, ...]:
        """Python files that Transformers would run, from `auto_map`; printable."""
        named = self.values.get("auto_map")
        if not isinstance(named, dict):
            return ()
        parts = [each for value in named.values() for each in (value if isinstance(value, list) else [value])]
        modules = [
            each.rpartition("--")[2].partition(".")[0] for each in parts if isinstance(each, str) and each
        ]
        return tuple(dict.fromkeys(f"{shorten(module, 60)}.py" for module in modules))

    @property
    def quantization(self) -> Config | None:
        """The `quantization_config` of a quantized checkpoint; None for others."""
        found = self.read("quantization_config", dict[str, Any] | None, None)
        return None if found is None else Config(self.name, found)

    def read(self, key: str, kind: Any, default: _T) -> Any | _T:  # noqa: ANN401 - a type, unions among them
        """Return the value of a key with this type; `default` if absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise BadFile(
                f"{self.name}: {key} of its {CONFIG}: {shorten(str(error), 120)}", DAMAGED_HINT
            ) from None

    def count(self, key: str, default: int | None = None, kind: Any = Count) -> int:  # noqa: ANN401
        """Return a number of at least 1; `default` if the key is absent or null. Raises BadFile without a default."""
        found = self.read(key, kind, default)
        if found is None:
            raise BadFile(f"{self.name}: its {CONFIG} has no {key}", DAMAGED_HINT)
        return int(found)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.read(key, bool, default))

    def check_code(self, *, trusted: bool) -> None:
        """Raise Unsupported, naming the files, if only the checkpoint's own untrusted code can load it."""
        if self.code_files and not trusted:
            raise Unsupported(
                f"{self.name} is loaded by its own code: {', '.join(self.code_files)}",
                "review that code first; --trust-remote-code runs it",
            )


def parse_config(data: bytes, name: str) -> Config:
    return Config(name, decode_object(data, f"{CONFIG} of {name}"))


def read_json(path: Path, name: str) -> bytes:
    """Return the bytes of a checkpoint's JSON file. Raises BadFile if it is missing or far too large."""
    try:
        if not path.is_file():
            hint = "give the folder of a checkpoint, with config.json and safetensors"
            if path.is_symlink():
                hint = "its link leads nowhere: the download did not finish; download the checkpoint again"
            elif any(path.parent.glob("*.gguf")):
                hint = "the folder contains GGUF files: give it without transformers:"
            raise BadFile(f"{name} has no {path.name}", hint)
        with path.open("rb") as file:
            data = file.read(LARGEST_JSON_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path.name} of {name} cannot be read: {error.strerror}", "check the folder") from None
    if len(data) > LARGEST_JSON_BYTES:
        raise BadFile(f"{path.name} of {name} is larger than {format_bytes(LARGEST_JSON_BYTES)}", DAMAGED_HINT)
    return data


def decode_object(data: bytes | str, what: str) -> dict[str, object]:
    """Return the JSON object in these bytes; `what` is for messages. Raises BadFile, also for excessive nesting."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise BadFile(f"{what} is nested too deeply", DAMAGED_HINT) from None
    except json.JSONDecodeError as error:
        raise BadFile(
            f"{what} is not valid JSON: {sanitize(error.msg)} in line {error.lineno}", DAMAGED_HINT
        ) from None
    except ValueError:  # a UnicodeDecodeError, or a number of more than 4300 digits
        raise BadFile(
            f"{what} is not valid JSON: not UTF-8, or a number has too many digits", DAMAGED_HINT
        ) from None
    if not isinstance(found, dict):
        raise BadFile(f"{what} is not a JSON object", DAMAGED_HINT)
    return found


class Parameter(msgspec.Struct, frozen=True):
    name: str
    """Name in Transformers' state dict."""
    gguf_name: str
    """Name of the tensor in a GGUF."""
    shape: tuple[int, ...]
    is_converted: bool = False
    """Whether it is the matrix of a linear layer in a decoder block, which the methods convert."""

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


class _Family(NamedTuple):
    """Differences of an architecture from `LlamaForCausalLM`."""

    architecture: str
    """llama.cpp's name, `qwen2`."""
    n_head_kv: int | None = None
    """Default of `num_key_value_heads`; None: as many as query heads."""
    head_dim: int | None = None
    """Default of `head_dim`; None: width / heads."""
    reads_head_dim: bool = True
    qkv_bias: bool | None = None
    """None: given by `attention_bias`, which then also adds one to the output."""
    mlp_bias: bool = False
    tied: bool = False
    qk_norm: bool = False
    four_norms: bool = False
    """Whether there are norms before and after both attention and feed-forward."""
    fused: bool = False
    """Whether Q, K and V are in one matrix, and gate and up in another."""
    window: int | None = None
    period: int | None = None
    """Period of layers of which the last has no window; None if all layers have one, or none does."""
    first_window: int = 0
    """Default of `max_window_layers`; above 0, windows are used only with `use_sliding_window`."""


_FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family("llama", mlp_bias=True),
    "MistralForCausalLM": _Family("llama", n_head_kv=8, qkv_bias=False, window=4096),
    "Qwen2ForCausalLM": _Family(
        "qwen2", n_head_kv=32, reads_head_dim=False, qkv_bias=True, window=4096, first_window=28
    ),
    "Qwen3ForCausalLM": _Family(
        "qwen3", n_head_kv=32, head_dim=128, qk_norm=True, window=4096, first_window=28
    ),
    "GemmaForCausalLM": _Family("gemma", n_head_kv=16, head_dim=256, tied=True),
    "Gemma2ForCausalLM": _Family(
        "gemma2", n_head_kv=4, head_dim=256, tied=True, four_norms=True, window=4096, period=2
    ),
    "Gemma3ForCausalLM": _Family(
        "gemma3", n_head_kv=4, head_dim=256, tied=True, qk_norm=True, four_norms=True, window=4096, period=6
    ),
    "Phi3ForCausalLM": _Family("phi3", reads_head_dim=False, qkv_bias=False, fused=True),
}
ARCHITECTURES = tuple(_FAMILIES)


class Layout(NamedTuple):
    architecture: str
    shape: ModelShape
    parameters: tuple[Parameter, ...]
    """Without the output if it is tied to the embedding."""


def read_layout(config: Config) -> Layout:
    """Return the model of a config. Raises Unsupported for an unknown architecture, BadFile for impossible numbers."""
    family = _FAMILIES.get(config.architecture)
    if family is None:
        config.check_code(trusted=False)
        raise Unsupported(
            f"{config.name}: architecture {config.architecture} is not supported from a config alone",
            f"known are {', '.join(ARCHITECTURES)}",
        )
    is_tied = config.flag("tie_word_embeddings", family.tied)
    n_layer, n_head = config.count("num_hidden_layers", kind=_LayerCount), config.count("num_attention_heads")
    n_embd = config.count("hidden_size")
    n_head_kv = config.count("num_key_value_heads", family.n_head_kv or n_head)
    head_dim = (config.read("head_dim", Count, None) if family.reads_head_dim else None) or family.head_dim
    if head_dim is None:
        head_dim = n_embd // n_head
    if n_head % n_head_kv or not head_dim:
        raise BadFile(
            f"{config.name}: {n_head} heads, {n_head_kv} KV heads and a width of {n_embd} are incompatible",
            DAMAGED_HINT,
        )
    n_ff, n_vocab = config.count("intermediate_size"), config.count("vocab_size")
    width = n_head_kv * head_dim
    states = tuple(
        LayerState(k_width=width, v_width=width, head_dim_k=head_dim, head_dim_v=head_dim, window=window)
        for window in _windows(config, family, n_layer)
    )
    shape = ModelShape(
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=(n_head,) * n_layer,
        n_head_kv=(n_head_kv,) * n_layer,
        head_dim_k=head_dim,
        head_dim_v=head_dim,
        n_ff=(n_ff,) * n_layer,
        n_vocab=n_vocab,
        n_ctx_train=config.read("max_position_embeddings", Count, None),
        sliding_window=next((state.window for state in states if state.window), None),
        states=states,
    )
    return Layout(family.architecture, shape, tuple(_parameters(config, family, shape, is_tied)))


def _windows(config: Config, family: _Family, n_layer: int) -> list[int | None]:
    """Return the number of positions that the cache keeps for each layer, None for all."""
    window = config.values.get("sliding_window", family.window)
    if window is None or not config.flag("use_sliding_window", not family.first_window):
        return [None] * n_layer
    n_kept = config.count("sliding_window", family.window)
    slides = _sliding(config, family, n_layer)
    if len(slides) != n_layer:
        raise BadFile(
            f"{config.name}: layer_types has {len(slides)} entries for {n_layer} layers", DAMAGED_HINT
        )
    return [n_kept if is_sliding else None for is_sliding in slides]


def _sliding(config: Config, family: _Family, n_layer: int) -> list[bool]:
    """Return whether each layer has a window, in a model with some."""
    if kinds := config.read("layer_types", list[str], None):
        return [kind == "sliding_attention" for kind in kinds]
    if family.period is not None:
        period = config.count("sliding_window_pattern", family.period)
        return [bool((layer + 1) % period) for layer in range(n_layer)]
    first = config.read("max_window_layers", _LayerIndex, family.first_window)
    return [layer >= first for layer in range(n_layer)]


def _parameters(config: Config, family: _Family, shape: ModelShape, is_tied: bool) -> Iterator[Parameter]:
    n_embd, n_vocab = shape.n_embd, shape.n_vocab or 0
    yield Parameter("model.embed_tokens.weight", tensor_name("TOKEN_EMBD"), (n_vocab, n_embd))
    for layer in range(shape.n_layer):
        yield from _layer(config, family, shape, layer)
    yield Parameter("model.norm.weight", tensor_name("OUTPUT_NORM"), (n_embd,))
    if not is_tied:
        yield Parameter("lm_head.weight", tensor_name("OUTPUT"), (n_vocab, n_embd))


def _layer(config: Config, family: _Family, shape: ModelShape, layer: int) -> Iterator[Parameter]:
    n_embd, head_dim, n_ff = shape.n_embd, shape.head_dim_k, shape.n_ff[layer]
    n_query, n_kv = shape.n_head[layer] * head_dim, shape.n_head_kv[layer] * head_dim
    bias = config.flag("attention_bias", False) if family.qkv_bias is None else family.qkv_bias
    output_bias = bias if family.qkv_bias is None else False
    mlp_bias = config.flag("mlp_bias", False) if family.mlp_bias else False
    into = [
        ("self_attn.q_proj", "ATTN_Q", n_query, n_embd, bias),
        ("self_attn.k_proj", "ATTN_K", n_kv, n_embd, bias),
        ("self_attn.v_proj", "ATTN_V", n_kv, n_embd, bias),
        ("mlp.gate_proj", "FFN_GATE", n_ff, n_embd, mlp_bias),
        ("mlp.up_proj", "FFN_UP", n_ff, n_embd, mlp_bias),
    ]
    if family.fused:
        into = [
            ("self_attn.qkv_proj", "ATTN_QKV", n_query + 2 * n_kv, n_embd, bias),
            ("mlp.gate_up_proj", "FFN_UP", 2 * n_ff, n_embd, mlp_bias),
        ]
    linears = [
        *into,
        ("self_attn.o_proj", "ATTN_OUT", n_embd, n_query, output_bias),
        ("mlp.down_proj", "FFN_DOWN", n_embd, n_ff, mlp_bias),
    ]
    norms = [("input_layernorm", "ATTN_NORM", n_embd)]
    if family.four_norms:
        norms += [
            ("post_attention_layernorm", "ATTN_POST_NORM", n_embd),
            ("pre_feedforward_layernorm", "FFN_NORM", n_embd),
            ("post_feedforward_layernorm", "FFN_POST_NORM", n_embd),
        ]
    else:
        norms.append(("post_attention_layernorm", "FFN_NORM", n_embd))
    if family.qk_norm:
        norms += [("self_attn.q_norm", "ATTN_Q_NORM", head_dim), ("self_attn.k_norm", "ATTN_K_NORM", head_dim)]
    at = f"model.layers.{layer}"
    for name, member, n_out, n_in, has_bias in linears:
        yield Parameter(f"{at}.{name}.weight", tensor_name(member, "weight", layer), (n_out, n_in), True)
        if has_bias:
            yield Parameter(f"{at}.{name}.bias", tensor_name(member, "bias", layer), (n_out,))
    for name, member, width in norms:
        yield Parameter(f"{at}.{name}.weight", tensor_name(member, "weight", layer), (width,))


TWIN_KEY = "ggbench_twin"
"""Key that marks a config written here; Transformers keeps unknown keys."""
_CLASSES: Mapping[str, tuple[str, str]] = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
}


def twin_config(hyper: Hyperparameters, name: str, *, tied: bool | None = None) -> Config:
    """Return the config of a model of this shape; `tied` is `tie_word_embeddings` if the GGUF differs.

    Raises Unsupported for an unsupported architecture, such as a mixture of experts.
    """
    known = _CLASSES.get(hyper.architecture)
    if known is None or hyper.n_expert:
        what = "mixture of experts" if hyper.n_expert else f"architecture {hyper.architecture}"
        raise Unsupported(
            f"{name}: ggbench cannot generate a checkpoint of this {what}", f"use twin:{name}, its GGUF twin"
        )
    architecture, model_type = known
    values: dict[str, object] = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": hyper.n_embd,
        "intermediate_size": hyper.n_ff,
        "num_hidden_layers": hyper.n_layer,
        "num_attention_heads": hyper.n_head,
        "num_key_value_heads": hyper.n_head_kv,
        "head_dim": hyper.n_embd_head,
        "vocab_size": hyper.n_vocab,
        "max_position_embeddings": hyper.n_ctx_train,
        "rope_theta": hyper.rope_freq_base,
        "rms_norm_eps": hyper.norm_rms_eps,
        "hidden_act": "gelu_pytorch_tanh" if hyper.architecture == "gemma3" else "silu",
        "tie_word_embeddings": hyper.tied_embeddings if tied is None else tied,
        "torch_dtype": "bfloat16",
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        "use_cache": True,
        TWIN_KEY: name,
    }
    if hyper.architecture == "gemma3":
        values |= {"hidden_activation": values.pop("hidden_act"), "query_pre_attn_scalar": hyper.n_embd_head}
    if hyper.architecture in ("qwen2", "qwen3"):
        values["use_sliding_window"] = False
    else:
        values["sliding_window"] = hyper.sliding_window or None
    if hyper.n_rot:
        values["partial_rotary_factor"] = hyper.n_rot / hyper.n_embd_head
    return Config(name, values)


def write_config(config: Config, folder: Path) -> Path:
    """Write config.json into a folder, which is created if missing, and return the folder."""
    make_folders(folder)
    replace_file(folder / CONFIG, json.dumps(config.values, indent=2).encode() + b"\n")
    return folder
