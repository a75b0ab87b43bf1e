"""The parent's side of a worker: start it, send requests, and return any ending as a value.

Native code cannot be interrupted by a thread and may abort its process, so it runs in a child. The child exits when its
stdin is closed, or is killed; it is never orphaned, because the kernel closes that pipe when the parent dies.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from ggbench.engines import protocol
from ggbench.engines.contract import DEFAULT_TIMEOUT_S, Request, Stage, Workload
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.events import Event
from ggbench.engines.failure_lines import crash_cause, out_of_memory_line
from ggbench.machine.host import count_oom_kills, has_oom_kills_since

_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "GGML_NO_BACKTRACE": "1"}
"""glibc reserves 64 MiB of address space for each arena, which a memory limit would count before it is used; an abort
would start a debugger, which dies of the same limit and leaves a core file in the user's folder."""
_TAIL_LINES = 200
_POLL_S = 0.1
_SHUTDOWN_TIMEOUT_S = 5.0


class Transport(Protocol):
    """A connection that sends requests to a worker; the tests have one that replays recorded messages."""

    def call(self, request: Request) -> Iterator[protocol.Message | Ending]:
        """Yield messages as they come, then exactly one ending."""
        ...

    def close(self) -> None:
        """Stop the worker; may be called twice."""
        ...


