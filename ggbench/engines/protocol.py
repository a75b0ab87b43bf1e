"""The worker's wire format: one JSON object a line, typed and checked at both ends.

Requests go to the worker's stdin, one at a time; only `Hold` and `Release` follow while one is carried out. Messages
come back on a separate pipe, because llama.cpp and the libraries below it may print to stdout. `Done` or `Refused`
ends a request. What the worker logs stays inside `ggbench.engines`.

In the worker a thread waits on stdin, so the process ends at once when the parent does, also while native code
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

from ggbench.engines.contract import AnyWorkload, Request, Stage
from ggbench.engines.events import Event, MemoryKind, Steps


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Wait before the next step of a decode, or the next request, until `Release`. Not answered."""


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Continue. Not answered."""


Control = Hold | Release

LOG_WARN, LOG_ERROR = 3, 4
"""ggml's levels; below are debug 1 and info 2, which may quote a file's metadata."""


class Log(msgspec.Struct, frozen=True, tag="log"):
    level: int
    text: str


class Devices(msgspec.Struct, frozen=True, tag="devices"):
    """The kind of memory behind each name that ggml has for a device or a buffer type."""

    places: dict[str, MemoryKind]


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The engine reported a failure; the worker is alive and takes the next request."""

    stage: Stage
    out_of_memory: bool
    message: str
    missing_bytes: int | None = None
    """Bytes that the failed allocation lacked; None if that is unknown."""


Message = Event | Log | Devices | Done | Refused

MAX_LINE_BYTES = 1 << 24
"""No line of either side comes near; a longer one is garbage."""

_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Request | Control | Message) -> bytes:
    """Encode a message as one line, newline included."""
    return msgspec.json.encode(message) + b"\n"


def request_decoder(loads: Any) -> msgspec.json.Decoder[Request | Control]:  # noqa: ANN401 - a union of types
    """Return the decoder of a worker that takes these requests besides workloads; it raises msgspec.DecodeError."""
    return msgspec.json.Decoder(loads | AnyWorkload | Control)


def decode_message(line: bytes) -> Message:
    """Return a worker's message. Raises msgspec.DecodeError for anything else."""
    return _message_decoder.decode(line)


EXIT_PARENT_GONE = 3
EXIT_BAD_REQUEST = 4
EXIT_OUT_OF_MEMORY = 5


class EventPipe:
    """Where a worker reports."""

    def __init__(self, event_fd: int, released: threading.Event) -> None:
        """While `released` is not set, the next request waits, and a decode between two of its steps."""
        self._event_fd = event_fd
        self._released = released
        self._write_lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Write one message, whole."""
        data = memoryview(encode(message))
        with self._write_lock:
            while data:
                data = data[os.write(self._event_fd, data) :]

    def send_event(self, event: Event) -> None:
        """Write an event of a workload; between two timed steps a decode may be held."""
        self.send(event)
        if isinstance(event, Steps):
            self.wait()

    def wait(self) -> None:
        self._released.wait()


class Carrier(Protocol):
    def carry_out(self, request: Request) -> None:
        """Answer one request with its events and `Done`, or with `Refused`."""
        ...


def serve(make: Callable[[EventPipe], Carrier], loads: Any) -> None:  # noqa: ANN401 - a union of types
    """Make the worker and carry out requests until stdin closes; the process's only argument is the pipe's number.

    `loads` are the requests that the worker takes besides workloads.
    """
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    decoder, released = request_decoder(loads), threading.Event()
    released.set()
    threading.Thread(target=_read_requests, args=(decoder, requests, released), daemon=True).start()
    pipe = EventPipe(int(sys.argv[1]), released)
    worker = make(pipe)
    while True:
        request = requests.get()
        pipe.wait()
        worker.carry_out(request)


def _read_requests(
    decoder: msgspec.json.Decoder[Request | Control],
    requests: queue.SimpleQueue[Request],
    released: threading.Event,
) -> None:
    """Run in a separate thread; end the process when the parent's end of the pipe closes."""
    stdin = sys.stdin.buffer
    while line := stdin.readline(MAX_LINE_BYTES):
        try:
            message = decoder.decode(line)
        except msgspec.DecodeError:
            os._exit(EXIT_BAD_REQUEST)
        except MemoryError:  # else the thread would end, and the parent wait for an answer
            os.write(2, b"the worker itself ran out of memory\n")
            os._exit(EXIT_OUT_OF_MEMORY)
        match message:
            case Hold():
                released.clear()
            case Release():
                released.set()
            case _:
                requests.put(message)
    os._exit(EXIT_PARENT_GONE)
