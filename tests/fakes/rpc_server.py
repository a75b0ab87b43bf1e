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


def _serve(address: str, memory_bytes: int) -> None:
    """Serve until killed."""
    from ggbench.engines.llama.c_functions import llama_library
    from ggbench.engines.llama.ggml_devices import CPU, GgmlDevices
    from ggbench.engines.llama.memory_limits import ExposedMemory

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    devices = GgmlDevices(llama_library())
    [cpu] = devices.of_type(CPU)
    kept = ExposedMemory(devices, cpu, memory_bytes)
    rpc = ctypes.CDLL(str(llama_library().with_name("libggml-rpc.so")))
    rpc.ggml_backend_rpc_start_server(
        address.encode(), None, ctypes.c_size_t(1), ctypes.c_size_t(1), (ctypes.c_void_p * 1)(cpu)
    )
    raise SystemExit(f"cannot listen at {address}, with {kept.free_bytes} bytes")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
