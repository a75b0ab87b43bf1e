"""The metadata and tensors of a model of given hyperparameters, before quantization.

Matrices are f16, like the input of llama.cpp's quantizer; norms, biases, routers and convolutions are f32, as it leaves
them. Source of the layout: `load_arch_tensors` of llama.cpp's models, and their converters from safetensors.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import asdict, replace

from ggbench.gguf_file.architecture import RECURRENT_LAYERS
from ggbench.gguf_file.hyperparameters import FAMILIES, LAYOUTS, Family, Hyperparameters, Parts
from ggbench.gguf_file.model_file import ModelFile, TensorInfo

_TYPE_BYTES = {"f16": 2, "f32": 4, "i32": 4}

_OTHER_KEYS = {
    ("short convolution", "ssm.conv_kernel"): "shortconv.l_cache",
    ("delta attention", "ssm.state_size"): "kda.head_dim",
}
_RECURRENT = "MN"
_N_NGRAM_HEADS = 16
"""Hashes of a position into the table of n-grams: 8 of two tokens, 8 of three."""


class _Layer(NamedTuple):
    """A kind of layer; layers of one kind have the same tensors."""

    mixer: str
    """The letter of `layer_pattern`; empty for a feed-forward alone."""
    feed_forward: str
    """`dense`, `experts`, `hashed`, or empty for none."""
    shares_kv: bool = False
    drafts: bool = False


def build_metadata(hyper: Hyperparameters) -> dict[str, object]:
    """Return the keys that llama.cpp needs to load the model and decode ids; it has no tokenizer."""
    family = FAMILIES[hyper.architecture]
    values: dict[str, object] = {
        "block_count": hyper.n_layer + hyper.n_layer_nextn,
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
        values |= dict.fromkeys(
            ("attention.key_length", "attention.value_length", "rope.dimension_count"), hyper.head_dim
        )
    for key, name in LAYOUTS.keys.items():
        if value := getattr(hyper, name):
            values[_OTHER_KEYS.get((_recurrence(family), key), key)] = value
    if "n_layer_dense" in family.allows:
        values["leading_dense_block_count"] = hyper.n_layer_dense
        if hyper.n_ff_shared_expert:
            values["expert_shared_count"] = hyper.n_ff_shared_expert // hyper.n_ff_expert
    if hyper.kv_lora_rank:
        values |= _latent_keys(hyper)
    values |= _keys_by_layer(hyper, values["attention.head_count_kv"])
    values |= family.fixed_keys
    return {
        "general.architecture": hyper.architecture,
        **{f"{hyper.architecture}.{key}": value for key, value in values.items()},
        "tokenizer.ggml.model": "none",
    }


def _latent_keys(hyper: Hyperparameters) -> dict[str, object]:
    """Return the keys of attention to a latent, or to the K and V that old files compute from it."""
    values: dict[str, object] = {
        "attention.kv_lora_rank": hyper.kv_lora_rank,
        "attention.q_lora_rank": hyper.q_lora_rank,
        "attention.value_length": hyper.v_head_dim,
        "rope.dimension_count": hyper.n_rot,
    }
    if hyper.whole_kv:
        return values
    return values | {
        "attention.head_count_kv": 1,
        "attention.key_length": hyper.kv_lora_rank + hyper.n_rot,
        "attention.value_length": hyper.kv_lora_rank,
        "attention.key_length_mla": hyper.n_embd_head,
        "attention.value_length_mla": hyper.v_head_dim,
    }


def _recurrence(family: Family) -> str:
    """Return the part that a letter `M` stands for; empty if the architecture has none."""
    return next(iter(family.mixers.get("M", ())), "")


def _keys_by_layer(hyper: Hyperparameters, n_head_kv: object) -> dict[str, object]:
    """Return the keys with a value for each layer."""
    family, layers = FAMILIES[hyper.architecture], list(_layers(hyper))
    letters = [layer.mixer for layer in layers]
    values = _recurrent_keys(_recurrence(family), letters, n_head_kv)
    if family.compression:
        values["attention.compress_ratios"] = [family.compression.get(letter, 0) for letter in letters]
    if hyper.n_row_ngram:
        n_rows = hyper.n_row_ngram // _N_NGRAM_HEADS
        values["ple.layers"] = [letters.index("N")]
        values["ple.head_offsets"] = [n_rows * head for head in range(_N_NGRAM_HEADS)]
        values["ple.head_vocab_sizes"] = [n_rows] * _N_NGRAM_HEADS
    if _has_parts(hyper):
        values["feed_forward_length"] = [hyper.n_ff if layer.feed_forward else 0 for layer in layers]
    if hyper.architecture == "gemma4":
        values |= _gemma4_keys(hyper, layers)
    return values


def _recurrent_keys(recurrence: str, letters: Sequence[str], n_head_kv: object) -> dict[str, object]:
    """Return the key by which llama.cpp tells recurrent layers from those with attention; none without recurrence."""
    if recurrence == "delta net":
        return {RECURRENT_LAYERS: [letter in _RECURRENT for letter in letters]}
    if recurrence:
        return {"attention.head_count_kv": [n_head_kv if letter == "*" else 0 for letter in letters]}
    return {}


def _gemma4_keys(hyper: Hyperparameters, layers: Sequence[_Layer]) -> dict[str, object]:
    return {
        "attention.sliding_window_pattern": [layer.mixer == "W" for layer in layers],
        "attention.head_count_kv": [_n_head_kv(hyper, layer) for layer in layers],
        "feed_forward_length": [_n_ff(hyper, layer) for layer in layers],
        "attention.key_length_swa": hyper.head_dim_window,
        "attention.value_length_swa": hyper.head_dim_window,
        "rope.dimension_count_swa": hyper.head_dim_window,
        "attention.shared_kv_layers": hyper.n_layer_shared_kv,
        "embedding_length_per_layer_input": hyper.n_embd_per_layer,
    }


def build_tensors(hyper: Hyperparameters) -> tuple[TensorInfo, ...]:
    """Return every tensor of the model, without the output if it is tied to the embedding."""
    kinds: dict[_Layer, list[TensorInfo]] = {}
    tensors = _outside_layers(hyper)
    for number, layer in enumerate(_layers(hyper)):
        if layer not in kinds:
            kinds[layer] = _of_layer(hyper, layer)
        tensors += [replace(tensor, name=f"blk.{number}.{tensor.name}") for tensor in kinds[layer]]
    return tuple(tensors)


def build_model(hyper: Hyperparameters, name: str) -> ModelFile:
    """Return the model of this shape with f16 matrices and no file, for counting; llama.cpp is not needed."""
    from ggbench.gguf_file.header import encode_model

    return encode_model(build_metadata(hyper), build_tensors(hyper), name)


@functools.cache
def count_params(hyper: Hyperparameters) -> int:
    """Return the parameters of all tensors; for speed in long lists, each kind of layer is computed once."""
    counted = sum(
        n_layer * sum(tensor.n_elements for tensor in _of_layer(hyper, layer))
        for layer, n_layer in Counter(_layers(hyper)).items()
    )
    return counted + sum(tensor.n_elements for tensor in _outside_layers(hyper))


def _layers(hyper: Hyperparameters) -> Iterator[_Layer]:
    pattern, is_part = hyper.layer_pattern or "*", _has_parts(hyper)
    for number in range(hyper.n_layer + hyper.n_layer_nextn):
        drafts = number >= hyper.n_layer
        letter = "*" if drafts else pattern[number % len(pattern)]
        feed_forward = _feed_forward(hyper, number)
        if is_part and letter in "M*":
            yield _Layer(letter, "")
        elif is_part:
            yield _Layer("", feed_forward)
        else:
            shares_kv = hyper.n_layer - hyper.n_layer_shared_kv <= number < hyper.n_layer
            yield _Layer(letter, feed_forward, shares_kv, drafts)


def _has_parts(hyper: Hyperparameters) -> bool:
    """Return whether a feed-forward is a layer of its own."""
    return not {"-", "E"}.isdisjoint(hyper.layer_pattern)


def _feed_forward(hyper: Hyperparameters, number: int) -> str:
    every = hyper.n_expert_every or 1
    if not hyper.n_expert or number < hyper.n_layer_dense or (number + 1) % every:
        return "dense"
    return "hashed" if number < hyper.n_layer_hash else "experts"


def _outside_layers(hyper: Hyperparameters) -> list[TensorInfo]:
    return _tensors(FAMILIES[hyper.architecture].outside, _sizes(hyper, _Layer("", "")))


def _of_layer(hyper: Hyperparameters, layer: _Layer) -> list[TensorInfo]:
    """Return the tensors of a layer, with their names after `blk.N.`."""
    return _tensors(_parts(hyper, layer), _sizes(hyper, layer))


def _parts(hyper: Hyperparameters, layer: _Layer) -> Parts:
    """Return the parts of a layer, by their names in `layouts.toml`, in order."""
    family = FAMILIES[hyper.architecture]
    before, between, after = family.norms
    feed_forwards = {"dense": family.dense, "experts": family.experts, "hashed": family.hashed, "": ()}
    drafts = ("draft",) if layer.drafts else ()
    return (
        *before, *family.mixers.get(layer.mixer, ()), *between, *feed_forwards[layer.feed_forward], *after, *drafts,
    )  # fmt: skip


def _n_head_kv(hyper: Hyperparameters, layer: _Layer) -> int:
    return (layer.mixer == "W" and hyper.n_head_kv_window) or hyper.n_head_kv


def _n_ff(hyper: Hyperparameters, layer: _Layer) -> int:
    return (layer.shares_kv and hyper.n_ff_shared_kv) or hyper.n_ff


def _sizes(hyper: Hyperparameters, layer: _Layer) -> dict[str, int]:
    """Return the number behind each name in `layouts.toml`; 0 for what the layer does not have."""
    family = FAMILIES[hyper.architecture]
    head_dim = (layer.mixer == "W" and hyper.head_dim_window) or hyper.n_embd_head
    n_kv = head_dim * _n_head_kv(hyper, layer)
    takes_k_as_v = bool(hyper.n_head_kv_window) and layer.mixer == "*"
    return asdict(hyper) | {
        "head_dim": head_dim,
        "n_query": head_dim * hyper.n_head,
        "n_whole_query": head_dim * hyper.n_head * (not hyper.q_lora_rank),
        "n_kv": n_kv,
        "n_value": n_kv * (not takes_k_as_v),
        "n_normed": head_dim * (family.qk_norm or hyper.qk_norm),
        "n_ff": _n_ff(hyper, layer),
        "n_ff_expert": hyper.n_ff_expert or hyper.n_ff,
        "n_embd_routed": hyper.n_embd_expert or hyper.n_embd,
        "n_biased": hyper.n_expert * bool(hyper.expert_gating),
        "n_unrotated": hyper.n_embd_head - hyper.n_rot,
        "n_split_head": hyper.n_head * (not hyper.whole_kv),
        "n_whole_head": hyper.n_head * hyper.whole_kv,
        "n_half_head": hyper.n_embd_head // 2,
        "n_untied": hyper.n_vocab * (not hyper.tied_embeddings),
        "n_stream": 4 * (not layer.drafts),
        "is_connected": not layer.drafts,
        "has_embedding": bool(hyper.n_embd_per_layer),
        "query_of_group": head_dim * hyper.n_head // (hyper.n_group_out or 1),
        "inner_of_head": hyper.ssm_inner // (hyper.ssm_n_head or 1),
        "inner_of_group": hyper.ssm_inner // (hyper.ssm_n_group or 1),
    }


def _tensors(parts: Iterable[str], sizes: Mapping[str, int]) -> list[TensorInfo]:
    found = []
    for part in parts:
        for line in LAYOUTS.parts[part].strip().splitlines():
            name, type_name, *dimensions = line.split()
            shape = tuple(_size(dimension, sizes) for dimension in dimensions)
            if n_elements := math.prod(shape):
                found.append(TensorInfo(name, shape, type_name, n_elements * _TYPE_BYTES[type_name]))
    return found


def _size(text: str, sizes: Mapping[str, int]) -> int:
    """Return the value of a sum of products of names and numbers."""
    products = (term.split("*") for term in text.split("+"))
    return sum(
        math.prod(int(each) if each.isdigit() else sizes[each] for each in product) for product in products
    )
