"""The config.json of a checkpoint: its values, and the shape that they give.

It is untrusted JSON of limited size and depth; errors name the key. Decoder architectures that Transformers and
llama.cpp both have are counted as llama.cpp lays them out, from the same hyperparameters. Mixtures of experts are not
included: Transformers stores experts separately in some releases and stacked in others. Source: `modeling_*.py` and
`configuration_*.py` of Transformers, whose defaults apply to missing keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import LayerState, ModelFile, TensorInfo
from ggbench.record import Record
from ggbench.text import sanitize, shorten
from ggbench.units import format_bytes

_T = TypeVar("_T")

CONFIG = "config.json"
LARGEST_JSON_BYTES = 16 << 20
"""Real ones take a few kilobytes, or a few hundred with a list of modules per layer; a tensor index takes a few MB."""
DAMAGED_HINT = "the file is damaged or incomplete; download the checkpoint again"
_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "half": "f16", "float": "f32"}
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
"""A size; the maximum is above any vocabulary and any context."""


class Config(Record):
    """A config.json; its methods raise BadFile, naming the key, for a value of the wrong type or size."""

    name: str
    values: Mapping[str, object]

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
            raise self.wrong(f"{key} of its {CONFIG}: {shorten(str(error), 120)}") from None

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.read(key, bool, default))

    def wrong(self, what: str) -> BadFile:
        return BadFile(f"{self.name}: {what}", DAMAGED_HINT)

    def check_code(self, *, trusted: bool) -> None:
        """Raise Unsupported, naming the files, if only the checkpoint's own untrusted code can load it."""
        if self.code_files and not trusted:
            raise Unsupported(
                f"{self.name} is loaded by its own code: {', '.join(self.code_files)}",
                "review that code first; --trust-remote-code runs it",
            )


