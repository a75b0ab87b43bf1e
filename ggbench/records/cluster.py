"""Machines that compute together by llama.cpp's RPC: their addresses, and what one of them offers over its link."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """One device of an RPC server, as it reports it."""

    number: int
    """Of this server's, from 0 on."""
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Two of what was measured several times."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What the way to an RPC server takes, measured with the protocol's own messages."""

    round_trip_ns: Percentiles
    """Of the shortest request and its answer."""
    up_bytes_per_s: Percentiles | None = None
    """To the server; p95 is the rate that 95 % of the transfers exceed. None where it lent no memory for it."""
    down_bytes_per_s: Percentiles | None = None
    """From the server, as `up_bytes_per_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbe:
    """One server that was asked what it is."""

    server: str
    """`HOST:PORT`."""
    reason: str = ""
    """Why it cannot be used, in one line; empty where it can."""
    protocol: tuple[int, int, int] | None = None
    """Version of the RPC protocol; None where it did not say."""
    devices: tuple[RemoteDevice, ...] = ()
    link: Link | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it answered, in a protocol that ggbench knows."""
        return not self.reason
