"""RPC servers, whose devices llama.cpp uses like its own: what it finds there, and why one cannot be used.

llama.cpp aborts its process if a server is missing or of another version, and waits without limit for one that serves
another client.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.endings import Crashed, Ending, OutOfMemory, ServerLost, TimedOut
from ggbench.engines.llama.build import RPC_HINT, LlamaDevice, describe_llama_build, has_backend
from ggbench.errors import NetworkError, UsageError
from ggbench.units import format_bytes

_ANSWER_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0

_NOT_CONNECTED = re.compile(r"(?:Failed to connect to|RPC handshake failed for) (\S+:\d+)")
_BROKE = re.compile(r"Remote RPC server crashed|RPC transport|(?:send|recv) failed")
_VERSION = re.compile(r"RPC server version mismatch: (\d+\.\d+\.\d+)")
_ALLOCATION = re.compile(
    r"failed to allocate RPC(?P<number>\d+)\[(?P<server>[^\]]+)\] buffer of size (?P<bytes>\d+)"
)


def offload_devices_with(servers: Sequence[str]) -> tuple[LlamaDevice, ...]:
    """Return the devices that llama.cpp puts layers on, in its order: those of the servers come first.

    Raises UsageError if llama.cpp was built without RPC, NetworkError if a server cannot be used.
    """
    if not has_backend("rpc"):
        raise UsageError("--rpc: this llama.cpp was built without RPC", RPC_HINT)
    build = describe_llama_build(timeout_s=_ANSWER_TIMEOUT_S, servers=servers)
    if build.problem:
        reason = (
            _blame(build.log, servers) or f"RPC server {' or '.join(servers)} cannot be used: {build.problem}"
        )
        raise NetworkError(reason, "run ggml-rpc-server of the same llama.cpp there, without another client")
    return tuple(device for device in build.devices if device.is_offloading)


def why_unreachable(servers: Sequence[str]) -> str:
    """Return why servers accept no connection; empty if each accepts one."""
    return "; ".join(filter(None, map(_why_unreachable, servers)))


def _why_unreachable(server: str) -> str:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return f"RPC server {server} refuses connections: nothing listens there"
    except (OSError, UnicodeError) as error:
        return f"RPC server {server} cannot be reached: {error.args[-1]}"
    return ""


def explained(ending: Ending, stage: str, servers: Sequence[str]) -> Ending:
    """Return the ending, naming the server that caused it, if any."""
    match ending:
        case OutOfMemory(message=message) if found := _ALLOCATION.search(message):
            wanted, device = format_bytes(int(found["bytes"])), f"device {found['number']} of {found['server']}"
            return replace(ending, message=f"{device} could not allocate {wanted}", device=device)
        case Crashed(log_tail=log_tail) if blame := _blame(log_tail, servers):
            return ServerLost(stage, blame)
        case TimedOut() if unreachable := why_unreachable(servers):
            return ServerLost(stage, f"{ending.reason}; {unreachable}")
    return ending


def _blame(log: Sequence[str], servers: Sequence[str]) -> str:
    """Return what happened to which server; empty if the log of a process that aborted blames none."""
    text = "\n".join(log)
    named = _NOT_CONNECTED.search(text)
    servers = [named[1]] if named else servers
    server = f"RPC server {' or '.join(servers)}"
    if version := _VERSION.search(text):
        return f"{server} speaks version {version[1]} of the protocol, which this llama.cpp does not"
    if not named and not _BROKE.search(text):
        return ""
    return why_unreachable(servers) or f"{server} closed the connection, or is no RPC server"
