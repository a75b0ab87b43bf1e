"""The worker's wire format: one JSON object per line, typed and checked at both ends.

Requests go to the worker's stdin, one at a time. Messages come back on a separate pipe, because llama.cpp and its
libraries may print to stdout. `Done` or `Refused` ends a request. The worker's log stays inside `ggbench.engines`.

In the worker a thread waits on stdin, so that the process exits as soon as the parent does, even while native code
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
from ggbench.engines.events import Event, MemoryKind
from ggbench.record import Record

LOG_WARN, LOG_ERROR = 3, 4
"""ggml's levels; the lower ones, debug 1 and info 2, may quote a file's metadata."""


class Log(Record, tag="log"):
    level: int
    text: str
    of_draft: bool = False
    """Whether a draft model or its context caused it."""


class Devices(Record, tag="devices"):
    """The kind of memory by ggml's name of a device or a buffer type."""

    places: dict[str, MemoryKind]


class Done(Record, tag="done"):
    pass


class Refused(Record, tag="refused"):
    """The engine reported a failure; the worker is alive and accepts the next request."""

    stage: Stage
    out_of_memory: bool
    message: str
    missing_bytes: int | None = None
    """Bytes that the failed allocation lacked; None if unknown."""


class Refusal(Exception):
    """A failure that the engine reports, and that leaves its worker alive; becomes `Refused`."""

    def __init__(self, stage: Stage, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.stage, self.out_of_memory = stage, out_of_memory


Message = Event | Log | Devices | Done | Refused

MAX_LINE_BYTES = 1 << 24
"""Real lines are far shorter; a longer one is garbage."""

_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Request | Message) -> bytes:
    """Encode a message as one line, including the newline."""
    return msgspec.json.encode(message) + b"\n"


def request_decoder(loads: Any) -> msgspec.json.Decoder[Request]:  # noqa: ANN401 - a union of types
    """Return the decoder of a worker that accepts these requests besides workloads; it raises msgspec.DecodeError."""
    return msgspec.json.Decoder(loads | AnyWorkload)


def decode_message(line: bytes) -> Message:
    """Return a worker's message. Raises msgspec.DecodeError for anything else."""
    return _message_decoder.decode(line)


EXIT_UNEXPECTED = 1
EXIT_PARENT_GONE = 3
EXIT_BAD_REQUEST = 4
EXIT_OUT_OF_MEMORY = 5


class EventPipe:
    """The output of a worker."""

    def __init__(self, event_fd: int) -> None:
        self._event_fd = event_fd
        self._write_lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Write one complete message."""
        data = memoryview(encode(message))
        with self._write_lock:
            while data:
                data = data[os.write(self._event_fd, data) :]


class Carrier(Protocol):
    def carry_out(self, request: Request) -> None:
        """Answer one request with its events and `Done`, or with `Refused`."""
        ...


def serve(make: Callable[[EventPipe], Carrier], loads: Any) -> None:  # noqa: ANN401 - a union of types
    """Create the worker and handle requests until stdin closes; the process's only argument is the pipe's number.

    `loads` are the requests that the worker accepts besides workloads.
    """
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(request_decoder(loads), requests), daemon=True).start()
    pipe = EventPipe(int(sys.argv[1]))
    try:
        worker = make(pipe)
        while True:
            worker.carry_out(requests.get())
    except BaseException:  # Python itself would abort, as the thread holds stdin, and hide the cause
        sys.excepthook(*sys.exc_info())
        os._exit(EXIT_UNEXPECTED)


def _read_requests(
    decoder: msgspec.json.Decoder[Request],
    requests: queue.SimpleQueue[Request],
) -> None:
    """Read requests in a separate thread; exit the process when the parent's end of the pipe closes."""
    stdin = sys.stdin.buffer
    while line := stdin.readline(MAX_LINE_BYTES):
        try:
            message = decoder.decode(line)
        except msgspec.DecodeError:
            os._exit(EXIT_BAD_REQUEST)
        except MemoryError:  # otherwise the thread would end, and the parent would wait forever
            os.write(2, b"the worker itself ran out of memory\n")
            os._exit(EXIT_OUT_OF_MEMORY)
        requests.put(message)
    os._exit(EXIT_PARENT_GONE)
