"""A TCP proxy that delays what passes and caps its rate, as the way to another machine does."""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

_PIECE_BYTES = 1 << 16
_WAITING_PIECES = 256
"""Where so much is on the way the sender waits, as it would for a switch."""

Piece = tuple[float, bytes]
"""When it has come, and what; no bytes for the end."""


@contextlib.contextmanager
def slow_link(server: str, one_way_s: float = 0.0, bytes_per_s: float | None = None) -> Iterator[str]:
    """Yield an address that leads to `server`, with that delay and rate in each direction; None is no cap."""
    host, _, port = server.rpartition(":")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(
            target=_accept, args=(listener, (host, int(port)), one_way_s, bytes_per_s), daemon=True
        ).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, server: tuple[str, int], one_way_s: float, bytes_per_s: float | None) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            try:
                far = socket.create_connection(server)
            except OSError:
                client.close()
                continue
            for one, other in ((client, far), (far, client)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pieces: queue.Queue[Piece] = queue.Queue(_WAITING_PIECES)
                threading.Thread(target=_receive, args=(one, pieces), daemon=True).start()
                threading.Thread(target=_send, args=(other, pieces, one_way_s, bytes_per_s), daemon=True).start()


def _receive(source: socket.socket, pieces: queue.Queue[Piece]) -> None:
    data = b"\0"
    while data:
        try:
            data = source.recv(_PIECE_BYTES)
        except OSError:
            data = b""
        pieces.put((time.perf_counter(), data))


def _send(target: socket.socket, pieces: queue.Queue[Piece], one_way_s: float, bytes_per_s: float | None) -> None:
    """Pass each piece on when the line is free of those before it and the delay is over."""
    is_free_at = 0.0
    while True:
        came_at, data = pieces.get()
        is_free_at = max(is_free_at, came_at) + (len(data) / bytes_per_s if bytes_per_s else 0.0)
        left_s = is_free_at + one_way_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
        try:
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)
        except OSError:
            # The other direction ends with it; whoever sends is not left waiting for a full queue.
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            while data:
                _, data = pieces.get()
            return
