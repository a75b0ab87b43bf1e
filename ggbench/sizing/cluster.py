"""Machines that compute together by llama.cpp's RPC: their devices, and the best split of a model over them."""

from __future__ import annotations

import msgspec

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.rpc_client import RpcConnection, ServerUnusable
from ggbench.errors import NetworkError, UsageError
from ggbench.machine.gpus import visible_gpus
from ggbench.sizing.plan_record import DeviceMemory
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
