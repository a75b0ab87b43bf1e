"""The metadata and tensors of a model of given hyperparameters, before quantization.

Matrices are f16, like the input of llama.cpp's quantizer; norms, biases, routers and convolutions are f32, as it leaves
them. Names come from gguf's tables, which counting parameters does not need. Source of the layout: `load_arch_tensors`
of llama.cpp's models, and their converters from safetensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.architecture import RECURRENT_LAYERS
from ggbench.gguf_file.ggml_types import tensor_bytes
from ggbench.gguf_file.gguf_constants import tensor_name
from ggbench.gguf_file.hyperparameters import FAMILIES, Hyperparameters
from ggbench.gguf_file.model_file import ModelFile, TensorInfo

_SIGMOID = 2
"""gguf's `ExpertGatingFuncType.SIGMOID`."""
_HYBRID_BY_KV_HEADS = frozenset(
    {"granitehybrid", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "kimi-linear"}
)
"""Architectures whose recurrent layers have 0 KV heads in the metadata."""


class _Tensor(NamedTuple):
    """A tensor to lay out, named by its member of `gguf.MODEL_TENSOR`."""

    member: str
    shape: tuple[int, ...]
    type_name: str
    suffix: str = "weight"

    def info(self, layer: int | None = None) -> TensorInfo:
        name = tensor_name(self.member, self.suffix, layer)
        return TensorInfo(name, self.shape, self.type_name, tensor_bytes(self.type_name, self.shape))


class _Layer(NamedTuple):
    """A kind of layer; layers of one kind have the same tensors."""

    mixer: str
    """The letter of `layer_pattern`; empty for a feed-forward alone."""
    feed_forward: str
    """`dense`, `experts`, or empty for none."""
    shares_kv: bool = False
    drafts: bool = False


def build_metadata(hyper: Hyperparameters) -> dict[str, object]:
    """Return the keys that llama.cpp needs to load the model and decode ids; it has no tokenizer."""
    keys, family = gguf_constants.Keys, FAMILIES[hyper.architecture]
    values: dict[str, object] = {
        keys.LLM.BLOCK_COUNT: hyper.n_layer + hyper.n_layer_nextn,
        keys.LLM.CONTEXT_LENGTH: hyper.n_ctx_train,
        keys.LLM.EMBEDDING_LENGTH: hyper.n_embd,
        keys.LLM.FEED_FORWARD_LENGTH: hyper.n_ff,
        keys.Attention.HEAD_COUNT: hyper.n_head,
        keys.Attention.HEAD_COUNT_KV: hyper.n_head_kv,
        keys.Attention.LAYERNORM_RMS_EPS: float(hyper.norm_rms_eps),
        keys.Rope.FREQ_BASE: float(hyper.rope_freq_base),
        keys.LLM.VOCAB_SIZE: hyper.n_vocab,
    }
    if hyper.head_dim is not None:
        values |= {
            keys.Attention.KEY_LENGTH: hyper.head_dim,
            keys.Attention.VALUE_LENGTH: hyper.head_dim,
            keys.Rope.DIMENSION_COUNT: hyper.head_dim,
        }
    is_short = hyper.architecture in ("lfm2", "lfm2moe")
    optional = {
        keys.Rope.DIMENSION_COUNT: hyper.n_rot,
        keys.Attention.SLIDING_WINDOW: hyper.sliding_window,
        keys.LLM.EXPERT_COUNT: hyper.n_expert,
        keys.LLM.EXPERT_USED_COUNT: hyper.n_expert_used,
        keys.LLM.EXPERT_FEED_FORWARD_LENGTH: hyper.n_ff_expert,
        keys.LLM.EXPERT_SHARED_FEED_FORWARD_LENGTH: hyper.n_ff_shared_expert,
        keys.LLM.EXPERT_GATING_FUNC: _SIGMOID * _has_expert_bias(hyper),
        keys.LLM.INTERLEAVE_MOE_LAYER_STEP: hyper.n_expert_every,
        keys.LLM.MOE_LATENT_SIZE: hyper.n_embd_expert,
        keys.LLM.NEXTN_PREDICT_LAYERS: hyper.n_layer_nextn,
        keys.Attention.Indexer.HEAD_COUNT: hyper.indexer_n_head,
        keys.Attention.Indexer.KEY_LENGTH: hyper.indexer_head_dim,
        keys.Attention.Indexer.TOP_K: hyper.indexer_top_k,
        keys.ShortConv.L_CACHE if is_short else keys.SSM.CONV_KERNEL: hyper.ssm_conv,
        keys.KDA.HEAD_DIM if hyper.architecture == "kimi-linear" else keys.SSM.STATE_SIZE: hyper.ssm_state,
        keys.SSM.INNER_SIZE: hyper.ssm_inner,
        keys.SSM.TIME_STEP_RANK: hyper.ssm_n_head,
        keys.SSM.GROUP_COUNT: hyper.ssm_n_group,
    }
    values |= {key: value for key, value in optional.items() if value}
    if "n_layer_dense" in family.allows:
        values[keys.LLM.LEADING_DENSE_BLOCK_COUNT] = hyper.n_layer_dense
        if hyper.n_ff_shared_expert:
            values[keys.LLM.EXPERT_SHARED_COUNT] = hyper.n_ff_shared_expert // hyper.n_ff_expert
    if hyper.kv_lora_rank:
        values |= {
            keys.Attention.HEAD_COUNT_KV: 1,
            keys.Attention.KEY_LENGTH: hyper.kv_lora_rank + hyper.n_rot,
            keys.Attention.VALUE_LENGTH: hyper.kv_lora_rank,
            keys.Attention.KEY_LENGTH_MLA: hyper.n_embd_head,
            keys.Attention.VALUE_LENGTH_MLA: hyper.v_head_dim,
            keys.Attention.KV_LORA_RANK: hyper.kv_lora_rank,
            keys.Attention.Q_LORA_RANK: hyper.q_lora_rank,
        }
    values |= _keys_by_layer(hyper, values[keys.Attention.HEAD_COUNT_KV]) | _fixed_keys(hyper.architecture)
    return {
        keys.General.ARCHITECTURE: hyper.architecture,
        **{key.format(arch=hyper.architecture): value for key, value in values.items()},
        keys.Tokenizer.MODEL: "none",
    }


