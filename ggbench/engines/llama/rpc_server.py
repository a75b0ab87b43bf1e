"""The child process of `ggbench cluster serve`: llama.cpp's RPC server, which cannot be stopped but by ending it.

A thread waits on stdin, so that the process ends with its parent. What is wrong is the last line on stderr.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec

from ggbench.engines.llama.ggml_devices import ACCEL, CPU, GgmlDevices, NoRpc, start_server
from ggbench.engines.llama.memory_limits import ExposedMemory, NotLimited

EXIT_PARENT_GONE, EXIT_REFUSED = 3, 4
_LINE_BUFFERED = 1
"""_IOLBF of stdio.h."""


class ServeRequest(msgspec.Struct, frozen=True):
    """What to expose, and where; the argument of the process, as JSON."""

    host: str
    """An IPv4 address."""
    port: int
    threads: int
    devices: tuple[str, ...] = ()
    """ggml's names; empty exposes all GPUs, or the CPU where there is none, as llama.cpp's own server does."""
    memory_bytes: int | None = None
    """Of each device; None exposes all that is free."""
    main_memory_bytes: int | None = None
    """Of a CPU where `memory_bytes` is None: llama.cpp calls all of main memory free."""


def main() -> None:
    """Serve until stdin closes."""
    request = msgspec.json.decode(sys.argv[1], type=ServeRequest)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _flush_each_line()
    from ggbench.engines.llama.c_functions import lib

    devices = GgmlDevices(Path(lib._lib._name))
    exposed = _chosen(devices, request.devices)
    try:
        limits = [(handle, _limit(devices, handle, request)) for handle in exposed]
        kept = [ExposedMemory(devices, handle, limit) for handle, limit in limits if limit is not None]
        start_server(devices, exposed, f"{request.host}:{request.port}", request.threads)
    except NoRpc:
        _refuse("this llama.cpp was built without RPC")
    except NotLimited:
        _refuse("this llama.cpp does not let its memory be limited; omit --memory")
    del kept
    _refuse(f"cannot listen at {request.host}:{request.port}")


def _chosen(devices: GgmlDevices, names: tuple[str, ...]) -> list[int]:
    known = {devices.name(handle): handle for handle in devices.every}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        _refuse(f"there is no device {unknown!r} here; known: {', '.join(known)}")
    if names:
        return [known[name] for name in names]
    computing = set(devices.every) - set(devices.of_type(CPU, ACCEL))
    return [handle for handle in devices.every if handle in computing] or devices.of_type(CPU)[:1]


def _limit(devices: GgmlDevices, handle: int, request: ServeRequest) -> int | None:
    if request.memory_bytes is not None:
        return request.memory_bytes
    return request.main_memory_bytes if handle in devices.of_type(CPU, ACCEL) else None


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)  # noqa: T201 - the parent reads it
    os._exit(EXIT_REFUSED)


def _flush_each_line() -> None:
    """llama.cpp prints with stdio, which keeps what goes to a pipe until a buffer is full."""
    c_library = ctypes.CDLL(None)
    c_library.setvbuf(ctypes.c_void_p.in_dll(c_library, "stdout"), None, _LINE_BUFFERED, 0)


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(EXIT_PARENT_GONE)


if __name__ == "__main__":
    main()
