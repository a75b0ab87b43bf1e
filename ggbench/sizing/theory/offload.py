"""Find which tensors llama.cpp puts on the GPU for `n_gpu_layers`, and which layers on each of several devices.

Source: `load_tensors` and the tensor classes in llama.cpp. The output counts as one more layer after the repeating
ones; the last `n_gpu_layers` of them are offloaded, and the input embedding never is.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.gguf_file.model_file import ModelFile, TensorInfo, layer_of
from ggbench.sizing.plan_record import DeviceMemory

_INPUT = ("token_embd.", "position_embd.", "token_types.")
_PER_LAYER_TABLE = "per_layer_token_embd.weight"
_ROWS_READ_ON_CUDA = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
"""Types for which ggml's CUDA backend implements GET_ROWS; tables of other types stay on the CPU."""


HOST = -1
"""The place of what lies in main memory; the others are numbers of devices."""


def overriding_buffers(file: ModelFile, overrides: tuple[tuple[str, str], ...]) -> list[str | None]:
    """Return the buffer type that the first matching override gives each tensor; None without one."""
    compiled = [(re.compile(pattern), buffer) for pattern, buffer in overrides]
    return [
        next((buffer for pattern, buffer in compiled if pattern.search(tensor.name)), None)
        for tensor in file.tensors
    ]


def split_shares(setup: LlamaConfig, devices: Sequence[DeviceMemory]) -> list[float]:
    """Return the given share of each device, else its free memory, or equal ones with `-sm tensor`."""
    if len(devices) < 2:
        return [1.0]
    given = [*setup.tensor_split, *[0.0] * (len(devices) - len(setup.tensor_split))]
    if any(given):
        return given
    return [1.0 if setup.split_mode == "tensor" else float(device.free_bytes) for device in devices]


def are_parallel(setup: LlamaConfig, devices: Sequence[DeviceMemory]) -> bool:
    """Return whether all devices compute a part of each layer at once, instead of whole layers in turn."""
    return len(devices) > 1 and setup.split_mode == "tensor"


def device_layers(n_layer: int, setup: LlamaConfig, devices: Sequence[DeviceMemory]) -> tuple[int, ...]:
    """Return the device of each layer by its index, the output's as the last; HOST is main memory.

    Shares are `tensor_split` or the free memory of each device, in 32-bit floats; offloaded layer i is on the first
    device whose cumulative share exceeds i / their number. With `-sm tensor` all devices together are device 0.
    """
    shares = [1.0] if setup.split_mode == "tensor" else split_shares(setup, devices)
    n_slots = n_layer + 1
    n_offloaded = n_slots if setup.n_gpu_layers < 0 else min(setup.n_gpu_layers, n_slots)
    sums = list(accumulate((_float32(share) for share in shares), lambda total, share: _float32(total + share)))
    bounds = [_float32(each / sums[-1]) for each in sums]
    places = [bisect_right(bounds, _float32(index / n_offloaded)) for index in range(n_offloaded)]
    return (*[HOST] * (n_slots - n_offloaded), *(min(place, len(bounds) - 1) for place in places))


def _float32(value: float) -> float:
    return float(ctypes.c_float(value).value)


def check_overrides(file: ModelFile, setup: LlamaConfig) -> None:
    """Raise UsageError for a tensor override that matches no tensor of the file: llama.cpp would ignore it silently."""
    names = [tensor.name for tensor in file.tensors]
    for override in setup.override_tensor:
        pattern = override.rpartition("=")[0]
        if not any(re.search(pattern, name) for name in names):
            raise UsageError(
                f"no tensor of {file.name} matches --override-tensor {override!r}",
                "ggbench inspect FILE --why lists their names",
            )
    of_experts = setup.tensor_overrides[len(setup.override_tensor) :]
    if of_experts and not any(re.search(pattern, name) for pattern, _ in of_experts for name in names):
        option = "--cpu-moe" if setup.cpu_moe else "--n-cpu-moe"
        raise UsageError(
            f"{file.name} has no expert tensors for {option} to keep in main memory", f"omit {option}"
        )


def is_on_device(tensor: TensorInfo, first_gpu_layer: int, *, output_on_device: bool) -> bool:
    """Return whether llama.cpp offloads a tensor if the layers from `first_gpu_layer` on are offloaded."""
    layer = layer_of(tensor.name)
    if layer is not None:
        return layer >= first_gpu_layer
    if tensor.name.startswith(_INPUT):
        return False
    if tensor.name == _PER_LAYER_TABLE and tensor.type_name not in _ROWS_READ_ON_CUDA:
        return False
    return output_on_device
