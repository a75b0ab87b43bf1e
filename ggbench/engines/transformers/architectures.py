"""The parameters of a model and what its cache keeps, from config.json alone, for architectures of decoder blocks.

An architecture is one row of a table; one that is not in it is refused in one line. Mixtures of experts are not there:
Transformers stores their experts one by one in some releases and stacked in others.
Source: `modeling_*.py` and `configuration_*.py` of Transformers, whose defaults stand for keys that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ggbench.engines.transformers.config_json import MOST_LAYERS, Config
from ggbench.engines.transformers.storage import Parameter
from ggbench.errors import BadFile, Unsupported
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.model_file import LayerState, ModelShape


class _Family(NamedTuple):
    """What sets an architecture apart from `LlamaForCausalLM`."""

    architecture: str
    """llama.cpp's name of it."""
    n_head_kv: int | None = None
    """Default of `num_key_value_heads`; None: as many as query heads."""
    head_dim: int | None = None
    """Default of `head_dim`; None: width over heads."""
    reads_head_dim: bool = True
    """Whether its config has a `head_dim`."""
    qkv_bias: bool | None = None
    """None: as `attention_bias` says, which then adds one to the output, too."""
    mlp_bias: bool = False
    """Whether `mlp_bias` is a key of it."""
    tied: bool = False
    """Default of `tie_word_embeddings`."""
    qk_norm: bool = False
    four_norms: bool = False
    """Norms before and after attention, and before and after the feed-forward."""
    fused: bool = False
    """Q, K and V in one matrix, and gate and up in another."""
    window: int | None = None
    """Default of `sliding_window`."""
    period: int | None = None
    """Layers of which the last has no window; None: all have it, or none."""


_FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family("llama", mlp_bias=True),
    "MistralForCausalLM": _Family("llama", n_head_kv=8, qkv_bias=False, window=4096),
    "Qwen2ForCausalLM": _Family("qwen2", n_head_kv=32, reads_head_dim=False, qkv_bias=True, window=4096),
    "Qwen3ForCausalLM": _Family("qwen3", n_head_kv=32, head_dim=128, qk_norm=True, window=4096),
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
"""Classes of Transformers that are counted from a config."""


class Layout(NamedTuple):
    """A model as its config describes it."""

    architecture: str
    """llama.cpp's name, `qwen2`."""
    shape: ModelShape
    parameters: tuple[Parameter, ...]
    """Without the output where it is tied to the embedding."""
    is_tied: bool


def read_layout(config: Config) -> Layout:
    """Return the model of a config. Raises Unsupported for an unknown architecture, BadFile for impossible numbers."""
    family = _FAMILIES.get(config.architecture)
    if family is None:
        if config.code_files:
            config.check_code(trusted=False)
        raise Unsupported(
            f"{config.name}: architecture {config.architecture} is not counted from a config",
            f"known are {', '.join(ARCHITECTURES)}",
        )
    is_tied = config.flag("tie_word_embeddings", family.tied)
    n_layer, n_head = config.count("num_hidden_layers", most=MOST_LAYERS), config.count("num_attention_heads")
    n_embd = config.count("hidden_size")
    n_head_kv = config.count("num_key_value_heads", family.n_head_kv or n_head)
    head_dim = (config.optional_count("head_dim") if family.reads_head_dim else None) or family.head_dim
    if head_dim is None:
        head_dim = n_embd // n_head
    if n_head % n_head_kv or not head_dim:
        raise BadFile(
            f"{config.name}: {n_head} heads, {n_head_kv} KV heads and a width of {n_embd} do not go together",
            "the config.json is damaged; download the checkpoint again",
        )
    n_ff, n_vocab = config.count("intermediate_size"), config.count("vocab_size")
    states = tuple(
        LayerState(
            k_width=n_head_kv * head_dim,
            v_width=n_head_kv * head_dim,
            head_dim_k=head_dim,
            head_dim_v=head_dim,
            window=window,
        )
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
        n_ctx_train=config.optional_count("max_position_embeddings"),
        sliding_window=next((state.window for state in states if state.window), None),
        states=states,
    )
    return Layout(family.architecture, shape, tuple(_parameters(config, family, shape, is_tied)), is_tied)


def _windows(config: Config, family: _Family, n_layer: int) -> list[int | None]:
    """Return the positions that the cache keeps of each layer, None for all of them."""
    none: list[int | None] = [None] * n_layer
    window = config.values.get("sliding_window", family.window)
    if family.window is None and "sliding_window" not in config.values:
        return none
    if window is None or not config.flag("use_sliding_window", family.architecture not in ("qwen2", "qwen3")):
        return none
    n_kept = config.count("sliding_window", family.window)
    kinds = config.texts("layer_types")
    if kinds is not None:
        if len(kinds) != n_layer:
            raise BadFile(
                f"{config.name}: layer_types names {len(kinds)} layers, num_hidden_layers {n_layer}",
                "the config.json is damaged; download the checkpoint again",
            )
        return [n_kept if kind == "sliding_attention" else None for kind in kinds]
    if family.period is not None:
        period = config.count("sliding_window_pattern", family.period)
        return [n_kept if (layer + 1) % period else None for layer in range(n_layer)]
    default = 28 if family.architecture in ("qwen2", "qwen3") else 0
    is_every = config.values.get("max_window_layers", default) == 0
    first = 0 if is_every else config.count("max_window_layers", default)
    return [n_kept if layer >= first else None for layer in range(n_layer)]


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
    if family.fused:
        linears = [
            ("self_attn.qkv_proj", "ATTN_QKV", n_query + 2 * n_kv, n_embd, bias),
            ("self_attn.o_proj", "ATTN_OUT", n_embd, n_query, output_bias),
            ("mlp.gate_up_proj", "FFN_UP", 2 * n_ff, n_embd, mlp_bias),
            ("mlp.down_proj", "FFN_DOWN", n_embd, n_ff, mlp_bias),
        ]
    else:
        linears = [
            ("self_attn.q_proj", "ATTN_Q", n_query, n_embd, bias),
            ("self_attn.k_proj", "ATTN_K", n_kv, n_embd, bias),
            ("self_attn.v_proj", "ATTN_V", n_kv, n_embd, bias),
            ("self_attn.o_proj", "ATTN_OUT", n_embd, n_query, output_bias),
            ("mlp.gate_proj", "FFN_GATE", n_ff, n_embd, mlp_bias),
            ("mlp.up_proj", "FFN_UP", n_ff, n_embd, mlp_bias),
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
