"""The metadata and the tensors that a model of given hyperparameters has, before any quantization.

Matrices are f16, as in the files that llama.cpp's quantizer is given; norms, biases and routers are f32, as it leaves
them.
Source of the layout: `create_tensor` of llama.cpp's qwen2 and qwen2moe models, and their converter from safetensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import TensorInfo


def draw_metadata(hyper: Hyperparameters) -> dict[str, object]:
    """The keys that llama.cpp needs to load the model and decode ids; it has no tokenizer."""
    keys: dict[str, object] = {
        "block_count": hyper.n_layer,
        "context_length": hyper.n_ctx_train,
        "embedding_length": hyper.n_embd,
        "feed_forward_length": hyper.n_ff,
        "attention.head_count": hyper.n_head,
        "attention.head_count_kv": hyper.n_head_kv,
        "attention.layer_norm_rms_epsilon": float(hyper.norm_rms_eps),
        "rope.freq_base": float(hyper.rope_freq_base),
        "vocab_size": hyper.n_vocab,
    }
    if hyper.head_dim is not None:
        keys |= {
            "attention.key_length": hyper.head_dim,
            "attention.value_length": hyper.head_dim,
            "rope.dimension_count": hyper.head_dim,
        }
    if hyper.n_expert:
        keys |= {
            "expert_count": hyper.n_expert,
            "expert_used_count": hyper.n_expert_used,
            "expert_feed_forward_length": hyper.n_ff_expert,
            "expert_shared_feed_forward_length": hyper.n_ff_shared_expert,
        }
    return {
        "general.architecture": hyper.architecture,
        **{f"{hyper.architecture}.{key}": value for key, value in keys.items()},
        "tokenizer.ggml.model": "none",
    }


def draw_tensors(hyper: Hyperparameters) -> tuple[TensorInfo, ...]:
    """Every tensor of the model, the tied output left out."""
    return tuple(_tensors(hyper))


def count_params(hyper: Hyperparameters) -> int:
    """Parameters of all its tensors: one layer is like another, and a list of models counts hundreds of them."""
    outside = sum(tensor.n_elements for tensor in _outside_layers(hyper))
    return outside + hyper.n_layer * sum(tensor.n_elements for tensor in _layer(hyper, 0))


def _tensors(hyper: Hyperparameters) -> Iterator[TensorInfo]:
    yield from _outside_layers(hyper)
    for layer in range(hyper.n_layer):
        yield from _layer(hyper, layer)


def _outside_layers(hyper: Hyperparameters) -> Iterator[TensorInfo]:
    yield _matrix("token_embd", hyper.n_embd, hyper.n_vocab)
    yield _f32("output_norm.weight", hyper.n_embd)
    if not hyper.tied_embeddings:
        yield _matrix("output", hyper.n_embd, hyper.n_vocab)


def _layer(hyper: Hyperparameters, layer: int) -> Iterator[TensorInfo]:
    yield from _attention(hyper, f"blk.{layer}.")
    yield from _feed_forward(hyper, f"blk.{layer}.")


def _attention(hyper: Hyperparameters, prefix: str) -> Iterator[TensorInfo]:
    n_query, n_kv = hyper.n_embd_head * hyper.n_head, hyper.n_embd_head * hyper.n_head_kv
    yield _f32(f"{prefix}attn_norm.weight", hyper.n_embd)
    for name, n_rows in (("attn_q", n_query), ("attn_k", n_kv), ("attn_v", n_kv)):
        yield _matrix(prefix + name, hyper.n_embd, n_rows)
        if hyper.qkv_bias:
            yield _f32(f"{prefix}{name}.bias", n_rows)
    yield _matrix(f"{prefix}attn_output", n_query, hyper.n_embd)


def _feed_forward(hyper: Hyperparameters, prefix: str) -> Iterator[TensorInfo]:
    yield _f32(f"{prefix}ffn_norm.weight", hyper.n_embd)
    if not hyper.n_expert:
        yield from _gated(prefix, "", hyper.n_embd, hyper.n_ff)
        return
    yield _f32(f"{prefix}ffn_gate_inp.weight", hyper.n_embd, hyper.n_expert)
    yield from _gated(prefix, "_exps", hyper.n_embd, hyper.n_ff_expert, hyper.n_expert)
    yield _f32(f"{prefix}ffn_gate_inp_shexp.weight", hyper.n_embd)
    yield from _gated(prefix, "_shexp", hyper.n_embd, hyper.n_ff_shared_expert)


def _gated(prefix: str, suffix: str, n_embd: int, n_ff: int, *n_expert: int) -> Iterator[TensorInfo]:
    yield _matrix(f"{prefix}ffn_gate{suffix}", n_embd, n_ff, *n_expert)
    yield _matrix(f"{prefix}ffn_up{suffix}", n_embd, n_ff, *n_expert)
    yield _matrix(f"{prefix}ffn_down{suffix}", n_ff, n_embd, *n_expert)


def _matrix(name: str, *shape: int) -> TensorInfo:
    return _tensor(f"{name}.weight", "f16", shape)


def _f32(name: str, *shape: int) -> TensorInfo:
    return _tensor(name, "f32", shape)


def _tensor(name: str, type_name: str, shape: tuple[int, ...]) -> TensorInfo:
    return TensorInfo(name, shape, type_name, row_bytes(type_name, shape[0]) * math.prod(shape[1:]))
