"""Several generations at once: one thread reads each stream, one loop passes on what they read.

A thread only waits, notes the time of arrival and reads the line. Items are passed on at most every 50 ms, so that
what is done with them stays out of the way of the next arrival.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from ggbench.engines.server.client import Client, Exchange, Line, silent
from ggbench.engines.server.contract import (
    Ended,
    Failed,
    Generate,
    InvalidStream,
    Item,
    Kind,
    PromptProgress,
    ServerReported,
    Tokens,
)
from ggbench.errors import GgbenchError, ServerFailed
from ggbench.text import shorten

_PASS_ON_S = 0.05
_CLOSING_S = 15.0
"""Longest wait for a thread whose connection was closed: it may still be connecting."""
_LOG_HINT = "look at the server's log"


def run_together(
    client: Client, kind: Kind, requests: Sequence[Generate], cancel: threading.Event | None
) -> Iterator[tuple[int, Item]]:
    """Yield (index, item) of all requests as they come, each request's last one Ended or Failed.

    Setting `cancel` or closing the iterator closes all connections and ends it without further items. An exception that
    a thread did not expect is raised here.
    """
    streams = [_Stream(client, kind, request) for request in requests]
    for stream in streams:
        stream.thread.start()
    try:
        while True:
            is_over = all(not stream.thread.is_alive() for stream in streams)
            for index, stream in enumerate(streams):
                while stream.items:
                    yield index, stream.items.popleft()
            for stream in streams:
                if stream.unexpected is not None:
                    raise stream.unexpected
            if is_over or (cancel is not None and cancel.is_set()):
                return
            _wait(streams)
            now_ns = time.perf_counter_ns()
            for stream in streams:
                stream.watch(now_ns)
    finally:
        for stream in streams:
            stream.exchange.abort()
        for stream in streams:
            stream.thread.join(_CLOSING_S)


def _wait(streams: Sequence[_Stream]) -> None:
    """Wait until items are worth passing on, less where the last stream ends before."""
    until = time.monotonic() + _PASS_ON_S
    for stream in streams:
        stream.thread.join(max(0.0, until - time.monotonic()))


class _Stream:
    """One generation and the thread that reads it."""

    def __init__(self, client: Client, kind: Kind, request: Generate) -> None:
        self._client = client
        self._request = request
        self._reader = kind.reader(request)
        self.exchange: Exchange = client.exchange(kind.request(request))
        self.items: deque[Item] = deque()
        self.unexpected: Exception | None = None
        self._progress_ns = time.perf_counter_ns()
        """When something was last read that brings the end nearer."""
        self._is_silent = False
        self._n_gen = 0
        self.thread = threading.Thread(target=self._run, name="ggbench-stream", daemon=True)

    def watch(self, now_ns: int) -> None:
        """Close the connection of a server that is silent, or busy with what is no progress."""
        if now_ns - self._progress_ns > self._client.timeout_s * 1e9 and self.thread.is_alive():
            self._is_silent = True
            self.exchange.abort()

    def _run(self) -> None:
        try:
            self._read()
        except GgbenchError as error:
            self._fail(silent(self._client.address, self._client.timeout_s) if self._is_silent else error)
        except InvalidStream as error:
            text = shorten(self._client.without_key(str(error)), 160)
            self._fail(ServerFailed(f"the server sent an invalid stream: {text}", _LOG_HINT))
        except ServerReported as error:
            text = shorten(self._client.without_key(str(error)), 200)
            self._fail(ServerFailed(f"the server reported an error: {text}", _LOG_HINT))
        except Exception as error:  # a fault of ggbench's own, for the thread that asked
            self.unexpected = error

    def _read(self) -> None:
        add, read = self.items.append, self._reader.read
        for part in self.exchange.items():
            if not isinstance(part, Line):
                self._progress_ns = part.at_ns
                add(part)
                continue
            for item in read(part.content, part.at_ns):
                add(item)
                if isinstance(item, Ended):
                    return
                self._note_progress(item)
        ended = self._reader.finish(time.perf_counter_ns())
        if ended is None:
            self._fail_early()
        else:
            add(ended)

    def _note_progress(self, item: Tokens | PromptProgress) -> None:
        if isinstance(item, Tokens):
            self._n_gen += 1 if item.n_tokens is None else item.n_tokens
            if self._n_gen > 2 * self._request.n_gen + 64:
                raise ServerFailed(
                    f"the server does not stop after the {self._request.n_gen} tokens asked for", _LOG_HINT
                )
            if item.n_tokens == 0:
                return
        self._progress_ns = item.at_ns

    def _fail_early(self) -> None:
        done = f"{self._n_gen} of {self._request.n_gen} tokens"
        self._fail(ServerFailed(f"the server closed the stream after {done}", _LOG_HINT))

    def _fail(self, error: GgbenchError) -> None:
        self.items.append(Failed(time.perf_counter_ns(), error))
