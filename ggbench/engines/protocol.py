"""The worker's wire format: one JSON object a line, typed and checked at both ends.

Requests go down the worker's stdin, one at a time; only `Hold` and `Release` go down while one is carried out. Messages
come up a pipe of their own, because llama.cpp and the libraries below it may print to stdout. A request is over when
`Done` or `Refused` comes up. What the worker logs stays inside `ggbench.engines`.

In the worker a thread waits on stdin, so that the process ends at once when the parent does, also while native code
computes.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Stage
from ggbench.engines.events import Event, MemoryKind, Steps
from ggbench.engines.workloads import AnyWorkload


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Wait before the next step of a decode, or the next request, until `Release`. Not answered."""


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Continue. Not answered."""


Control = Hold | Release
"""What the worker receives while it carries out a request."""

LOG_WARN, LOG_ERROR = 3, 4
"""ggml's levels; below are debug 1 and info 2, which may quote a file's metadata."""


class Log(msgspec.Struct, frozen=True, tag="log"):
    """One line of llama.cpp's log."""

    level: int
    text: str


class Devices(msgspec.Struct, frozen=True, tag="devices"):
    """The kind of memory behind each name that ggml has for a device or a buffer type."""

    places: dict[str, MemoryKind]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The engine reported a failure; the worker is alive and takes the next request."""

    stage: Stage
    out_of_memory: bool
    message: str
    missing_bytes: int | None = None
    """What the failed allocation wanted beyond what was left; None where that is unknown."""


Message = Event | Log | Devices | Done | Refused

MAX_LINE_BYTES = 1 << 24
"""No line of either side comes near; a longer one is garbage."""

_encoder = msgspec.json.Encoder()
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Request | Control | Message) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def request_decoder(loads: Any) -> msgspec.json.Decoder[Request | Control]:  # noqa: ANN401 - a union of types
    """The decoder of a worker that takes these requests besides workloads; raises msgspec.DecodeError."""
    return msgspec.json.Decoder(loads | AnyWorkload | Control)


def decode_message(line: bytes) -> Message:
    """Raises msgspec.DecodeError on anything that is not a message of the worker."""
    return _message_decoder.decode(line)


EXIT_PARENT_GONE = 3
EXIT_BAD_REQUEST = 4
EXIT_OUT_OF_MEMORY = 5


class EventPipe:
    """Where a worker reports."""

    def __init__(self, event_fd: int, released: threading.Event) -> None:
        """`released`, while it is not set, holds the next request, and a decode between two of its steps."""
        self._event_fd = event_fd
        self._released = released
        self._write_lock = threading.Lock()

    def send(self, message: protocol.Message) -> None:
        """Write one message, whole."""
        data = memoryview(protocol.encode(message))
        with self._write_lock:
            while data:
                data = data[os.write(self._event_fd, data) :]

    def send_event(self, event: Event) -> None:
        """Write an event of a workload; between two timed steps a decode may be held."""
        self.send(event)
        if isinstance(event, Steps):
            self.wait()

    def wait(self) -> None:
        """Return once nothing is held."""
        self._released.wait()


class Carrier(Protocol):
    """Carries out one request after another."""

    def carry_out(self, request: Request) -> None:
        """Answer one request with its events and `Done`, or with `Refused`."""
        ...


def serve(make: Callable[[EventPipe], Carrier], loads: Any) -> None:  # noqa: ANN401 - a union of types
    """Make the worker and carry out requests until stdin closes; the pipe's number is the only argument.

    `loads` are the requests that the worker takes besides workloads.
    """
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    decoder, released = protocol.request_decoder(loads), threading.Event()
    released.set()
    threading.Thread(target=_read_requests, args=(decoder, requests, released), daemon=True).start()
    pipe = EventPipe(int(sys.argv[1]), released)
    worker = make(pipe)
    while True:
        request = requests.get()
        pipe.wait()
        worker.carry_out(request)


def _read_requests(
    decoder: msgspec.json.Decoder[Request | protocol.Control],
    requests: queue.SimpleQueue[Request],
    released: threading.Event,
) -> None:
    """Runs in a thread of its own; ends the process when the parent's end of the pipe closes."""
    stdin = sys.stdin.buffer
    while line := stdin.readline(protocol.MAX_LINE_BYTES):
        try:
            message = decoder.decode(line)
        except msgspec.DecodeError:
            os._exit(EXIT_BAD_REQUEST)
        except MemoryError:  # else the thread would end, and the parent wait for an answer
            os.write(2, b"the worker itself ran out of memory\n")
            os._exit(EXIT_OUT_OF_MEMORY)
        match message:
            case protocol.Hold():
                released.clear()
            case protocol.Release():
                released.set()
            case _:
                requests.put(message)
    os._exit(EXIT_PARENT_GONE)
