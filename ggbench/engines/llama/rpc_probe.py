"""What an RPC server offers, and what the way to it takes, through the protocol that a model would use."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ggbench.engines.llama.rpc_client import (
    ANSWER_TIMEOUT_S,
    PROTOCOL_MAJOR,
    RemoteBuffer,
    RemoteDevice,
    RpcConnection,
    ServerUnusable,
)
from ggbench.units import MIB

_ROUND_TRIPS = 100
_TRANSFERS = 20
_LARGEST_BYTES = 16 * MIB
_SMALLEST_BYTES = 64 << 10
_TRANSFER_S = 0.05
"""A transfer of about this long is large beside a round trip and short for a person."""
_LIMIT_S = 2.0
"""Of each of the three measurements, once two were taken."""


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


def probe_server(server: str, timeout_s: float = ANSWER_TIMEOUT_S) -> ServerProbe:
    """Ask one server what it is, and measure the way to it; one that cannot be used is a result with its reason."""
    protocol = None
    try:
        with RpcConnection(server, timeout_s) as connection:
            protocol = connection.protocol
            if protocol[0] != PROTOCOL_MAJOR:
                raise ServerUnusable(
                    server,
                    f"speaks version {connection.version} of the protocol, this ggbench version {PROTOCOL_MAJOR}; "
                    "run the same llama.cpp on both machines",
                )
            devices = connection.devices()
            if not devices:
                raise ServerUnusable(server, "has no devices")
            return ServerProbe(server=server, protocol=protocol, devices=devices, link=measure_link(connection))
    except ServerUnusable as error:
        return ServerProbe(server=server, reason=error.what, protocol=protocol)


def measure_link(connection: RpcConnection) -> Link:
    """Time short requests, then transfers of zeros in both directions. Raises ServerUnusable."""
    connection.round_trip()
    round_trips = _timed(connection.round_trip, _ROUND_TRIPS)
    round_trip = Percentiles(_quantile(round_trips, 0.5), _quantile(round_trips, 0.95))
    with connection.buffer(_LARGEST_BYTES) as buffer:
        if buffer is None:
            return Link(round_trip_ns=round_trip)
        return Link(
            round_trip_ns=round_trip,
            up_bytes_per_s=_rate(buffer, buffer.upload, round_trip.p50),
            down_bytes_per_s=_rate(buffer, buffer.download, round_trip.p50),
        )


def _rate(buffer: RemoteBuffer, transfer: Callable[[int], int], round_trip_ns: float) -> Percentiles:
    """Bytes per second of transfers large enough to last a while, the round trip that each includes taken off."""
    n_bytes = _SMALLEST_BYTES
    while transfer(n_bytes) < _TRANSFER_S * 1e9 and n_bytes < buffer.n_bytes:
        n_bytes = min(4 * n_bytes, buffer.n_bytes)
    elapsed = _timed(lambda: transfer(n_bytes), _TRANSFERS)
    seconds = [max(ns - round_trip_ns, 0.1 * ns) / 1e9 for ns in elapsed]
    return Percentiles(n_bytes / _quantile(seconds, 0.5), n_bytes / _quantile(seconds, 0.95))


def _timed(measure: Callable[[], int], n_times: int) -> list[int]:
    ends_at = time.monotonic() + _LIMIT_S
    taken: list[int] = []
    while len(taken) < n_times and (len(taken) < 2 or time.monotonic() < ends_at):
        taken.append(measure())
    return taken


def _quantile(values: list[int] | list[float], share: float) -> float:
    """The smallest value that at least that share of all does not exceed."""
    return float(sorted(values)[min(len(values) - 1, max(0, -(-round(share * 100) * len(values) // 100) - 1))])
