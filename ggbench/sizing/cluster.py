"""Machines that compute together over llama.cpp's RPC: their devices, and each one's share of a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.rpc_client import RpcConnection, ServerUnusable
from ggbench.errors import NetworkError, Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.machine.gpus import visible_gpus
from ggbench.sizing.dry_allocator import DryContext
from ggbench.sizing.plan_record import DeviceMemory, PlannedDevice
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.offload import device_layers, is_on_device
from ggbench.sizing.theory.weights import is_tied
from ggbench.units import counted


class DeviceSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The timing of one device, measured with twins of a few layers on it alone."""

    device: str
    """llama.cpp's name of its buffers; `CPU` is this machine's main memory."""
    server: str = ""
    """`HOST:PORT` of its RPC server; empty for a device of this machine."""
    layer_ms: float
    """Time of an average layer, without its KV cache."""
    kv_ms: float
    """Time of an average layer's KV cache, per position."""
    output_ms: float
    """Time outside the layers if this is the last device: the output matrix and the round trip."""
    link_ms: float = 0.0
    """Round-trip time if another device computes the output; 0 for a device of this machine."""

    @property
    def machine(self) -> str:
        return self.server or "this machine"

    def layers_ms(self, n_layers: int, n: float) -> float:
        return n_layers * (self.layer_ms + self.kv_ms * (n - 1))


class ClusterSplit(msgspec.Struct, frozen=True, kw_only=True):
    """How many layers each device gets, and the expected speed."""

    n_layers: tuple[int, ...]
    """Layers of each device, without the output."""
    b_ms: float
    """Latency of the first token."""
    at_n_ctx_ms: float
    """Latency of a token when the context is full."""


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The best split of one quant over the devices, and the gain from each machine."""

    model: str
    quant: str
    n_ctx: int
    speeds: tuple[DeviceSpeed, ...]
    """Devices in llama.cpp's order, main memory last."""
    best: ClusterSplit | None
    """None if the model does not fit on all of them together."""
    without: tuple[tuple[str, ClusterSplit | None], ...] = ()
    """Best split without one machine, by that machine's name; None if the others are too small."""
    tensor_split: tuple[float, ...] = ()
    """Shares of the servers that the best split uses."""
    rpc_servers: tuple[str, ...] = ()
    """Servers that the best split uses."""
    n_gpu_layers: int = -1
    llama_server: str = ""
    """The command that runs it."""
    command: str = ""
    """The command that measures it."""


def device_memories(setup: LlamaConfig) -> tuple[DeviceMemory, ...]:
    """Return the devices of a setup with RPC servers and their free memory, in llama.cpp's order; else nothing.

    Raises NetworkError for an unusable server, and UsageError for more shares than devices.
    """
    if not setup.rpc_servers or not setup.n_gpu_layers:
        return ()
    found = []
    for server in setup.rpc_servers:
        try:
            with RpcConnection(server) as connection:
                devices = connection.devices()
        except ServerUnusable as error:
            raise NetworkError(str(error), f"see: ggbench cluster probe {server}") from None
        found += [DeviceMemory(f"RPC{each.number}[{server}]", server, each.free_bytes) for each in devices]
    for number, gpu in enumerate(visible_gpus()):
        free_bytes = gpu.free_bytes if gpu.free_bytes is not None else gpu.total_bytes
        found.append(DeviceMemory(f"CUDA{number}", "", free_bytes or 0))
    if len(setup.tensor_split) > len(found):
        shares, names = len(setup.tensor_split), ", ".join(device.device for device in found)
        raise UsageError(
            f"{shares} shares given for {counted(len(found), 'device')}", f"pass a share for each of {names}"
        )
    return tuple(found)


class DeviceSplit:
    """One model under one setup, split over one or more devices."""

    def __init__(self, file: ModelFile, setup: LlamaConfig, devices: Sequence[DeviceMemory]) -> None:
        self.devices = tuple(devices)
        self.layers = device_layers(file.n_layer, setup, devices)
        """Device of each layer, the output last; None is main memory."""
        self._file, self._setup = file, setup
        self.weight_bytes = self._weights()

    def planned(self, context: DryContext) -> tuple[PlannedDevice, ...]:
        caches, compute = self._caches(context), dict(context.device_compute)
        return tuple(
            PlannedDevice(
                device=device.device,
                server=device.server,
                n_layers=self.layers.count(index),
                weight_bytes=self.weight_bytes[index],
                kv_bytes=caches[index],
                compute_bytes=compute.get(device.device, 0),
                usable_bytes=device.usable_bytes,
            )
            for index, device in enumerate(self.devices)
        )

    def left_bytes(self, context: DryContext) -> int:
        """Return the least memory left on any device; negative if one lacks memory."""
        return min(device.left_bytes for device in self.planned(context))

    def _weights(self) -> tuple[int, ...]:
        held = [0] * len(self.devices)
        first = next((index for index, place in enumerate(self.layers) if place is not None), len(self.layers))
        output = self.layers[-1]
        for tensor in self._file.tensors:
            layer = layer_of(tensor.name)
            place = self.layers[layer] if layer is not None and layer < len(self.layers) else output
            if place is not None and is_on_device(tensor, first, output_on_device=True):
                held[place] += tensor.n_bytes or 0
        if output is not None and is_tied(self._file.tensors):
            embeddings = (each.n_bytes or 0 for each in self._file.tensors if each.name == "token_embd.weight")
            held[output] += sum(embeddings)
        return tuple(held)

    def _caches(self, context: DryContext) -> list[int]:
        """Return the cache on each device, its layers weighted by the theory."""
        held = [0.0] * len(self.devices)
        if not self._setup.kv_offload:
            return [0] * len(held)
        weights = self._layer_caches(context)
        total = sum(weights) or 1.0
        for place, weight in zip(self.layers, weights, strict=False):
            if place is not None:
                held[place] += context.cache_bytes * weight / total
        return [round(each) for each in held]

    def _layer_caches(self, context: DryContext) -> list[float]:
        n_layer = self._file.n_layer
        try:
            caches = [
                kv_cache(self._file, self._setup.type_k, self._setup.type_v, first) for first in range(n_layer + 1)
            ]
        except Unsupported:
            return [1.0] * n_layer
        cells = [replace(each, window=context.swa_cells or each.window) for each in caches]
        behind = [float(each.cached_bytes(context.n_ctx)) for each in cells]
        return [here - after for here, after in pairwise(behind)]
