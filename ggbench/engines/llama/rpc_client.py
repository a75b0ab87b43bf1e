"""A client of llama.cpp's RPC protocol: checks the server at an address, its devices and the speed of the link.

llama.cpp's own client aborts the process if a server is missing, silent or of another version; this one raises.

Source: ggml-rpc.cpp and transport.cpp of llama.cpp. A request is a byte for the command, the size in 8 bytes and the
data; an answer, if the command has one, is its size and its data, little-endian. The first command is HELLO, the same
in every version. A server accepts one client at a time, so the next one waits in silence.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Crashed, Ending, OutOfMemory, ServerLost, TimedOut
from ggbench.text import in_words
from ggbench.units import MIB, format_bytes, format_count

PROTOCOL_MAJOR = 7
"""RPC_PROTO_MAJOR_VERSION of ggml-rpc.h."""
ANSWER_TIMEOUT_S = 5.0
"""Timeout of a connection and of each answer."""

_ALLOC_BUFFER, _GET_ALIGNMENT, _BUFFER_GET_BASE, _FREE_BUFFER = 0, 1, 3, 4
_SET_TENSOR, _GET_TENSOR, _GET_DEVICE_MEMORY, _HELLO, _DEVICE_COUNT = 6, 8, 11, 14, 15
_CAPABILITIES_BYTES = 24
"""RPC_CONN_CAPS_SIZE; all zero asks for plain TCP."""
_TENSOR = struct.Struct("<Q I Q 4I 4I I 64s i 10Q Q Q Q 64s i")
"""`rpc_tensor`, packed."""
_TYPE_I8 = 24
"""GGML_TYPE_I8, a byte per element."""
_LARGEST_HELLO_BYTES, _MOST_DEVICES = 256, 256
_RECEIVED_BYTES = 1 << 20


class RemoteDevice(msgspec.Struct, frozen=True):
    """A device of an RPC server, as the server reports it."""

    number: int
    """Index among the server's devices, from 0."""
    free_bytes: int
    total_bytes: int


class ServerUnusable(Exception):
    """A server is missing, silent, or speaks another protocol; the message names it and the problem."""

    def __init__(self, server: str, what: str) -> None:
        """`what` follows the server's address: `refuses connections`."""
        super().__init__(f"RPC server {server} {what}")
        self.what = what


