"""Which part of a model llama.cpp puts on the GPU, for a number of layers asked for and one device.

Source: `load_tensors` and the tensors' classes in llama.cpp. The repeating layers are followed by one more for the
output; the last `n_gpu_layers` of all these are offloaded, and the input embedding never is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.theory.parameters import is_tied

_LAYER = re.compile(r"blk\.(\d+)\.")
_INPUT = ("token_embd", "position_embd", "token_types")
_PER_LAYER_TABLE = "per_layer_token_embd.weight"
_ROWS_READ_ON_CUDA = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
"""Types of which ggml's CUDA backend looks rows up; a table of another type stays on the CPU."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Where the layers of a model lie."""

    n_gpu_layers: int
    """As llama.cpp counts them, the output among them."""
    first_gpu_layer: int
    """Of the repeating layers; all from here on are on the device, none where it is their number."""
    output_on_device: bool
    device_weight_bytes: int
    host_weight_bytes: int

    @property
    def is_partial(self) -> bool:
        """Whether some of what can be offloaded stays behind."""
        return self.first_gpu_layer > 0

    def device_part(self, file: ModelFile) -> ModelFile:
        """The model with KV heads in the layers on the device alone, to count the cache there."""
        heads = (0 if layer < self.first_gpu_layer else n_head_kv for layer, n_head_kv in enumerate(file.n_head_kv))
        return replace(file, n_head_kv=tuple(heads))


def offload(file: ModelFile, n_gpu_layers: int) -> Offload:
    """The bytes of the weights on the device and on the host; a negative number of layers means all.

    A table that is both input and output lies on both, as llama.cpp loads it twice. Tensors of unknown type count
    nothing.
    """
    n_slots = file.n_layer + 1
    n_offloaded = n_slots if n_gpu_layers < 0 else min(n_gpu_layers, n_slots)
    first = n_slots - n_offloaded
    output_on_device = n_offloaded > 0
    on_device = {False: 0, True: 0}
    for tensor in file.tensors:
        on_device[_is_on_device(tensor, first, output_on_device)] += tensor.n_bytes or 0
    if output_on_device and is_tied(file):
        on_device[True] += sum(tensor.n_bytes or 0 for tensor in file.tensors if tensor.name == "token_embd.weight")
    return Offload(
        n_gpu_layers=n_offloaded,
        first_gpu_layer=min(first, file.n_layer),
        output_on_device=output_on_device,
        device_weight_bytes=on_device[True],
        host_weight_bytes=on_device[False],
    )


def _is_on_device(tensor: TensorInfo, first_gpu_layer: int, output_on_device: bool) -> bool:
    if match := _LAYER.match(tensor.name):
        return int(match[1]) >= first_gpu_layer
    if tensor.name.startswith(_INPUT):
        return False
    if tensor.name == _PER_LAYER_TABLE and tensor.type_name not in _ROWS_READ_ON_CUDA:
        return False
    return output_on_device
