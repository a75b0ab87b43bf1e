"""Both sides of `ggbench cluster serve`: llama.cpp's RPC server, which can only be stopped with its process.

A thread waits on stdin, so that the process exits with its parent. The last line on stderr is the error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import NoReturn, Self

import msgspec

from ggbench.engines.llama.ggml_devices import ACCEL, CPU, GgmlDevices, NoRpc, start_server
from ggbench.engines.llama.memory_limits import ExposedMemory, NotLimited
from ggbench.engines.llama.rpc_client import RemoteDevice, RpcConnection, ServerUnusable
from ggbench.errors import EngineFailed, NetworkError, UsageError

EXIT_PARENT_GONE, EXIT_REFUSED = 3, 4


class ServeRequest(msgspec.Struct, frozen=True):
    """Devices to expose and the address; as JSON, the argument of the process."""

    host: str
    """An IPv4 address."""
    port: int
    threads: int
    devices: tuple[str, ...] = ()
    """ggml's names; empty for all GPUs, or for the CPU if there are none, like llama.cpp's own server."""
    memory_bytes: int | None = None
    """Limit of each device; None for all free memory."""
    main_memory_bytes: int | None = None
    """Limit of a CPU if `memory_bytes` is None, as llama.cpp reports all of main memory as free."""


def main() -> None:
    """Serve until stdin closes."""
    request = msgspec.json.decode(sys.argv[1], type=ServeRequest)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from ggbench.engines.llama.c_functions import lib

    devices = GgmlDevices(Path(lib._lib._name))
    known = {devices.name(handle): handle for handle in devices.every}
    unknown = next((name for name in request.devices if name not in known), None)
    if unknown is not None:
        _refuse(f"this machine has no device {unknown!r}; known: {', '.join(known)}")
    on_host = devices.of_type(CPU, ACCEL)
    computing = [handle for handle in devices.every if handle not in on_host]
    exposed = [known[name] for name in request.devices] or computing or devices.of_type(CPU)[:1]
    try:
        kept = []
        for handle in exposed:
            limit = request.memory_bytes
            if limit is None and handle in on_host:
                limit = request.main_memory_bytes
            if limit is not None:
                kept.append(ExposedMemory(devices, handle, limit))
        start_server(devices, exposed, f"{request.host}:{request.port}", request.threads)
    except NoRpc:
        _refuse("this llama.cpp was built without RPC")
    except NotLimited:
        _refuse("the memory of this llama.cpp cannot be limited; omit --memory")
    del kept
    _refuse(f"cannot listen at {request.host}:{request.port}")


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)  # noqa: T201 - the parent reads it
    os._exit(EXIT_REFUSED)


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(EXIT_PARENT_GONE)


_STARTS_WITHIN_S = 60.0
_POLL_S = 0.05


class RpcServerReady(msgspec.Struct, frozen=True):
    server: str
    protocol: str
    devices: tuple[RemoteDevice, ...]


class RpcServerProcess:
    """A child process with an RPC server. A context manager that stops the child."""

    def __init__(self, request: ServeRequest) -> None:
        """Raises NetworkError for another machine's address, or a port in use."""
        self.server = f"{request.host}:{request.port}"
        check_port(request.host, request.port)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ggbench.engines.llama.rpc_server", msgspec.json.encode(request).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            start_new_session=True,  # Ctrl-C is for us
        )
        self._errors: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._read_errors, name="ggbench-rpc-errors", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> RpcServerReady:
        """Wait until the server answers; return its devices. Raises UsageError or EngineFailed if it exits first."""
        host, _, port = self.server.rpartition(":")
        near = f"127.0.0.1:{port}" if host == "0.0.0.0" else self.server
        ends_at = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < ends_at:
            if self._process.poll() is not None:
                raise self._ended()
            with contextlib.suppress(ServerUnusable), RpcConnection(near) as connection:
                return RpcServerReady(self.server, connection.version, connection.devices())
            time.sleep(_POLL_S)
        raise EngineFailed(
            f"the RPC server did not answer within {_STARTS_WITHIN_S:g} s", "try again, or use another port"
        )

    def wait(self) -> NoReturn:
        """Wait until the server exits. Raises UsageError or EngineFailed, with its last line."""
        self._process.wait()
        raise self._ended()

    def close(self) -> None:
        """Kill the child and wait for it; may be called twice."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read_errors(self) -> None:
        """Keep the last lines; a full pipe would block the server."""
        assert self._process.stderr is not None
        self._errors.extend(line.strip() for line in self._process.stderr if line.strip())

    def _ended(self) -> UsageError | EngineFailed:
        self._reader.join()
        why = self._errors[-1] if self._errors else ""
        if self._process.returncode == EXIT_REFUSED:
            return UsageError(why, "see: ggbench cluster serve --help")
        status = f"with exit status {self._process.returncode}"
        return EngineFailed(f"the RPC server ended {status}{': ' if why else ''}{why}", "start it again")


def check_port(host: str, port: int) -> None:
    """Raise NetworkError if nothing can listen at an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            why = error.strerror or str(error)
            raise NetworkError(f"cannot listen on {host}:{port}: {why}", "try another --port or --host") from None


def ipv4_address(host: str) -> str:
    """Return the IPv4 address of a name, which llama.cpp's server does not look up. Raises NetworkError."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        raise NetworkError(
            f"{host!r} has no known IPv4 address", "use an address of this machine, e.g. 192.168.1.7"
        ) from None


if __name__ == "__main__":
    main()
