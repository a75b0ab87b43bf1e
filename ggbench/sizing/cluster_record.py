"""Machines that compute together by llama.cpp's RPC: their addresses, and what one of them offers over its link."""

from __future__ import annotations

import re

import msgspec

from ggbench.errors import UsageError

DEFAULT_PORT = 50052
"""Of llama.cpp's rpc-server."""
MAX_SERVERS = 16
"""GGML_RPC_MAX_SERVERS of ggml-rpc.h."""

_SERVER = re.compile(r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)(?::(?P<port>\d{1,5}))?")


def parse_server(text: str) -> str:
    """Return `HOST:PORT` as llama.cpp reads it; without a port it is llama.cpp's own. Raises UsageError."""
    match = _SERVER.fullmatch(text.strip())
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        hint = "write HOST:PORT, e.g. 192.168.1.7:50052; llama.cpp's RPC takes names and IPv4 addresses"
        raise UsageError(f"{text.strip()!r} is not the address of an RPC server", hint)
    return f"{match['host'].lower()}:{port}"


def parse_servers(text: str) -> tuple[str, ...]:
    """Parse `HOST:PORT` separated by commas, in the order given. Raises UsageError."""
    servers = tuple(parse_server(part) for part in text.split(","))
    twice = next((server for server in servers if servers.count(server) > 1), None)
    if twice is not None:
        raise UsageError(f"the RPC server {twice} is named twice", "name each once; it may have several devices")
    if len(servers) > MAX_SERVERS:
        raise UsageError(f"{len(servers)} RPC servers, and llama.cpp takes {MAX_SERVERS}", "leave the slowest out")
    return servers


class RemoteDevice(msgspec.Struct, frozen=True):
    """One device of an RPC server, as it reports it."""

    number: int
    """Of this server's, from 0 on."""
    free_bytes: int
    total_bytes: int


class Percentiles(msgspec.Struct, frozen=True):
    """Two of what was measured several times."""

    p50: float
    p95: float


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What the way to an RPC server takes, measured with the protocol's own messages."""

    round_trip_ns: Percentiles
    """Of the shortest request and its answer."""
    up_bytes_per_s: Percentiles | None = None
    """To the server; p95 is the rate that 95 % of the transfers exceed. None where it allocated no memory for it."""
    down_bytes_per_s: Percentiles | None = None
    """From the server, as `up_bytes_per_s`."""


class ServerProbe(msgspec.Struct, frozen=True, kw_only=True):
    """One server that was asked what it is."""

    server: str
    """`HOST:PORT`."""
    reason: str = ""
    """Why it cannot be used, as `refuses connections`; empty where it can."""
    protocol: tuple[int, int, int] | None = None
    """Version of the RPC protocol; None where it did not say."""
    devices: tuple[RemoteDevice, ...] = ()
    link: Link | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it answered, in a protocol that ggbench knows."""
        return not self.reason


class DeviceSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """What one device takes of a step, measured with twins of a few layers that lay on it alone."""

    device: str
    """llama.cpp's name of its buffers; `CPU` is this machine's main memory."""
    server: str = ""
    """`HOST:PORT` of its RPC server; empty for a device of this machine."""
    layer_ms: float
    """Of an average layer, without its KV cache."""
    kv_ms: float
    """Of an average layer's KV cache, for each position."""
    output_ms: float
    """Of what is not in the layers, where it is the last device: the output matrix, and the way to it and back."""
    link_ms: float = 0.0
    """Of the way to it and back where another device has the output; 0 for a device of this machine."""

    @property
    def machine(self) -> str:
        """For people."""
        return self.server or "this machine"

    def layers_ms(self, n_layers: int, n: float) -> float:
        """Of that many layers at position n."""
        return n_layers * (self.layer_ms + self.kv_ms * (n - 1))


class ClusterSplit(msgspec.Struct, frozen=True, kw_only=True):
    """How many layers each device gets, and the speed that is expected of it."""

    n_layers: tuple[int, ...]
    """By device, the output not counted."""
    b_ms: float
    """Of the first token."""
    at_n_ctx_ms: float
    """Of a token with the context filled."""


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The best split of one quant over the devices, and what each machine is worth."""

    model: str
    quant: str
    n_ctx: int
    speeds: tuple[DeviceSpeed, ...]
    """In llama.cpp's order, main memory last."""
    best: ClusterSplit | None
    """None where the model fits on all of them together in no way."""
    without: tuple[tuple[str, ClusterSplit | None], ...] = ()
    """The best split without each machine, by its name; None where the rest is too small."""
    tensor_split: tuple[float, ...] = ()
    """Of the best split, for the servers that it uses."""
    rpc_servers: tuple[str, ...] = ()
    """Those that the best split uses."""
    n_gpu_layers: int = -1
    llama_server: str = ""
    """The line that runs it."""
    command: str = ""
    """The line that measures it."""