class WorkerProcess:
    """A child process with an engine, until it is closed."""

    def __init__(
        self,
        cancel: threading.Event | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        command: Sequence[str] = (sys.executable, "-P", "-m", "ggbench.engines.llama.worker"),
        program: str = "llama.cpp",
    ) -> None:
        """Setting `cancel` stops the running request and the worker; `command` gets the pipe's number, and `program`
        names it in messages.
        """
        self._cancel = cancel or threading.Event()
        self._program = program
        self._timeout_s = timeout_s
        self._heard_at = 0.0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._warnings: deque[str] = deque(maxlen=_TAIL_LINES)
        events, child_events = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, str(child_events)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(child_events,),
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # the parent handles Ctrl-C and decides about the worker
            )
        finally:
            os.close(child_events)
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stage: Stage = "start"
        self._n_oom_kills = count_oom_kills()
        self._events = _LineReader(events)
        self._output = _LineReader(self._stdout.fileno())
        self._selector = selectors.DefaultSelector()
        for reader in (self._events, self._output):
            self._selector.register(reader.fd, selectors.EVENT_READ, reader)
        self._closed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, request: Request) -> Iterator[protocol.Message | Ending]:
        """Send a request; yield its messages, then exactly one ending. After a crash every call ends in a crash."""
        self._stage = request.stage
        self._tail.clear()
        self._warnings.clear()
        try:
            self._stdin.write(protocol.encode(request))
            self._stdin.flush()
        except UnicodeEncodeError:
            yield Failed(self._stage, "the file's name is not UTF-8; rename it, or give a link to it")
            return
        except (BrokenPipeError, ValueError):
            yield self._crashed()
            return
        self._heard_at = time.monotonic()
        ending: Ending | None = None
        while ending is None:
            messages, ending = self._next()
            for message in messages:
                ending = self._take(message)
                if ending is not None:
                    break
                paused_at = time.monotonic()
                yield message
                self._heard_at += time.monotonic() - paused_at  # the caller's own time is no silence
        yield ending

    def _next(self) -> tuple[list[protocol.Message], Ending | None]:
        """Return the messages that arrive within a moment, or why there will be none."""
        if self._cancel.is_set():
            return self._stopped(Cancelled())
        try:
            lines = self._receive()
            messages = [protocol.decode_message(line) for line in lines or ()]
        except (msgspec.DecodeError, UnicodeDecodeError, _LineTooLong):
            return self._stopped(self._faulty("the worker wrote something that is not a message"))
        if lines is None:
            return [], self._crashed()
        if any(not isinstance(each, protocol.Log) for each in messages):
            self._heard_at = time.monotonic()
        elif time.monotonic() - self._heard_at > self._timeout_s:
            return self._stopped(TimedOut(self._timeout_s))
        return messages, None

    def _stopped(self, ending: Ending) -> tuple[list[protocol.Message], Ending]:
        self.close()
        return [], ending

    def _take(self, message: protocol.Message) -> Ending | None:
        """Keep a line of the log; return the ending that a message means, None for any other."""
        match message:
            case protocol.Done():
                return Completed()
            case protocol.Refused(stage, True, text, missing):
                return OutOfMemory(stage, text, missing_bytes=missing)
            case protocol.Refused(stage, _, text):
                return Failed(stage, text)
            case protocol.Log(level, text):
                self._tail.append(text)
                if level >= protocol.LOG_WARN:
                    self._warnings.append(text)
        return None

    def close(self) -> None:
        """Kill the child and wait for it; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._process.kill()
        self._process.wait()
        self._selector.close()
        os.close(self._events.fd)
        self._stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def _receive(self) -> list[bytes] | None:
        """Return the lines that arrive within a moment; None once the child has closed its end."""
        lines: list[bytes] = []
        for key, _ in self._selector.select(_POLL_S):
            reader: _LineReader = key.data
            received = reader.read_lines()
            if reader is self._events:
                if received is None:
                    return None
                lines = received
            elif received is None:
                self._selector.unregister(reader.fd)
            else:
                self._keep_output(received)
        return lines

    def _keep_output(self, lines: list[bytes]) -> None:
        texts = [line.decode(errors="replace") for line in lines]
        self._tail.extend(texts)
        self._warnings.extend(texts)

    def _faulty(self, what: str) -> Crashed:
        """Return the ending of a worker that does what none should, with the cause in its output."""
        cause = crash_cause(self._tail)
        return Crashed(f"{what}: {cause}" if cause else what, log_tail=tuple(self._tail))

    def _crashed(self) -> Ending:
        """Wait for a child that exits by itself, read its last output, and return how it ended."""
        ended_by_itself = not self._closed
        if ended_by_itself:
            try:
                self._process.wait(timeout=_SHUTDOWN_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.close()
                return self._faulty("the worker closed its pipe but did not exit")
            while lines := self._output.read_lines():
                self._keep_output(lines)
            self.close()
        blame = out_of_memory_line(self._warnings)
        was_killed = ended_by_itself and self._process.returncode == -signal.SIGKILL
        if not blame and was_killed and has_oom_kills_since(self._n_oom_kills):
            blame = "the kernel killed the worker because memory ran out"
        if blame:
            return OutOfMemory(self._stage, blame, alive=False)
        return Crashed.exited(
            self._program, self._process.returncode, crash_cause(self._tail), tuple(self._tail)
        )


class WorkerEngine:
    """An engine in a child process, which is started on demand, and again after it has died."""

    def __init__(self, start: Callable[[], Transport]) -> None:
        self._start = start
        self._worker: Transport | None = None

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload on the open model."""
        yield (yield from self._call(workload))

    def close(self) -> None:
        """Stop the worker; may be called twice, and a later `open` starts another."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _call(self, request: Request) -> Generator[Event | Ending, None, Ending]:
        """Yield the events of one request and return its ending."""
        if self._worker is None:
            return Failed(request.stage, "no model is open")
        ending: Ending = Failed(request.stage, "the worker exited without an answer")
        for item in self._worker.call(request):
            match item:
                case Ending():
                    ending = item
                case protocol.Done() | protocol.Refused():
                    pass  # the transport turns them into an ending
                case protocol.Log() | protocol.Devices():
                    self._note(item)
                case _:
                    yield from self._events(item)
        if ending.is_final:
            self.close()
        return ending

    def _note(self, message: protocol.Log | protocol.Devices) -> None:
        """Handle a message that does not leave the engine."""

    def _events(self, event: Event) -> Iterable[Event]:
        """Return the event to report for an event of the worker."""
        return (event,)


class _LineTooLong(Exception):
    pass


class _LineReader:
    """Reads complete lines from a file descriptor as they arrive, without blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._partial = bytearray()
        os.set_blocking(fd, False)

    def read_lines(self) -> list[bytes] | None:
        """Return the complete lines, possibly none; None at the end."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        if not data:
            return None
        self._partial += data
        lines: list[bytes] = []
        if b"\n" in data:
            *lines, rest = bytes(self._partial).split(b"\n")
            self._partial = bytearray(rest)
        if len(self._partial) > protocol.MAX_LINE_BYTES:
            raise _LineTooLong
        return lines
