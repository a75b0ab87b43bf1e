"""ggbench beside llama-bench on the same RPC servers, which this starts once and which end with it."""

from __future__ import annotations

import atexit
import functools

from ggbench.engines.llama.rpc_server import RpcServerProcess, ServeRequest
from ggbench.units import GIB
from tests.fakes.rpc_server import free_port

_SERVERS, _MEMORY_BYTES = 2, GIB


@functools.cache
def rpc_servers() -> str:
    """Return the addresses of two servers with one thread each, as `--rpc` takes them in ggbench and llama-bench."""
    addresses = []
    for _ in range(_SERVERS):
        request = ServeRequest(host="127.0.0.1", port=free_port(), threads=1, memory_bytes=_MEMORY_BYTES)
        server = RpcServerProcess(request)
        atexit.register(server.close)
        addresses.append(server.wait_until_ready().server)
    return ",".join(addresses)
