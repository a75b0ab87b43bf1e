"""Divide a model's tensors over devices as `-sm tensor` does: whole groups of heads, and whole blocks of a row.

Boundaries are rounded down, beginning with another device in each layer, so that equal shares even out and unequal ones
do not. Source: `llama_meta_device_get_split_state` in llama-model.cpp of llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from ggbench.errors import UnknownName
from ggbench.gguf_file.ggml_types import type_by_name
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

Shares = dict[int, float]
"""The share of each device; 1 of each for a copy."""


class TensorSplit:
    """How devices with these shares divide a model."""

    def __init__(self, file: ModelFile, shares: Sequence[float]) -> None:
        self._file, self._shares = file, shares
        self._copies = dict.fromkeys(range(len(shares)), 1.0)
        self._named = {tensor.name: tensor for tensor in file.tensors}
        self._rotations: list[int] = []
        seen: Counter[tuple[bool, bool]] = Counter()
        for state in file.states:
            kind = state.recurrent_elements > 0, state.window is not None
            self._rotations.append(seen[kind])
            seen[kind] += 1

    def of_tensor(self, tensor: TensorInfo) -> Shares:
        copies_cache = self._file.architecture == _COPIES_CACHE
        if not (_SPLIT_DEEPSEEK4 if copies_cache else _SPLIT).fullmatch(tensor.name):
            return self._copies
        layer = layer_of(tensor.name)
        if layer is None or layer >= len(self._rotations):
            return self._divided(tensor.shape[-1], 1, self._file.n_layer)
        if ".ffn_" in tensor.name:
            return self._divided(*self._rows(layer), self._rotations[layer])
        return self._divided(*self._heads(layer), self._rotations[layer])

    def of_cache(self, layer: int) -> Shares:
        """Return the shares of a layer's cache, which go by heads."""
        if self._file.architecture == _COPIES_CACHE:
            return self._copies
        return self._divided(*self._heads(layer), self._rotations[layer])

    def _divided(self, n: int, step: int, rotation: int) -> Shares:
        """Return the shares of a row of n elements whose parts are multiples of a step."""
        count, total, low = len(self._shares), sum(self._shares), 0
        order = [(number + rotation) % count for number in range(count)]
        found = {}
        for device, upto in zip(order, accumulate(self._shares[each] for each in order), strict=True):
            high = n if device == order[-1] else int(n * upto / total) // step * step
            found[device] = (high - low) / n
            low = high
        return found

    def _rows(self, layer: int) -> tuple[int, int]:
        """Return the length of a row of a feed-forward's last tensor, and what its parts are multiples of."""
        down = self._of_layer(layer, "ffn_down", "ffn_down_exps", "ffn_down_shexp")
        return (1, 1) if down is None else (down.shape[0], math.lcm(_block(down), _FAST_BLOCK))

    def _heads(self, layer: int) -> tuple[int, int]:
        """Return the elements of all heads of a layer, and of the least group of them that a device has whole."""
        file, output = self._file, self._of_layer(layer, "attn_output", "ssm_out", "attn_output_a")
        block = 1 if output is None else _block(output)
        if file.states[layer].recurrent_elements:
            width, n_groups = (
                file.metadata.get(f"{file.architecture}.ssm.{key}") for key in ("state_size", "group_count")
            )
            if isinstance(width, int) and isinstance(n_groups, int):
                return width * n_groups, math.lcm(block, _FAST_BLOCK, width)
        n_head, n_head_kv, width = file.n_head[layer], file.n_head_kv[layer], file.states[layer].head_dim_k
        if not (n_head and n_head_kv and width):
            return 1 << 20, 1
        group = n_head // n_head_kv * width
        while block < _FAST_BLOCK and block * len(self._shares) < group:
            block *= 2
        return n_head * width, math.lcm(group, block)

    def _of_layer(self, layer: int, *names: str) -> TensorInfo | None:
        found = (self._named.get(f"blk.{layer}.{name}.weight") for name in names)
        return next((tensor for tensor in found if tensor is not None), None)


def _block(tensor: TensorInfo) -> int:
    try:
        return type_by_name(tensor.type_name).block_len
    except UnknownName:
        return 1
