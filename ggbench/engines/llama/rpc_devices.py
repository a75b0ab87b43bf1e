"""llama.cpp's RPC backend through ggml's registry: devices of other machines, and the server that exposes this one's.

Source: ggml-rpc.h and `add_rpc_devices` in llama.cpp's common/arg.cpp.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from ggbench.engines.llama.ggml_devices import GgmlDevices

BUILD_HINT = 'build llama.cpp with RPC: CMAKE_ARGS="-DGGML_RPC=on" ./scripts/setup'


class NoRpc(Exception):
    """llama.cpp was built without RPC."""


def is_built_with_rpc() -> bool:
    """Return whether the llama.cpp here has the RPC backend, without loading it."""
    package = importlib.util.find_spec("llama_cpp")
    return bool(package and package.origin and any((Path(package.origin).parent / "lib").glob("libggml-rpc*")))


def add_servers(ggml: ctypes.CDLL, servers: Sequence[str]) -> None:
    """Register the devices of servers, in their order. llama.cpp aborts the process where one does not answer.

    Raises NoRpc.
    """
    if not servers:
        return
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
    add_server = prototype(_address(ggml, b"ggml_backend_rpc_add_server"))
    ggml.ggml_backend_register.argtypes, ggml.ggml_backend_register.restype = [ctypes.c_void_p], None
    for server in servers:
        ggml.ggml_backend_register(add_server(server.encode()))


def start_server(devices: GgmlDevices, handles: Sequence[int], server: str, n_threads: int) -> None:
    """Expose devices at `HOST:PORT`, an IPv4 address; returns only where it cannot listen there. Raises NoRpc."""
    size = ctypes.c_size_t
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, size, size, ctypes.POINTER(ctypes.c_void_p))
    start = prototype(_address(devices.ggml, b"ggml_backend_rpc_start_server"))
    start(server.encode(), None, n_threads, len(handles), (ctypes.c_void_p * len(handles))(*handles))


def _address(ggml: ctypes.CDLL, function: bytes) -> int:
    by_name, of_registry = ggml.ggml_backend_reg_by_name, ggml.ggml_backend_reg_get_proc_address
    by_name.argtypes, by_name.restype = [ctypes.c_char_p], ctypes.c_void_p
    of_registry.argtypes, of_registry.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
    registry = by_name(b"RPC")
    address: int | None = of_registry(registry, function) if registry else None
    if not address:
        raise NoRpc
    return address