def _keys_by_layer(hyper: Hyperparameters, n_head_kv: object) -> dict[str, object]:
    """Return the keys with a value for each layer."""
    keys, layers = gguf_constants.Keys, list(_layers(hyper))
    values: dict[str, object] = {}
    if hyper.architecture in _HYBRID_BY_KV_HEADS:
        values[keys.Attention.HEAD_COUNT_KV] = [n_head_kv if layer.mixer == "*" else 0 for layer in layers]
    elif "M" in hyper.layer_pattern:
        values[RECURRENT_LAYERS] = [layer.mixer == "M" for layer in layers]
    if "-" in hyper.layer_pattern or "E" in hyper.layer_pattern:
        values[keys.LLM.FEED_FORWARD_LENGTH] = [hyper.n_ff if layer.feed_forward else 0 for layer in layers]
    if hyper.architecture == "gemma4":
        values |= _gemma4_keys(hyper, layers)
    return values


def _gemma4_keys(hyper: Hyperparameters, layers: Sequence[_Layer]) -> dict[str, object]:
    keys = gguf_constants.Keys
    return {
        keys.Attention.SLIDING_WINDOW_PATTERN: [layer.mixer == "W" for layer in layers],
        keys.Attention.HEAD_COUNT_KV: [_n_head_kv(hyper, layer) for layer in layers],
        keys.LLM.FEED_FORWARD_LENGTH: [_n_ff(hyper, layer) for layer in layers],
        keys.Attention.KEY_LENGTH_SWA: hyper.head_dim_window,
        keys.Attention.VALUE_LENGTH_SWA: hyper.head_dim_window,
        keys.Rope.DIMENSION_COUNT_SWA: hyper.head_dim_window,
        keys.Attention.SHARED_KV_LAYERS: hyper.n_layer_shared_kv,
        keys.LLM.EMBD_LENGTH_PER_LAYER_INP: hyper.n_embd_per_layer,
    }


def _fixed_keys(architecture: str) -> dict[str, object]:
    """Return the keys that llama.cpp requires, and on which neither sizes nor the work of a token depend."""
    keys = gguf_constants.Keys
    if architecture in ("qwen35", "qwen35moe"):
        return {keys.Rope.DIMENSION_SECTIONS: [11, 11, 10, 0]}
    if architecture == "granite":
        return {keys.LLM.LOGIT_SCALE: 1.0}
    if architecture in ("nemotron_h", "nemotron_h_moe"):
        return {keys.Attention.LAYERNORM_EPS: 1e-5}
    return {}