class RpcConnection:
    """A connection to a server, which then serves nobody else. A context manager that closes it."""

    def __init__(self, server: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Connect and greet. Raises ServerUnusable."""
        self.server = server
        self._timeout_s = timeout_s
        self._is_waiting = False
        host, _, port = server.rpartition(":")
        try:
            address = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)[0][4]
        except (OSError, UnicodeError):
            raise ServerUnusable(server, "has no known IPv4 address") from None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connect(address)
            self.protocol = self._greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; reset it if an answer is due, so that a busy server survives.

        It reads our greeting after its client has left, and writes the answer in two parts without MSG_NOSIGNAL: after
        a regular close the second write would kill its process.
        """
        if self._is_waiting:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def version(self) -> str:
        return ".".join(map(str, self.protocol))

    def devices(self) -> tuple[RemoteDevice, ...]:
        """Return every device with its memory. Raises ServerUnusable."""
        (count,) = struct.unpack("<I", self._ask(_DEVICE_COUNT, b"", 4))
        if count > _MOST_DEVICES:
            raise self._unusable(f"claims {format_count(count)} devices")
        memories = (struct.unpack("<QQ", self._ask(_GET_DEVICE_MEMORY, struct.pack("<I", i), 16)) for i in range(count))
        return tuple(RemoteDevice(number, free, total) for number, (free, total) in enumerate(memories))

    def round_trip(self) -> int:
        """Return the nanoseconds for a short request and its answer. Raises ServerUnusable."""
        started = time.perf_counter_ns()
        self._ask(_GET_ALIGNMENT, struct.pack("<I", 0), 8)
        return time.perf_counter_ns() - started

    @contextlib.contextmanager
    def buffer(self, n_bytes: int) -> Iterator[tuple[int, int] | None]:
        """Yield handle and address of memory of the first device; None if it has too little. Raises ServerUnusable."""
        pointer, _ = struct.unpack("<QQ", self._ask(_ALLOC_BUFFER, struct.pack("<IQ", 0, n_bytes), 16))
        if not pointer:
            yield None
            return
        (base,) = struct.unpack("<Q", self._ask(_BUFFER_GET_BASE, struct.pack("<Q", pointer), 8))
        yield pointer, base
        self._send(_FREE_BUFFER, struct.pack("<Q", pointer))

    def measure_link(self) -> Link:
        """Time short requests, then transfers of zeros in both directions. Raises ServerUnusable."""
        self.round_trip()
        round_trips = _timed(self.round_trip, _ROUND_TRIPS)
        round_trip = Percentiles(_quantile(round_trips, 0.5), _quantile(round_trips, 0.95))
        with self.buffer(_LARGEST_BYTES) as place:
            if place is None:
                return Link(round_trip_ns=round_trip)
            up, down = self._transfers(*place)
            return Link(
                round_trip_ns=round_trip,
                up_bytes_per_s=_rate(up, round_trip.p50),
                down_bytes_per_s=_rate(down, round_trip.p50),
            )

    def _transfers(self, pointer: int, base: int) -> tuple[Callable[[int], int], Callable[[int], int]]:
        """Return functions that time an upload to a buffer, and a download, of a number of bytes."""

        def tensor(n_bytes: int) -> bytes:
            return _TENSOR.pack(
                1, _TYPE_I8, pointer, n_bytes, 1, 1, 1, 1, n_bytes, n_bytes, n_bytes, 0, b"", 0, *(0,) * 10, 0, 0, base,
                b"probe", 0,
            )  # fmt: skip

        def upload(n_bytes: int) -> int:
            """Return the nanoseconds to send this many bytes and receive a confirmation."""
            request, data = tensor(n_bytes) + struct.pack("<BQ", 0, 0), bytes(n_bytes)
            started = time.perf_counter_ns()
            self._send(_SET_TENSOR, request, data)  # this request has no answer
            self.round_trip()
            return time.perf_counter_ns() - started

        def download(n_bytes: int) -> int:
            request = tensor(n_bytes) + struct.pack("<QQ", 0, n_bytes)
            started = time.perf_counter_ns()
            self._ask(_GET_TENSOR, request, n_bytes)
            return time.perf_counter_ns() - started

        return upload, download

    def _unusable(self, what: str) -> ServerUnusable:
        return ServerUnusable(self.server, what)

    def _connect(self, address: object) -> None:
        try:
            self._socket.connect(address)  # type: ignore[arg-type]  # as getaddrinfo gives it
        except TimeoutError:
            raise self._unusable(f"did not accept a connection within {self._timeout_s:g} s") from None
        except ConnectionRefusedError:
            raise self._unusable("refuses connections: nothing listens there") from None
        except OSError as error:
            raise self._unusable(f"cannot be reached: {error.strerror or error}") from None

    def _greet(self) -> tuple[int, int, int]:
        self._is_waiting = True
        self._send(_HELLO, bytes(_CAPABILITIES_BYTES))
        (size,) = struct.unpack("<Q", self._receive(8))
        if not 3 <= size <= _LARGEST_HELLO_BYTES:
            raise self._unusable("answers, but not in llama.cpp's RPC protocol")
        major, minor, patch = self._receive(size)[:3]
        self._is_waiting = False
        return major, minor, patch

    def _ask(self, command: int, data: bytes, answer_bytes: int) -> bytes:
        self._is_waiting = True
        self._send(command, data)
        (size,) = struct.unpack("<Q", self._receive(8))
        if size != answer_bytes:
            raise self._unusable("sent an answer of unknown form")
        answer = self._receive(answer_bytes)
        self._is_waiting = False
        return answer

    def _send(self, command: int, *parts: bytes) -> None:
        head = struct.pack("<BQ", command, sum(map(len, parts)))
        with self._explained():
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join([head, *parts]))

    def _receive(self, n_bytes: int) -> bytes:
        """Return exactly this many bytes; each arrival restarts the timeout, up to four timeouts in total."""
        received = bytearray()
        ends_at = time.monotonic() + 4 * self._timeout_s
        with self._explained():
            while len(received) < n_bytes:
                left_s = ends_at - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(min(self._timeout_s, left_s))
                data = self._socket.recv(min(n_bytes - len(received), _RECEIVED_BYTES))
                if not data:
                    raise ConnectionResetError
                received += data
        return bytes(received)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise self._unusable(
                f"accepts connections but did not answer within {self._timeout_s:g} s: "
                "busy with another client, or no RPC server"
            ) from None
        except OSError:
            raise self._unusable("closed the connection: no RPC server, one of another version, or it ended") from None


