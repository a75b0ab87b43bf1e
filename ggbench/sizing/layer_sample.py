"""Choose the layers of a model that a forecast measures: few, but more than the CPU's cache holds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ggbench.gguf_file.layer_states import LayerKind, layer_kinds
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.sizing.theory.kv_cache import kv_cache

WHOLE_BYTES = 10**9
"""A model of up to this size is measured whole, as a twin of all its layers."""
LARGER_BYTES = 7 * 10**8
"""That the larger twin has of layers, where those of the smaller and a few more are less: the further the twins are
apart, the less their noise counts. A 7B in Q4_K_M then takes less than 2 GB of disk."""
_MORE_LAYERS = 4
"""That the larger twin has beyond the smaller at least."""
_CACHE_FACTOR = 1.25
"""A step of the smaller twin reads more than the CPU's last-level cache by this factor, as the model's steps do."""


class _Group(msgspec.Struct, frozen=True):
    """Layers with the same tensors and shapes, whatever their types and windows."""

    layers: tuple[int, ...]
    """Those that keep only a window first, then by rising size: even steps through them are a fair sample."""


def twin_layers(model: ModelFile, cache_bytes: int | None) -> tuple[tuple[int, ...], ...]:
    """Return the layers of each twin to measure, by rising number: two samples, or one of every layer.

    `cache_bytes` is the last-level cache of a CPU that reads the weights, None where a GPU does. Raises UsageError for
    a model without layers.
    """
    everything = tuple(range(model.n_layer - model.n_layer_nextn))
    if (model.weight_bytes or 0) <= WHOLE_BYTES:
        return (everything,)
    groups = _groups(model)
    fewest = min(2 * len(groups), len(everything))
    floor_bytes = _CACHE_FACTOR * (cache_bytes or 0)
    outside_bytes = (model.active_weight_bytes or 0) - step_cost(model, everything).layer_bytes
    while fewest < len(everything):
        chosen = _sample(groups, fewest)
        if outside_bytes + step_cost(model, chosen).layer_bytes >= floor_bytes:
            break
        fewest += 1
    layers_bytes = sum(tensor.n_bytes or 0 for tensor in model.tensors if layer_of(tensor.name) in everything)
    more = max(fewest + _MORE_LAYERS, LARGER_BYTES * len(everything) // max(1, layers_bytes))
    if more >= len(everything):
        return (everything,)
    return _sample(groups, fewest), _sample(groups, more)


def step_cost(model: ModelFile, layers: Sequence[int], type_k: str = "f16", type_v: str = "f16") -> StepCost:
    """Return what a step of these layers reads. Raises Unsupported where what is kept of a sequence is not known."""
    model.require_kv()
    kinds = {layer: kind for kind in layer_kinds(model) for layer in kind.layers}
    full = sum(kinds[layer].read_bytes_per_token(type_k, type_v) for layer in layers if kinds[layer].window is None)
    windowed = sum(kinds[layer].read_bytes_per_token(type_k, type_v) for layer in layers if kinds[layer].window)
    return StepCost(
        len(layers),
        sum(kinds[layer].active_bytes or 0 for layer in layers),
        full,
        windowed,
        kv_cache(model, type_k, type_v).window,
    )


def _groups(model: ModelFile) -> list[_Group]:
    """Largest first."""
    alike: dict[object, list[LayerKind]] = {}
    for kind in layer_kinds(model):
        alike.setdefault(frozenset((name, shape) for name, shape, _ in kind.tensors), []).append(kind)
    found = []
    for kinds in alike.values():
        ordered = sorted(kinds, key=lambda kind: (kind.window is None, kind.active_bytes or 0, kind.layers))
        found.append(_Group(tuple(layer for kind in ordered for layer in kind.layers)))
    return sorted(found, key=lambda group: -len(group.layers))


def _sample(groups: Sequence[_Group], n_layers: int) -> tuple[int, ...]:
    """Some of every group, in proportion, in the order of the model."""
    n_all = sum(len(group.layers) for group in groups)
    counts = [max(1, round(n_layers * len(group.layers) / n_all)) for group in groups]
    counts[0] = max(1, n_layers - sum(counts[1:]))
    chosen = []
    for group, count in zip(groups, counts, strict=True):
        taken = min(count, len(group.layers))
        chosen += [group.layers[int((number + 0.5) * len(group.layers) / taken)] for number in range(taken)]
    return tuple(sorted(chosen))


class StepCost(msgspec.Struct, frozen=True):
    """What decides the time of a step: bytes that it reads, of a model or of a twin of it."""

    n_layer: int
    layer_bytes: float
    """Of all layers for one token: without the experts that it is not routed to."""
    full_kv_bytes: int
    """That each position adds for layers without a window."""
    windowed_kv_bytes: int
    """As above, for layers with one."""
    window: int | None = None

    def kv_bytes(self, n: float) -> float:
        """Return the bytes of KV that the n-th token reads."""
        return self.full_kv_bytes * n + self.windowed_kv_bytes * min(n, self.window or n)