def build_tensors(hyper: Hyperparameters) -> tuple[TensorInfo, ...]:
    """Return every tensor of the model, without the output if it is tied to the embedding."""
    kinds: dict[_Layer, list[_Tensor]] = {}
    tensors = [tensor.info() for tensor in _outside_layers(hyper)]
    for number, layer in enumerate(_layers(hyper)):
        if layer not in kinds:
            kinds[layer] = list(_of_layer(hyper, layer))
        tensors += [tensor.info(number) for tensor in kinds[layer]]
    return tuple(tensors)


def build_model(hyper: Hyperparameters, name: str) -> ModelFile:
    """Return the model of this shape with f16 matrices and no file, for counting; llama.cpp is not needed."""
    from ggbench.gguf_file.header import encode_model

    return encode_model(build_metadata(hyper), build_tensors(hyper), name)


def count_params(hyper: Hyperparameters) -> int:
    """Return the parameters of all tensors; for speed in long lists, each kind of layer is computed once."""
    counted = sum(
        n_layer * sum(math.prod(tensor.shape) for tensor in _of_layer(hyper, layer))
        for layer, n_layer in Counter(_layers(hyper)).items()
    )
    return counted + sum(math.prod(tensor.shape) for tensor in _outside_layers(hyper))


def _layers(hyper: Hyperparameters) -> Iterator[_Layer]:
    pattern = hyper.layer_pattern or "*"
    is_part = "-" in pattern or "E" in pattern
    for number in range(hyper.n_layer + hyper.n_layer_nextn):
        drafts = number >= hyper.n_layer
        letter = "*" if drafts else pattern[number % len(pattern)]
        every = hyper.n_expert_every or 1
        routed = hyper.n_expert and number >= hyper.n_layer_dense and (number + 1) % every == 0
        feed_forward = "experts" if routed else "dense"
        if is_part and letter in "M*":
            yield _Layer(letter, "")
        elif is_part:
            yield _Layer("", feed_forward)
        else:
            yield _Layer(
                letter, feed_forward, hyper.n_layer - hyper.n_layer_shared_kv <= number < hyper.n_layer, drafts
            )