def parse_config(data: bytes, name: str) -> Config:
    """Raise BadFile for what is not a JSON object, also for excessive nesting."""
    try:
        return Config(name, msgspec.json.decode(data, type=dict[str, object]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"{CONFIG} of {name} is not valid JSON: {shorten(str(error), 120)}"
        raise BadFile(what, DAMAGED_HINT) from None


def read_json(path: Path, name: str) -> bytes:
    """Return the bytes of a checkpoint's JSON file. Raises BadFile if it is missing or far too large."""
    try:
        if not path.is_file():
            hint = "give the folder of a checkpoint, with config.json and safetensors, all downloaded"
            raise BadFile(f"{name} has no {path.name}", hint)
        with path.open("rb") as file:
            data = file.read(LARGEST_JSON_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path.name} of {name} cannot be read: {error.strerror}", "check the folder") from None
    if len(data) > LARGEST_JSON_BYTES:
        raise BadFile(f"{path.name} of {name} is larger than {format_bytes(LARGEST_JSON_BYTES)}", DAMAGED_HINT)
    return data


_QWEN: Mapping[str, object] = {
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
_FAMILIES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "LlamaForCausalLM": ("llama", {}),
    "MistralForCausalLM": ("llama", {"num_key_value_heads": 8, "sliding_window": 4096}),
    "Qwen2ForCausalLM": ("qwen2", _QWEN),
    "Qwen3ForCausalLM": ("qwen3", {**_QWEN, "head_dim": 128}),
    "Gemma3ForCausalLM": (
        "gemma3",
        {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True},
    ),
    "Phi3ForCausalLM": ("phi3", {}),
}
"""llama.cpp's name of an architecture, and Transformers' defaults of keys that matter."""
ARCHITECTURES = tuple(_FAMILIES)


class _Shape(Record):
    """The keys of a config.json that fix sizes."""

    hidden_size: _Count
    intermediate_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    vocab_size: _Count
    max_position_embeddings: _Count
    num_key_value_heads: _Count | None = None
    """None: as many as query heads."""
    head_dim: _Count | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: _Count | None = None
    use_sliding_window: bool = True
    max_window_layers: int = 0
    """Layers before this one have no window, unless `layer_types` says which."""
    layer_types: list[str] | None = None


def unquantized_model(config: Config) -> ModelFile:
    """Return the model of a config as llama.cpp lays it out, in 16 bits, with the windows of Transformers' cache.

    Raises Unsupported for an unknown architecture, BadFile for impossible numbers.
    """
    named = config.read("architectures", list[str], None) or [""]
    if named[0] not in _FAMILIES:
        config.check_code(trusted=False)
        raise Unsupported(
            f"{config.name}: architecture {sanitize(named[0]) or 'unknown'} is not supported from a config alone",
            f"known are {', '.join(ARCHITECTURES)}",
        )
    architecture, defaults = _FAMILIES[named[0]]
    values = {key: value for key, value in {**defaults, **config.values}.items() if value is not None}
    try:
        shape = msgspec.convert(values, _Shape)
        hyper = _hyperparameters(architecture, shape)
    except (msgspec.ValidationError, UsageError) as error:
        raise config.wrong(f"its {CONFIG} is impossible: {shorten(str(error), 120)}") from None
    file = build_model(hyper, config.name)
    states = _windowed(config, shape, file.states)
    window = next((state.window for state in states if state.window), None)
    return replace(file, tensors=(*file.tensors, *_biases(shape, file)), states=states, sliding_window=window)


def _hyperparameters(architecture: str, shape: _Shape) -> Hyperparameters:
    return msgspec.convert(
        {
            "architecture": architecture,
            "n_layer": shape.num_hidden_layers,
            "n_embd": shape.hidden_size,
            "n_head": shape.num_attention_heads,
            "n_head_kv": shape.num_key_value_heads or shape.num_attention_heads,
            "n_ff": shape.intermediate_size,
            "n_vocab": shape.vocab_size,
            "n_ctx_train": shape.max_position_embeddings,
            "head_dim": None if architecture in ("qwen2", "phi3") else shape.head_dim,
            "tied_embeddings": shape.tie_word_embeddings,
            "sliding_window": shape.sliding_window or 0 if architecture == "gemma3" else 0,
        },
        Hyperparameters,
    )


def _windowed(config: Config, shape: _Shape, states: tuple[LayerState, ...]) -> tuple[LayerState, ...]:
    """Return the states with the windows of Transformers, which has some that llama.cpp has not."""
    if shape.layer_types is not None:
        slides = [kind == "sliding_attention" for kind in shape.layer_types]
    elif any(state.window for state in states):
        slides = [state.window is not None for state in states]
    else:
        slides = [layer >= shape.max_window_layers for layer in range(len(states))]
    if len(slides) != len(states):
        raise config.wrong(f"layer_types has {len(slides)} entries for {len(states)} layers")
    window = shape.sliding_window if shape.use_sliding_window else None
    return tuple(
        state.within(window if is_sliding else None) for state, is_sliding in zip(states, slides, strict=True)
    )


def _biases(shape: _Shape, file: ModelFile) -> Iterator[TensorInfo]:
    """Yield the biases that the config gives to linear layers, beside those that the architecture has."""
    stems = [".attn_q.", ".attn_k.", ".attn_v.", ".attn_output."] if shape.attention_bias else []
    stems += [".ffn_gate.", ".ffn_up.", ".ffn_down."] if shape.mlp_bias else []
    existing = {each.name for each in file.tensors}
    for each in file.tensors:
        name = each.name.replace(".weight", ".bias")
        if name not in existing and any(stem in name for stem in stems):
            yield TensorInfo(name, each.shape[1:], "f32", None)


_MODULES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def linear_module(tensor_name: str) -> str | None:
    """Return Transformers' name of the linear layer in a decoder block with this matrix; None for other tensors."""
    match tensor_name.split("."):
        case ["blk", layer, stem, "weight"] if stem in _MODULES:
            return f"model.layers.{layer}.{_MODULES[stem]}"
    return None
