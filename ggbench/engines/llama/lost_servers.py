"""Which machine is to blame where a worker that used RPC servers ended.

llama.cpp aborts its process where a server is lost, and does not say which; so the servers are asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.endings import Crashed, Ending, OutOfMemory, ServerLost, TimedOut
from ggbench.engines.llama.rpc_client import find_unusable
from ggbench.text import in_words
from ggbench.units import format_bytes

_BROKE = re.compile(r"Remote RPC server crashed|RPC transport|(?:send|recv) failed")
_NOT_CONNECTED = re.compile(r"Failed to connect to (\S+:\d+)|RPC handshake failed for (\S+:\d+)")
_VERSION = re.compile(r"RPC server version mismatch: (\d+\.\d+\.\d+)")
_ALLOCATION = re.compile(r"failed to allocate RPC(?P<number>\d+)\[(?P<server>[^\]]+)\] buffer of size (?P<bytes>\d+)")


def explained(ending: Ending, stage: str, servers: Sequence[str]) -> Ending:
    """The ending, naming the server that it is due to; as it is where none of them is."""
    match ending:
        case OutOfMemory(message=message) if found := _ALLOCATION.search(message):
            wanted, device = format_bytes(int(found["bytes"])), f"device {found['number']} of {found['server']}"
            return replace(ending, message=f"{device} could not allocate {wanted}", device=device)
        case Crashed(log_tail=log_tail) if blame := _blame(log_tail, servers):
            return ServerLost(stage, blame)
        case TimedOut() if unusable := find_unusable(servers):
            return ServerLost(stage, f"{ending.reason}; {'; '.join(unusable.values())}")
    return ending


def _blame(log_tail: Sequence[str], servers: Sequence[str]) -> str:
    """What happened to which server; empty where the log blames none."""
    text = "\n".join(log_tail)
    if version := _VERSION.search(text):
        at = _NOT_CONNECTED.search(text)
        server = (at[1] or at[2]) if at else in_words(servers)
        return (
            f"RPC server {server} speaks version {version[1]} of the protocol, which this llama.cpp does not; "
            "run the same llama.cpp on both machines"
        )
    if at := _NOT_CONNECTED.search(text):
        return find_unusable([at[1] or at[2]]).get(at[1] or at[2]) or f"RPC server {at[1] or at[2]} is busy"
    if not _BROKE.search(text):
        return ""
    if unusable := find_unusable(servers):
        return "; ".join(unusable.values())
    if len(servers) == 1:
        return f"the connection to RPC server {servers[0]} broke, and it answers again"
    return f"the connection to one of the RPC servers {in_words(servers)} broke, and all answer again"
