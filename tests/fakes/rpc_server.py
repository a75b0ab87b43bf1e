"""Servers that speak llama.cpp's RPC protocol well enough to be probed, or misbehave on cue."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

_TENSOR_BYTES = 296
_MEMORY = {0: (3 << 30, 4 << 30), 1: (1 << 30, 2 << 30)}
"""Free and total of each device."""

Behaviour = Callable[[socket.socket], None]


@contextlib.contextmanager
def listening(behave: Behaviour | None) -> Iterator[str]:
    """Yield the address of a server that treats each connection so, one after the other; None never accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        if behave is not None:
            threading.Thread(target=_serve, args=(server, behave), daemon=True).start()
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


def speaks(version: tuple[int, int, int] = (7, 0, 0), hello_bytes: int = 28, most_bytes: int = 1 << 30) -> Behaviour:
    """Two devices in that version of the protocol; `most_bytes` is the most that it allocates at once."""

    def behave(client: socket.socket) -> None:
        stored = b""
        while head := client.recv(1, socket.MSG_WAITALL):
            (size,) = struct.unpack("<Q", client.recv(8, socket.MSG_WAITALL))
            data = client.recv(size, socket.MSG_WAITALL) if size else b""
            match head[0]:
                case 0:
                    answer = struct.pack("<QQ", 4711 if struct.unpack("<IQ", data)[1] <= most_bytes else 0, 0)
                case 1:
                    answer = struct.pack("<Q", 32)
                case 3:
                    answer = struct.pack("<Q", 1 << 40)
                case 6:
                    stored = data[_TENSOR_BYTES + 9 :]
                    continue
                case 8:
                    answer = stored[: struct.unpack("<Q", data[-8:])[0]]
                case 11:
                    answer = struct.pack("<QQ", *_MEMORY[struct.unpack("<I", data)[0]])
                case 14:
                    answer = bytes(version) + bytes(hello_bytes - 3)
                case 15:
                    answer = struct.pack("<I", len(_MEMORY))
                case _:
                    continue
            client.sendall(struct.pack("<Q", len(answer)) + answer)

    return behave


def is_silent(client: socket.socket) -> None:
    """Read all and answer nothing, as a server that is busy with another client seems to."""
    while client.recv(1 << 16):
        pass


def answers(data: bytes) -> Behaviour:
    def behave(client: socket.socket) -> None:
        client.recv(1 << 16)
        client.sendall(data)

    return behave


def _serve(server: socket.socket, behave: Behaviour) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                behave(client)
