"""The ends of a worker's pipes, whatever engine runs in it: requests from stdin, messages to a pipe of their own.

A thread waits on stdin so that the process ends at once when the parent does, also while native code computes.
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
from ggbench.engines.contract import Request
from ggbench.engines.events import Event, Steps

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
