"""Time of the network apart from the model: requests that compute nothing."""

from __future__ import annotations

from ggbench.engines.server.client import Client
from ggbench.engines.server.contract import NetworkTimes

_REQUESTS = 20


def measure_network(client: Client, path: str) -> NetworkTimes:
    """Time opening a connection and 20 empty requests over it. Raises NetworkError and ServerFailed.

    A server that closes the connection after each response makes every request open one; their time is not counted
    in `empty_request_ns`.
    """
    connect_ns: list[int] = []
    empty_ns: list[int] = []
    with client.fresh() as fresh:
        for _ in range(_REQUESTS):
            first_byte_ns, opening_ns = fresh.time_empty(path)
            empty_ns.append(first_byte_ns)
            if opening_ns is not None:
                connect_ns.append(opening_ns)
    return NetworkTimes(min(connect_ns), tuple(empty_ns))