def find_unusable(servers: Sequence[str], timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, str]:
    """Return why servers are unusable, by address; empty if all answer. Queries all at once."""

    def obstacle(server: str) -> str:
        try:
            with RpcConnection(server, timeout_s):
                return ""
        except ServerUnusable as error:
            return str(error)

    if not servers:
        return {}
    with ThreadPoolExecutor(len(servers)) as pool:
        return {server: reason for server, reason in zip(servers, pool.map(obstacle, servers), strict=True) if reason}


_ROUND_TRIPS = 100
_TRANSFERS = 20
_LARGEST_BYTES = 16 * MIB
_SMALLEST_BYTES = 64 << 10
_TRANSFER_S = 0.05
"""Target duration of a transfer: long compared with a round trip, short for the user."""
_LIMIT_S = 2.0
"""Time limit of each of the three measurements, after two samples."""


class Percentiles(msgspec.Struct, frozen=True):
    p50: float
    p95: float


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The link to an RPC server, measured with the protocol's own messages."""

    round_trip_ns: Percentiles
    """Round trip of the shortest request and its answer."""
    up_bytes_per_s: Percentiles | None = None
    """Rate to the server; p95 is the rate exceeded by 95 % of the transfers. None if it could not allocate memory."""
    down_bytes_per_s: Percentiles | None = None
    """Rate from the server, like `up_bytes_per_s`."""


class ServerProbe(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    """`HOST:PORT`."""
    reason: str = ""
    """Why it cannot be used, e.g. `refuses connections`; empty if it can."""
    protocol: tuple[int, int, int] | None = None
    """Version of the RPC protocol; None if unknown."""
    devices: tuple[RemoteDevice, ...] = ()
    link: Link | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it answered, in a protocol that ggbench knows."""
        return not self.reason


def probe_server(server: str, timeout_s: float = ANSWER_TIMEOUT_S) -> ServerProbe:
    """Query one server and measure the link; an unusable server is a result with the reason."""
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
            return ServerProbe(server=server, protocol=protocol, devices=devices, link=connection.measure_link())
    except ServerUnusable as error:
        return ServerProbe(server=server, reason=error.what, protocol=protocol)


def _rate(transfer: Callable[[int], int], round_trip_ns: float) -> Percentiles:
    """Return the bytes per second of sufficiently long transfers, excluding the round trip."""
    n_bytes = _SMALLEST_BYTES
    while transfer(n_bytes) < _TRANSFER_S * 1e9 and n_bytes < _LARGEST_BYTES:
        n_bytes = min(4 * n_bytes, _LARGEST_BYTES)
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
    """Return the smallest value not exceeded by at least this share of all."""
    return float(sorted(values)[math.ceil(share * len(values)) - 1])


_BROKE = re.compile(r"Remote RPC server crashed|RPC transport|(?:send|recv) failed")
_NOT_CONNECTED = re.compile(r"Failed to connect to (\S+:\d+)|RPC handshake failed for (\S+:\d+)")
_VERSION = re.compile(r"RPC server version mismatch: (\d+\.\d+\.\d+)")
_ALLOCATION = re.compile(r"failed to allocate RPC(?P<number>\d+)\[(?P<server>[^\]]+)\] buffer of size (?P<bytes>\d+)")


def explained(ending: Ending, stage: str, servers: Sequence[str]) -> Ending:
    """Return the ending, naming the server that caused it, if any."""
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
    """Return what happened to which server; empty if the log names none."""
    text = "\n".join(log_tail)
    at = _NOT_CONNECTED.search(text)
    server = (at[1] or at[2]) if at else in_words(servers)
    if version := _VERSION.search(text):
        return (
            f"RPC server {server} speaks version {version[1]} of the protocol, which this llama.cpp does not; "
            "run the same llama.cpp on both machines"
        )
    if at:
        return find_unusable([server]).get(server) or f"RPC server {server} is busy"
    if not _BROKE.search(text):
        return ""
    if unusable := find_unusable(servers):
        return "; ".join(unusable.values())
    return f"the connection to RPC server {' or '.join(servers)} broke, and it answers again"
