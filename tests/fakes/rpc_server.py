"""RPC servers: llama.cpp's own in a process that exposes some main memory, and ports that are none."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ggbench.engines.llama.build import has_backend
from ggbench.units import MIB

with_rpc = pytest.mark.skipif(
    not has_backend("rpc"), reason='llama.cpp was built without RPC: CMAKE_ARGS="-DGGML_RPC=on" ./scripts/setup'
)
FOREIGN_VERSION = (28).to_bytes(8, "little") + bytes((9, 1, 0)) + bytes(25)
"""The answer of a server of another version of the protocol to the first message."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class RpcServer:
    address: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def serving(memory_bytes: int = 256 * MIB, port: int = 0) -> Iterator[RpcServer]:
    """Yield a server that exposes this much of main memory; its process ends after."""
    address = f"127.0.0.1:{port or free_port()}"
    with subprocess.Popen(
        [sys.executable, "-P", __file__, address, str(memory_bytes)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            while not _accepts(address):
                assert process.poll() is None, f"no RPC server at {address}"
                time.sleep(0.02)
            yield RpcServer(address, process)
        finally:
            process.kill()


@contextlib.contextmanager
def listening(answer: bytes = b"") -> Iterator[str]:
    """Yield an address that accepts connections and sends each these bytes; without any it stays silent."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        if answer:
            threading.Thread(target=_answer, args=(server, answer), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """Yield an address on which nobody listens, and that nobody else can take meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


def _answer(server: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.recv(1 << 16)
                client.sendall(data)
                client.recv(1 << 16)


_GET_MEMORY, _ALLOC_BUFFER, _FREE_BUFFER = 2, 1, 0
"""Indices in the three tables."""
_size = ctypes.c_size_t
_GetMemory = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_size), ctypes.POINTER(_size))
_AllocBuffer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, _size)
_FreeBuffer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ExposedMemory:
    """Exposes at most `limit_bytes` of one device, by functions in its tables: `ggml_backend_device_i`,
    `ggml_backend_buffer_type_i` and `ggml_backend_buffer_i` in ggml-backend-impl.h, version 2.
    """

    def __init__(self, devices: Any, device: int, limit_bytes: int) -> None:  # noqa: ANN401 - imported later
        self._limit = limit_bytes
        self._taken: dict[int, int] = {}
        memory, allocation = _table(device), _table(devices.ggml.ggml_backend_dev_buffer_type(device))
        self._get_memory = _GetMemory(memory[_GET_MEMORY])
        self._alloc_buffer = _AllocBuffer(allocation[_ALLOC_BUFFER])
        self._free_buffers: dict[int, Any] = {}
        self._callbacks = _GetMemory(self._report), _AllocBuffer(self._allocate), _FreeBuffer(self._free)
        memory[_GET_MEMORY] = _pointer(self._callbacks[0])
        allocation[_ALLOC_BUFFER] = _pointer(self._callbacks[1])

    @property
    def free_bytes(self) -> int:
        return max(0, self._limit - sum(self._taken.values()))

    def _report(self, device: int, free: Any, total: Any) -> None:  # noqa: ANN401 - pointers to size_t
        self._get_memory(device, free, total)
        free[0] = min(free[0], self.free_bytes)
        total[0] = min(total[0], self._limit)

    def _allocate(self, buffer_type: int, n_bytes: int) -> int | None:
        if n_bytes > self.free_bytes:
            return None
        buffer: int | None = self._alloc_buffer(buffer_type, n_bytes)
        if buffer:
            self._taken[buffer] = n_bytes
            table = _table(buffer)
            self._free_buffers[buffer] = _FreeBuffer(table[_FREE_BUFFER])
            table[_FREE_BUFFER] = _pointer(self._callbacks[2])
        return buffer

    def _free(self, buffer: int) -> None:
        self._taken.pop(buffer, None)
        self._free_buffers.pop(buffer)(buffer)


def _table(address: int) -> Any:  # noqa: ANN401 - a pointer to function pointers
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))


def _pointer(callback: Any) -> int | None:  # noqa: ANN401 - a function of ctypes
    return ctypes.cast(callback, ctypes.c_void_p).value


def _serve(address: str, memory_bytes: int) -> None:
    """Serve until killed."""
    from ggbench.engines.llama.c_functions import llama_library
    from ggbench.engines.llama.ggml_devices import CPU, GgmlDevices

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    devices = GgmlDevices(llama_library())
    [cpu] = devices.of_type(CPU)
    kept = _ExposedMemory(devices, cpu, memory_bytes)
    rpc = ctypes.CDLL(str(llama_library().with_name("libggml-rpc.so")))
    rpc.ggml_backend_rpc_start_server(
        address.encode(), None, ctypes.c_size_t(1), ctypes.c_size_t(1), (ctypes.c_void_p * 1)(cpu)
    )
    raise SystemExit(f"cannot listen at {address}, with {kept.free_bytes} bytes")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
