"""Where a forecast's model lies: which of its layers on the GPU, which in main memory, and how a twin is loaded alike.

A twin of a few layers is timed once with all of them placed in each way; how many layers of the model are placed so
says what they cost together.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.sizing.theory.offload import offload
from ggbench.units import counted


class LayerPlacement(msgspec.Struct, frozen=True):
    """Layers that are placed alike."""

    layers: tuple[int, ...]
    """Of the model; none where only the output is placed so."""
    setup: LlamaConfig
    """That places all layers of a twin so."""
    name: str = ""
    """For people: `30 on the GPU`; empty where all layers are placed as llama.cpp does by itself."""


def layer_placements(model: ModelFile, setup: LlamaConfig) -> tuple[LayerPlacement, ...]:
    """Return the ways in which layers are placed, those on the GPU first; one of all layers where they are not split.

    Raises Unsupported for tensors that an override puts anywhere but into main memory.
    """
    layers = tuple(range(model.n_layer - model.n_layer_nextn))
    split = offload(model, setup.n_gpu_layers, setup.tensor_overrides)
    if not split.n_gpu_layers or not split.is_partial:
        return (LayerPlacement(layers, replace(setup, n_gpu_layers=-1 if split.n_gpu_layers else 0)),)
    outside, kept = _kept(model, setup)
    ways: dict[frozenset[str], list[int]] = {frozenset(): []}
    for layer in layers[split.first_gpu_layer :]:
        ways.setdefault(frozenset(kept.get(layer, ())), []).append(layer)
    found = []
    for names, alike in ways.items():
        overrides = (*outside, *([rf"\.({'|'.join(map(_pattern, sorted(names)))})$=CPU"] if names else []))
        placed = replace(setup, n_gpu_layers=-1, cpu_moe=False, n_cpu_moe=0, override_tensor=overrides)
        if alike or len(ways) == 1:
            found.append(LayerPlacement(tuple(alike), placed, _name(names, len(alike))))
    in_main_memory = layers[: split.first_gpu_layer]
    if in_main_memory:
        placed = replace(setup, n_gpu_layers=0, cpu_moe=False, n_cpu_moe=0, override_tensor=())
        found.append(LayerPlacement(in_main_memory, placed))
    return tuple(found)


def without_gpu(model: ModelFile, setup: LlamaConfig) -> LayerPlacement:
    """Return where all layers are if llama.cpp has no GPU."""
    layers = tuple(range(model.n_layer - model.n_layer_nextn))
    return LayerPlacement(layers, setup, "all in main memory, as llama.cpp uses no GPU here")


def _kept(model: ModelFile, setup: LlamaConfig) -> tuple[list[str], dict[int, list[str]]]:
    """Overrides of tensors outside the layers, and the names of those that each layer keeps in main memory."""
    outside, kept = [], dict[int, list[str]]()
    for tensor in model.tensors:
        device = next((device for pattern, device in setup.tensor_overrides if re.search(pattern, tensor.name)), "CPU")
        if not device.startswith("CPU"):
            raise Unsupported(
                f"an override puts {tensor.name} into {device}, which a forecast does not measure",
                "omit --override-tensor, or override into CPU alone",
            )
        if not any(re.search(pattern, tensor.name) for pattern, _ in setup.tensor_overrides):
            continue
        layer = layer_of(tensor.name)
        if layer is None:
            outside.append(f"^{_pattern(tensor.name)}$=CPU")
        else:
            kept.setdefault(layer, []).append(tensor.name.split(".", 2)[2])
    return outside, kept


def _pattern(name: str) -> str:
    """A regular expression, of llama.cpp's grammar too, that only this name matches."""
    return name.replace(".", r"\.")


def _name(kept: frozenset[str], n_layers: int) -> str:
    if not kept:
        return f"{n_layers} on the GPU"
    what = "their experts" if all("_exps" in name for name in kept) else counted(len(kept), "tensor") + " each"
    return f"{n_layers} on the GPU with {what} in main memory"
