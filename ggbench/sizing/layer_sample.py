"""Choose the layers that a forecast measures (few, but larger than the CPU's cache) and their placements.

A twin of a few layers is timed once for each placement; that time is scaled to the model's layers so placed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import LayerKind, ModelFile, layer_kinds, layer_of
from ggbench.record import Record
from ggbench.sizing.placement import ONE_GPU, Placement
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache

MODEL_ERROR = 0.08
"""Relative error of steps extrapolated from such twins, besides the spread of their rounds, at a probability of 95 %;
covers the residuals of scripts/forecast_residuals."""
WHOLE_BYTES = 10**9
"""A model of up to this size is measured whole, as a twin of all its layers."""
LARGER_BYTES = 7 * 10**8
"""Layers of the larger twin, unless the smaller needs nearly as much: the more the twins differ, the less noise
matters. For a 7B in Q4_K_M both take less than 2 GB of disk."""
_MORE_LAYERS = 4
"""The larger twin has at least this many layers more than the smaller."""
_CACHE_FACTOR = 1.25
"""A step of the smaller twin reads at least this multiple of the CPU's last-level cache, as the model's steps do."""


def twin_layers(model: ModelFile, cache_bytes: int | None) -> tuple[tuple[int, ...], ...]:
    """Return the layers of each twin to measure: two samples, the smaller first, or all layers once.

    `cache_bytes` is the last-level cache of a CPU that reads the weights, None for a GPU.
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
    """Return the bytes that a step of these layers reads. Raises Unsupported if the size of a sequence's state is
    unknown.
    """
    kinds = {layer: kind for kind in layer_kinds(model) for layer in kind.layers}
    layer_bytes = sum(kinds[layer].active_bytes or 0 for layer in layers)
    return StepCost(len(layers), layer_bytes, kv_cache(model, type_k, type_v, layers))


def model_cost(model: ModelFile, type_k: str, type_v: str) -> StepCost:
    """Return the bytes that a step of the model's layers reads. Raises like `step_cost`."""
    return step_cost(model, range(model.n_layer - model.n_layer_nextn), type_k, type_v)


def _groups(model: ModelFile) -> list[list[int]]:
    """Return the groups of layers with the same tensors and shapes, largest first; types and windows may differ.

    Layers with a window come first, then by size: evenly spaced picks are a fair sample.
    """
    alike: dict[object, list[LayerKind]] = {}
    for kind in layer_kinds(model):
        alike.setdefault(frozenset((name, shape) for name, shape, _ in kind.tensors), []).append(kind)
    found = []
    for kinds in alike.values():
        ordered = sorted(
            kinds, key=lambda kind: (kind.state.window is None, kind.active_bytes or 0, kind.layers)
        )
        found.append([layer for kind in ordered for layer in kind.layers])
    return sorted(found, key=lambda group: -len(group))


def _sample(groups: Sequence[Sequence[int]], n_layers: int) -> tuple[int, ...]:
    """Return layers from every group in proportion, in model order."""
    n_all = sum(len(group) for group in groups)
    counts = [max(1, round(n_layers * len(group) / n_all)) for group in groups]
    counts[0] = max(1, n_layers - sum(counts[1:]))
    chosen = []
    for group, count in zip(groups, counts, strict=True):
        taken = min(count, len(group))
        chosen += [group[int((number + 0.5) * len(group) / taken)] for number in range(taken)]
    return tuple(sorted(chosen))


class StepCost(Record):
    """The bytes that a step of a model or its twin reads, which decide its time."""

    n_layer: int
    layer_bytes: float
    """Weights of all layers for one token, without unused experts."""
    kv: KvCache = KvCache()

    def kv_bytes(self, n: float) -> float:
        """Return what is read of the caches at position n, without recurrent states."""
        return self.kv.read_bytes(n) - self.kv.state_bytes


class LayerPlacement(Record):
    layers: tuple[int, ...]
    """Layers of the model with this placement; empty if only the output has it."""
    setup: LlamaConfig
    """A setup that places all layers of a twin this way."""
    name: str = ""
    """E.g. `30 on the GPU`; empty for llama.cpp's default placement."""


def layer_placements(model: ModelFile, setup: LlamaConfig) -> tuple[LayerPlacement, ...]:
    """Return the placements of layers, those on the GPU first; a single one if the layers are not split.

    Raises Unsupported for a tensor override.
    """
    layers = tuple(range(model.n_layer - model.n_layer_nextn))
    split = Placement(model, setup, [ONE_GPU])
    if not split.n_gpu_layers or not split.is_split:
        return (LayerPlacement(layers, replace(setup, n_gpu_layers=-1 if split.n_gpu_layers else 0)),)
    if setup.override_tensor:
        raise Unsupported(
            "a forecast does not support --override-tensor", "place layers with -ngl, and experts with -ncmoe"
        )
    on_gpu, in_main_memory = layers[split.first_gpu_layer :], layers[: split.first_gpu_layer]
    n_kept = model.n_layer if setup.cpu_moe else setup.n_cpu_moe
    kept = tuple(layer for layer in on_gpu if model.n_expert and layer < n_kept)
    whole = on_gpu[len(kept) :]
    placed = replace(setup, n_gpu_layers=-1, cpu_moe=False, n_cpu_moe=0)
    experts = f"{len(kept)} on the GPU with their experts in main memory"
    found = (
        LayerPlacement(whole, placed, f"{len(whole)} on the GPU"),
        LayerPlacement(kept, replace(placed, cpu_moe=True), experts),
        LayerPlacement(in_main_memory, replace(placed, n_gpu_layers=0)),
    )
    return tuple(each for each in found if each.layers or (each is found[0] and not on_gpu))


def without_gpu(model: ModelFile, setup: LlamaConfig) -> LayerPlacement:
    """Return the placement of all layers if llama.cpp has no GPU."""
    layers = tuple(range(model.n_layer - model.n_layer_nextn))
    return LayerPlacement(layers, setup, "all in main memory, as llama.cpp uses no GPU here")
