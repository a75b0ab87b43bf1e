"""A model of some of another model's layers, so that each kind of layer can be measured without the rest.

llama.cpp decides by a layer's index and by the number of layers which of them have a window, a recurrent state or no
experts; the metadata of the selection says it outright. What it cannot say raises Unsupported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ggbench.errors import Unsupported, UsageError
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.layer_states import FULL_ATTENTION_INTERVAL, RECURRENT_LAYERS, has_windows
from ggbench.gguf_file.model_file import ModelFile, TensorInfo, layer_of, tensors_by_layer

_NOT_ALONE = {
    "gemma3n": "has a table with a part for each layer",
    "gemma4": "has a table with a part for each layer",
    "llama4": "does in a layer what its index says",
    "smallthinker": "does in a layer what its index says",
    "ernie4_5-moe": "does in a layer what its index says",
    "kimi-k3": "does in a layer what its index says",
}
"""Architectures whose layers are not themselves at another index or without the others, and why."""


def select_layers(
    model: ModelFile, metadata: Mapping[str, object], layers: Sequence[int]
) -> tuple[dict[str, object], tuple[TensorInfo, ...]]:
    """Return `metadata` and the tensors of `model` with these layers alone, in this order and numbered from 0.

    A layer may be given several times. Layers without experts have to come before those with them. Raises UsageError
    for a layer that the model does not have, Unsupported where a header cannot say which layers these are.
    """
    _check(model, layers)
    tensors = [tensor for tensor in model.tensors if layer_of(tensor.name) is None]
    by_layer = tensors_by_layer(model.tensors)
    for number, layer in enumerate(layers):
        for tensor in by_layer.get(layer, ()):
            name = f"blk.{number}.{tensor.name.split('.', 2)[2]}"
            tensors.append(dataclasses.replace(tensor, name=name, shard=0))
    return _selected_metadata(model, metadata, layers), tuple(tensors)


def _check(model: ModelFile, layers: Sequence[int]) -> None:
    n_layer = model.n_layer - model.n_layer_nextn
    wrong = [layer for layer in layers if not 0 <= layer < n_layer]
    if wrong or not layers:
        what = f"layer {wrong[0]}" if wrong else "a selection of no layers"
        raise UsageError(f"{model.name} has layers 0 to {n_layer - 1}, not {what}", "name layers that it has")
    if model.architecture in _NOT_ALONE:
        raise Unsupported(
            f"{model.name}: {model.architecture} {_NOT_ALONE[model.architecture]}, so no layer stands alone",
            "measure the whole model",
        )
    chosen = [model.states[layer] for layer in layers]
    if any(state.window for state in model.states):
        if not has_windows(model.architecture, len(layers)):
            raise Unsupported(
                f"{model.name}: {model.architecture} of {len(layers)} layers has no windows in llama.cpp",
                "measure the whole model",
            )
        if not any(state.window for state in chosen):
            raise Unsupported(
                f"{model.name}: llama.cpp runs no {model.architecture} in which no layer has a window",
                "select a layer with a window too",
            )
    routed = [_has_experts(model, layer) for layer in layers]
    if routed != sorted(routed):
        raise Unsupported(
            f"{model.name}: a layer without experts follows one with experts", "select the dense layers first"
        )


def _selected_metadata(model: ModelFile, metadata: Mapping[str, object], layers: Sequence[int]) -> dict[str, object]:
    keys, architecture = gguf_constants.Keys, model.architecture

    def full(key: str) -> str:
        return key.format(arch=architecture)

    selected = {key: _of_layers(key, value, model, layers) for key, value in metadata.items()}
    selected[full(keys.LLM.BLOCK_COUNT)] = len(layers)
    selected.pop(full(keys.LLM.NEXTN_PREDICT_LAYERS), None)
    chosen = [model.states[layer] for layer in layers]
    if any(state.window for state in chosen):
        selected[full(keys.Attention.SLIDING_WINDOW_PATTERN)] = [state.window is not None for state in chosen]
    if full(keys.LLM.LEADING_DENSE_BLOCK_COUNT) in selected:
        n_dense = sum(not _has_experts(model, layer) for layer in layers)
        selected[full(keys.LLM.LEADING_DENSE_BLOCK_COUNT)] = n_dense
    if architecture in FULL_ATTENTION_INTERVAL:
        selected[full(RECURRENT_LAYERS)] = [state.recurrent_elements > 0 for state in chosen]
    if architecture == "deepseek2":  # llama.cpp knows by the number of layers which ones need no such key
        selected.setdefault(full(keys.Attention.Q_LORA_RANK), 0)
    return selected


def _of_layers(key: str, value: object, model: ModelFile, layers: Sequence[int]) -> object:
    """Return the entries of these layers if the value has one for each, else the value."""
    of_rope = key == gguf_constants.Keys.Rope.DIMENSION_SECTIONS.format(arch=model.architecture)
    if not isinstance(value, list) or len(value) != model.n_layer or of_rope:
        return value
    return [value[layer] for layer in layers] if key.startswith(f"{model.architecture}.") else value


def _has_experts(model: ModelFile, layer: int) -> bool:
    prefix = f"blk.{layer}."
    return any(tensor.name.startswith(prefix) and "_exps." in tensor.name for tensor in model.tensors)
