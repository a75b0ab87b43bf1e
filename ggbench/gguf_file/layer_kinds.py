"""The kinds of layer that a model is made of, so that one of each can be measured and all of them counted.

Two layers are of one kind when a token does the same work in both: the same tensors in the same shapes and types (dense
or experts, and the mixture of types of a `_k_m` quant), and the same state kept of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.gguf_file.model_file import LayerState, ModelFile, TensorInfo, active_bytes, tensors_by_layer


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers that cost the same; sizes are of one layer."""

    layers: tuple[int, ...]
    """Their indices in ascending order, of which the first may stand for all."""
    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
    """Name after `blk.N.`, shape and type of each tensor, by name."""
    weight_bytes: int | None
    """Bytes of all tensors; None where a tensor type is unknown."""
    active_bytes: int | None
    """Bytes that one token reads: without the experts that it is not routed to. None where a type is unknown."""
    state: LayerState
    """What it keeps of a sequence; meaningless where the model's `no_kv_reason` is set."""
    kv_source: LayerState
    """What it attends to: its own state, or that of the layer whose cache it shares."""

    @property
    def window(self) -> int | None:
        """Positions that it attends to; None for every position."""
        return self.state.window

    @property
    def is_recurrent(self) -> bool:
        """Whether it keeps a recurrent state."""
        return self.state.recurrent_elements > 0

    @property
    def has_experts(self) -> bool:
        """Whether its tokens are routed to experts."""
        return any("_exps." in name for name, _, _ in self.tensors)

    def kv_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Return the bytes that one position within the window adds to the cache. Raises UnknownName, Unsupported."""
        return _bytes_per_position(self.state, type_k, type_v)

    def read_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Return the bytes that one position within the window adds to a step's reading. Raises as above."""
        return _bytes_per_position(self.kv_source, type_k, type_v)


def layer_kinds(model: ModelFile) -> tuple[LayerKind, ...]:
    """Return the kinds of layer that decode a token, by their first layer; draft layers (NextN) are of no kind."""
    by_layer = tensors_by_layer(model.tensors)
    found: dict[object, list[int]] = {}
    for layer in range(model.n_layer - model.n_layer_nextn):
        state, source = _state_of(model, layer)
        n_head, n_used = model.n_head[layer], model.experts_used[layer : layer + 1]
        key = (_signature(by_layer.get(layer, ())), n_head, n_used, source, state.k_width, state.recurrent_elements)
        found.setdefault(key, []).append(layer)
    return tuple(_kind(model, tuple(layers), by_layer.get(layers[0], ())) for layers in found.values())


def _kind(model: ModelFile, layers: tuple[int, ...], tensors: Sequence[TensorInfo]) -> LayerKind:
    state, source = _state_of(model, layers[0])
    is_known = all(tensor.n_bytes is not None for tensor in tensors)
    return LayerKind(
        layers=layers,
        tensors=_signature(tensors),
        weight_bytes=sum(tensor.n_bytes or 0 for tensor in tensors) if is_known else None,
        active_bytes=round(sum(active_bytes(tensor, model) for tensor in tensors)) if is_known else None,
        state=state,
        kv_source=source,
    )


def _state_of(model: ModelFile, layer: int) -> tuple[LayerState, LayerState]:
    """Return what the layer keeps, and what it attends to."""
    state = model.states[layer]
    return state, state if state.reads_layer is None else model.states[state.reads_layer]


def _signature(tensors: Sequence[TensorInfo]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return tuple(sorted((tensor.name.split(".", 2)[2], tensor.shape, tensor.type_name) for tensor in tensors))


def _bytes_per_position(state: LayerState, type_k: str, type_v: str) -> int:
    return row_bytes(type_k, state.k_width) + row_bytes(type_v, state.v_width)
