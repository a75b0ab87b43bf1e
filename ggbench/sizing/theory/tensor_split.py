"""Divide a model's tensors over devices as `-sm tensor` does: whole groups of heads, and whole blocks of a row.

Boundaries are rounded down, beginning with another device in each layer, so that equal shares even out and unequal ones
do not. Source: `llama_meta_device_get_split_state` in llama-model.cpp of llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ggbench.gguf_file.ggml_types import known_types
from ggbench.gguf_file.model_file import ModelFile, TensorInfo, layer_of

_LAYER = r"blk\.\d+\."
_SPLIT = re.compile(
    rf"output\.(weight|bias)|{_LAYER}(attn_(q|k|v|qkv)\.(weight|bias)|attn_(output|gate|sinks)\.weight"
    r"|ssm_(a|dt\.bias|(alpha|beta|ba|conv1d|out)\.weight)|ffn_(up|gate|gate_up|down)(_exps)?\.weight"
    r"|ffn_(up|gate)(_exps)?\.bias)"
)
_SPLIT_DEEPSEEK4 = re.compile(
    rf"{_LAYER}(attn_(sinks|q_b|output_a|output_b)|ffn_(up|gate|down)(_shexp|_exps)?)\.weight"
)
"""Tensors that are split; each device has a copy of all others."""
_COPIES_CACHE = "deepseek4"
"""The architecture whose cache each device copies."""
_FAST_BLOCK = 128
"""Elements of which a device has a multiple, for speed."""

_WHOLE = 1 << 20, 1
"""Elements and step of what is not known to be rounded."""

Shares = dict[int, float]
"""The share of each device; 1 of each for a copy."""


class TensorSplit:
    """How devices with these shares divide a model."""

    def __init__(self, file: ModelFile, shares: Sequence[float]) -> None:
        self._file, self._shares = file, shares
        self._copies = dict.fromkeys(range(len(shares)), 1.0)
        self._named = {tensor.name: tensor for tensor in file.tensors}
        kinds = [(state.recurrent_elements > 0, state.window is not None) for state in file.states]
        self._rotations = {layer: kinds[:layer].count(kind) for layer, kind in enumerate(kinds)}

    def of_tensor(self, tensor: TensorInfo) -> Shares:
        names = _SPLIT_DEEPSEEK4 if self._file.architecture == _COPIES_CACHE else _SPLIT
        if not names.fullmatch(tensor.name):
            return self._copies
        layer = layer_of(tensor.name)
        if layer is None:
            return self._divided(tensor.shape[-1], 1, self._file.n_layer)
        parts = self._rows(layer) if ".ffn_" in tensor.name else self._heads(layer)
        return self._divided(*parts, self._rotations.get(layer, 0))

    def of_cache(self, layer: int) -> Shares:
        """Return the shares of a layer's cache, which go by heads."""
        if self._file.architecture == _COPIES_CACHE:
            return self._copies
        return self._divided(*self._heads(layer), self._rotations.get(layer, 0))

    def _divided(self, n: int, step: int, rotation: int) -> Shares:
        """Return the shares of a row of n elements whose parts are multiples of a step."""
        order = [(number + rotation) % len(self._shares) for number in range(len(self._shares))]
        bounds = accumulate(self._shares[device] for device in order)
        ends = [0, *(int(n * bound / sum(self._shares)) // step * step for bound in bounds)]
        ends[-1] = n
        return {device: (high - low) / n for device, (low, high) in zip(order, pairwise(ends), strict=True)}

    def _rows(self, layer: int) -> tuple[int, int]:
        """Return the length of a row of a feed-forward's last tensor, and what its parts are multiples of."""
        down = self._first_of(layer, "ffn_down", "ffn_down_exps", "ffn_down_shexp")
        return down.shape[0], math.lcm(_block(down), _FAST_BLOCK)

    def _heads(self, layer: int) -> tuple[int, int]:
        """Return the elements of all heads of a layer, and of the least group of them that a device has whole."""
        file = self._file
        block, width = 1, file.head_dim_k
        if file.tensors:  # the context of MTP layers has none
            block = _block(self._first_of(layer, "attn_output", "ssm_out", "attn_output_a"))
        if f"blk.{layer}.ssm_out.weight" in self._named:
            keys = (f"{file.architecture}.ssm.{key}" for key in ("state_size", "group_count"))
            width, n_groups = (int(str(file.metadata.get(key, 1))) for key in keys)
            return width * n_groups, math.lcm(block, _FAST_BLOCK, width)
        if not (file.n_head_kv[layer] and width):
            return _WHOLE
        group = file.n_head[layer] // file.n_head_kv[layer] * width
        while block < _FAST_BLOCK and block * len(self._shares) < group:
            block *= 2
        return file.n_head[layer] * width, math.lcm(group, block)

    def _first_of(self, layer: int, *names: str) -> TensorInfo:
        found = (self._named.get(f"blk.{layer}.{name}.weight") for name in names)
        return next((tensor for tensor in found if tensor is not None), self._file.tensors[0])


def _block(tensor: TensorInfo) -> int:
    return next((each.block_len for each in known_types().values() if each.name == tensor.type_name), 1)