def _outside_layers(hyper: Hyperparameters) -> Iterator[_Tensor]:
    yield _matrix("TOKEN_EMBD", hyper.n_embd, hyper.n_vocab)
    is_lfm2 = hyper.architecture in ("lfm2", "lfm2moe")
    yield _f32("TOKEN_EMBD_NORM" if is_lfm2 else "OUTPUT_NORM", hyper.n_embd)
    if not hyper.tied_embeddings:
        yield _matrix("OUTPUT", hyper.n_embd, hyper.n_vocab)
    if hyper.rope_freqs or hyper.architecture == "gemma4":
        yield _f32("ROPE_FREQS", hyper.n_embd_head // 2)
    if hyper.n_embd_per_layer:
        width = hyper.n_embd_per_layer * hyper.n_layer
        yield _matrix("PER_LAYER_TOKEN_EMBD", width, hyper.n_vocab)
        yield _matrix("PER_LAYER_MODEL_PROJ", hyper.n_embd, width)
        yield _f32("PER_LAYER_PROJ_NORM", hyper.n_embd_per_layer)


def _of_layer(hyper: Hyperparameters, layer: _Layer) -> Iterator[_Tensor]:
    yield from _norms(hyper, "ATTN_NORM")
    if layer.mixer == "M":
        yield from _RECURRENCES[hyper.architecture](hyper)
    elif layer.mixer:
        yield from _latent_attention(hyper) if hyper.kv_lora_rank else _attention(hyper, layer)
    yield from _norms(hyper, "ATTN_POST_NORM", "FFN_NORM")
    if layer.feed_forward == "experts":
        yield from _experts(hyper)
    if layer.feed_forward == "dense" or (layer.feed_forward and hyper.architecture == "gemma4"):
        yield from _dense(hyper, _n_ff(hyper, layer))
    yield from _norms(hyper, "FFN_POST_NORM")
    if hyper.architecture == "gemma4":
        yield _f32("LAYER_OUT_SCALE", 1)
    if hyper.n_embd_per_layer:
        yield _matrix("PER_LAYER_INP_GATE", hyper.n_embd, hyper.n_embd_per_layer)
        yield _matrix("PER_LAYER_PROJ", hyper.n_embd_per_layer, hyper.n_embd)
        yield _f32("PER_LAYER_POST_NORM", hyper.n_embd)
    if layer.drafts:
        yield from _drafting(hyper)


def _norms(hyper: Hyperparameters, *members: str) -> Iterator[_Tensor]:
    """Yield those of these norms that the architecture has."""
    return (_f32(norm, hyper.n_embd) for norm in FAMILIES[hyper.architecture].norms if norm in members)


def _drafting(hyper: Hyperparameters) -> Iterator[_Tensor]:
    """Yield what a layer that drafts (NextN) has beyond the others."""
    yield _matrix("NEXTN_EH_PROJ", 2 * hyper.n_embd, hyper.n_embd)
    yield from (_f32(f"NEXTN_{norm}", hyper.n_embd) for norm in ("ENORM", "HNORM", "SHARED_HEAD_NORM"))
    if hyper.nextn_embeddings:
        yield _matrix("NEXTN_EMBED_TOKENS", hyper.n_embd, hyper.n_vocab)
        yield _matrix("NEXTN_SHARED_HEAD_HEAD", hyper.n_embd, hyper.n_vocab)


def _n_head_kv(hyper: Hyperparameters, layer: _Layer) -> int:
    return (layer.mixer == "W" and hyper.n_head_kv_window) or hyper.n_head_kv


def _n_ff(hyper: Hyperparameters, layer: _Layer) -> int:
    return (layer.shares_kv and hyper.n_ff_shared_kv) or hyper.n_ff


_QUERIES = {"qwen35": 2, "qwen35moe": 2}
"""Architectures whose Q has a gate of its width too."""


def _head_dim(hyper: Hyperparameters, layer: _Layer) -> int:
    return (layer.mixer == "W" and hyper.head_dim_window) or hyper.n_embd_head


def _qk_norms(n_q: int, n_k: int) -> Iterator[_Tensor]:
    yield _f32("ATTN_Q_NORM", n_q)
    yield _f32("ATTN_K_NORM", n_k)


def _attention(hyper: Hyperparameters, layer: _Layer) -> Iterator[_Tensor]:
    family, head_dim = FAMILIES[hyper.architecture], _head_dim(hyper, layer)
    n_query, n_kv = head_dim * hyper.n_head, head_dim * _n_head_kv(hyper, layer)
    has_bias = family.qkv_bias if hyper.qkv_bias is None else hyper.qkv_bias
    separate = [("ATTN_Q", n_query * _QUERIES.get(hyper.architecture, 1)), ("ATTN_K", n_kv), ("ATTN_V", n_kv)]
    if hyper.n_head_kv_window and layer.mixer == "*":
        separate.pop()
    for member, n_rows in [("ATTN_QKV", n_query + 2 * n_kv)] if family.fused else separate:
        yield _matrix(member, hyper.n_embd, n_rows)
        if has_bias:
            yield _bias(member, n_rows)
    yield _matrix("ATTN_OUT", n_query, hyper.n_embd)
    if family.qk_norm is None:
        yield from _qk_norms(n_query, n_kv)
    elif family.qk_norm or hyper.qk_norm:
        yield from _qk_norms(head_dim, head_dim)
    if hyper.architecture == "gpt-oss":
        yield _bias("ATTN_OUT", hyper.n_embd)
        yield _f32("ATTN_SINKS", hyper.n_head)


def _latent_attention(hyper: Hyperparameters) -> Iterator[_Tensor]:
    """Yield the tensors of MLA, with K and V of each head computed from the latent in the graph."""
    n_query, rank = hyper.n_embd_head * hyper.n_head, hyper.kv_lora_rank
    if hyper.q_lora_rank:
        yield _matrix("ATTN_Q_A", hyper.n_embd, hyper.q_lora_rank)
        yield _f32("ATTN_Q_A_NORM", hyper.q_lora_rank)
        yield _matrix("ATTN_Q_B", hyper.q_lora_rank, n_query)
    else:
        yield _matrix("ATTN_Q", hyper.n_embd, n_query)
    yield _matrix("ATTN_KV_A_MQA", hyper.n_embd, rank + hyper.n_rot)
    yield _f32("ATTN_KV_A_NORM", rank)
    yield _matrix("ATTN_K_B", hyper.n_embd_head - hyper.n_rot, rank, hyper.n_head)
    yield _matrix("ATTN_V_B", rank, hyper.v_head_dim, hyper.n_head)
    yield _matrix("ATTN_OUT", hyper.n_head * hyper.v_head_dim, hyper.n_embd)
    if hyper.indexer_n_head:
        width = hyper.indexer_head_dim
        yield _f32("INDEXER_K_NORM", width)
        yield _bias("INDEXER_K_NORM", width)
        yield _f32("INDEXER_PROJ", hyper.n_embd, hyper.indexer_n_head)
        yield _matrix("INDEXER_ATTN_K", hyper.n_embd, width)
        yield _matrix("INDEXER_ATTN_Q_B", hyper.q_lora_rank, hyper.indexer_n_head * width)


def _delta_net(hyper: Hyperparameters) -> Iterator[_Tensor]:
    n_qkv = 2 * hyper.ssm_n_group * hyper.ssm_state + hyper.ssm_inner
    yield _matrix("ATTN_QKV", hyper.n_embd, n_qkv)
    yield _matrix("ATTN_GATE", hyper.n_embd, hyper.ssm_inner)
    yield _f32("SSM_CONV1D", hyper.ssm_conv, n_qkv)
    yield _bias("SSM_DT", hyper.ssm_n_head)
    yield _bare("SSM_A", hyper.ssm_n_head)
    yield _matrix("SSM_BETA", hyper.n_embd, hyper.ssm_n_head)
    yield _matrix("SSM_ALPHA", hyper.n_embd, hyper.ssm_n_head)
    yield _f32("SSM_NORM", hyper.ssm_inner // hyper.ssm_n_head)
    yield _matrix("SSM_OUT", hyper.ssm_inner, hyper.n_embd)


def _mamba2(hyper: Hyperparameters) -> Iterator[_Tensor]:
    n_conv = hyper.ssm_inner + 2 * hyper.ssm_n_group * hyper.ssm_state
    yield _matrix("SSM_IN", hyper.n_embd, hyper.ssm_inner + n_conv + hyper.ssm_n_head)
    yield _f32("SSM_CONV1D", hyper.ssm_conv, n_conv)
    yield _bias("SSM_CONV1D", n_conv)
    yield _bias("SSM_DT", hyper.ssm_n_head)
    yield _bare("SSM_A", 1, hyper.ssm_n_head)
    yield _bare("SSM_D", 1, hyper.ssm_n_head)
    yield _f32("SSM_NORM", hyper.ssm_inner // hyper.ssm_n_group, hyper.ssm_n_group)
    yield _matrix("SSM_OUT", hyper.ssm_inner, hyper.n_embd)


def _short_convolution(hyper: Hyperparameters) -> Iterator[_Tensor]:
    yield _f32("SHORTCONV_CONV", hyper.ssm_conv, hyper.n_embd)
    yield _matrix("SHORTCONV_INPROJ", hyper.n_embd, 3 * hyper.n_embd)
    yield _matrix("SHORTCONV_OUTPROJ", hyper.n_embd, hyper.n_embd)


def _delta_attention(hyper: Hyperparameters) -> Iterator[_Tensor]:
    """Yield the tensors of Kimi Delta Attention (KDA)."""
    width, n_inner = hyper.ssm_state, hyper.ssm_state * hyper.n_head
    for part in "QKV":
        yield _f32(f"SSM_CONV1D_{part}", hyper.ssm_conv, 1, n_inner)
        yield _matrix(f"ATTN_{part}", hyper.n_embd, n_inner)
    for part in "FG":
        yield _matrix(f"SSM_{part}_A", hyper.n_embd, width)
        yield _matrix(f"SSM_{part}_B", width, n_inner)
    yield _matrix("SSM_BETA", hyper.n_embd, hyper.n_head)
    yield _bare("SSM_A", 1, hyper.n_head)
    yield _bias("SSM_DT", n_inner)
    yield _f32("SSM_NORM", width)
    yield _matrix("ATTN_OUT", n_inner, hyper.n_embd)


_RECURRENCES = {
    "qwen35": _delta_net,
    "qwen35moe": _delta_net,
    "granitehybrid": _mamba2,
    "nemotron_h": _mamba2,
    "nemotron_h_moe": _mamba2,
    "lfm2": _short_convolution,
    "lfm2moe": _short_convolution,
    "kimi-linear": _delta_attention,
}


def _has_expert_bias(hyper: Hyperparameters) -> bool:
    stated = hyper.expert_bias
    return bool(hyper.n_expert) and (FAMILIES[hyper.architecture].expert_bias if stated is None else stated)


def _gemma4_experts(n_embd: int, n_ff: int, n_expert: int) -> Iterator[_Tensor]:
    yield _matrix("FFN_GATE_UP_EXP", n_embd, 2 * n_ff, n_expert)
    yield _matrix("FFN_DOWN_EXP", n_ff, n_embd, n_expert)
    yield _Tensor("FFN_DOWN_EXP", (n_expert,), "f32", "scale")
    yield _Tensor("FFN_GATE_INP", (n_embd,), "f32", "scale")
    yield from (_f32(norm, n_embd) for norm in ("FFN_PRE_NORM_2", "FFN_POST_NORM_1", "FFN_POST_NORM_2"))


def _experts(hyper: Hyperparameters) -> Iterator[_Tensor]:
    architecture, n_ff, n_expert = hyper.architecture, hyper.n_ff_expert or hyper.n_ff, hyper.n_expert
    n_embd, feed_forward = hyper.n_embd_expert or hyper.n_embd, _feed_forward(architecture)
    yield _f32("FFN_GATE_INP", hyper.n_embd, n_expert)
    if architecture == "gemma4":
        yield from _gemma4_experts(n_embd, n_ff, n_expert)
    else:
        yield from feed_forward("_EXP", n_embd, n_ff, n_expert)
    if hyper.n_embd_expert:
        yield _matrix("MOE_LATENT_DOWN", hyper.n_embd, n_embd)
        yield _matrix("MOE_LATENT_UP", n_embd, hyper.n_embd)
    if _has_expert_bias(hyper):
        yield _bias("FFN_EXP_PROBS_B", n_expert)
    if architecture == "gpt-oss":
        yield _bias("FFN_GATE_INP", n_expert)
        for member, n_rows in (("FFN_GATE_EXP", n_ff), ("FFN_UP_EXP", n_ff), ("FFN_DOWN_EXP", hyper.n_embd)):
            yield _bias(member, n_rows, n_expert)
    if architecture in ("qwen2moe", "qwen35moe"):
        yield _f32("FFN_GATE_INP_SHEXP", hyper.n_embd)
    if hyper.n_ff_shared_expert:
        yield from feed_forward("_SHEXP", hyper.n_embd, hyper.n_ff_shared_expert)


def _dense(hyper: Hyperparameters, n_ff: int) -> Iterator[_Tensor]:
    if FAMILIES[hyper.architecture].fused:
        yield _matrix("FFN_UP", hyper.n_embd, 2 * n_ff)
        yield _matrix("FFN_DOWN", n_ff, hyper.n_embd)
    else:
        yield from _feed_forward(hyper.architecture)("", hyper.n_embd, n_ff)


def _feed_forward(architecture: str) -> Callable[..., Iterator[_Tensor]]:
    return _ungated if architecture.startswith("nemotron") else _gated


def _gated(kind: str, n_embd: int, n_ff: int, *n_expert: int) -> Iterator[_Tensor]:
    yield _matrix(f"FFN_GATE{kind}", n_embd, n_ff, *n_expert)
    yield from _ungated(kind, n_embd, n_ff, *n_expert)


def _ungated(kind: str, n_embd: int, n_ff: int, *n_expert: int) -> Iterator[_Tensor]:
    yield _matrix(f"FFN_UP{kind}", n_embd, n_ff, *n_expert)
    yield _matrix(f"FFN_DOWN{kind}", n_ff, n_embd, *n_expert)


def _matrix(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f16")


def _f32(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f32")


def _bias(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f32", suffix="bias")


def _bare(member: str, *shape: int) -> _Tensor:
    return _Tensor(member, shape, "f32", suffix="")
