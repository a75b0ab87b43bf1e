"""What an RPC server offers, and what the way to it takes, through the protocol that a model would use."""

from __future__ import annotations

import time
from collections.abc import Callable

from ggbench.engines.llama.rpc_client import (
    ANSWER_TIMEOUT_S,
    PROTOCOL_MAJOR,
    RemoteBuffer,
    RpcConnection,
    ServerUnusable,
)
from ggbench.sizing.cluster import Link, Percentiles, ServerProbe
from ggbench.units import MIB

_ROUND_TRIPS = 100
_TRANSFERS = 20
_LARGEST_BYTES = 16 * MIB
_SMALLEST_BYTES = 64 << 10
_TRANSFER_S = 0.05
"""A transfer of about this long is large beside a round trip and short for a person."""
_LIMIT_S = 2.0
"""Of each of the three measurements, once two were taken."""


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
