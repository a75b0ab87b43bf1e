"""A llama-server that ggbench starts: with the flags of the commands that `ggbench pick` prints, on a free port of the
loopback interface, with a random key; its log, and how it ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.contract import Source, Stage
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.failure_lines import out_of_memory_line
from ggbench.engines.http import server_log
from ggbench.engines.http.client import Client
from ggbench.engines.http.config import LlamaServerConfig
from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.program import NAME, Build, program_environment, refused_option, split_command
from ggbench.engines.llama.config import whole_steps
from ggbench.engines.llama.flags import server_flags
from ggbench.errors import EngineFailed, GgbenchError, UsageError
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import with_vocabulary
from ggbench.machine.address_space import limit_data
from ggbench.machine.host import count_oom_kills, has_oom_kills_since
from ggbench.text import shorten

_HOST = "127.0.0.1"
_MAX_LOG_LINES = 20_000
"""Lines kept of a load; a log of every tensor has some thousands."""
_TAIL_LINES = 200
_MAX_LINE_BYTES = 1 << 16
_POLL_S = 0.05
_END_S = 10.0
_DYING_S = 1.0
_STUCK_S = 10.0
"""A busy server at its memory limit that neither logs nor computes for this long waits forever for a thread that failed
to allocate."""
_PREFIX = re.compile(r"^\d+\.\d+\.\d+\.\d+ (?P<level>[A-Z]) ")
"""llama-server's prefix of a line: time, level."""
_LOADS = "llama_model_loader: "
"""Start of llama.cpp's first lines about a file, before it allocates anything for it."""
_STACK_BYTES = 8 << 20
"""Stack of a thread without a limit of its own: Linux's default."""
_SIGILL_HINT = (
    "this build uses instructions that this CPU lacks: use a build for this CPU, or compile llama.cpp here"
)


class ServerProcess:
    """A running llama-server. A thread reads its log, so that a flood does not block it."""

    def __init__(self, setup: LlamaServerConfig, source: Source, build: Build) -> None:
        """Start it; without an n_ctx, with the smallest context.

        A random key is passed in the environment, as other users can read a command line. A memory limit counts what it
        allocates from the load on, without the stacks of its compute threads. Raises BadFile, Unsupported, and
        DoesNotFit if the disk lacks room for a twin's copy.
        """
        self.setup, self.build, self._key = setup, build, secrets.token_hex(16)
        self.n_ctx = setup.n_ctx or whole_steps(1) * setup.n_streams
        """The context that it is started with, of all slots."""
        self.is_limited = setup.memory_limit_bytes is None
        """Whether the limit is set, or none is wanted."""
        self._limit_error = ""
        """Why the kernel refused the limit; empty if it did not."""
        self._n_oom_kills = count_oom_kills()
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "ggbench.engines.http.keeper", *self._command(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=program_environment({"LLAMA_API_KEY": self._key}),
            start_new_session=True,  # ggbench handles Ctrl-C and decides about the server
        )
        self.pid: int | None = None
        self._port: int | None = None
        """None until its log names it."""
        self.load_log: list[str] = []
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._errors: deque[str] = deque(maxlen=_TAIL_LINES)
        self._is_loading = True
        self.is_busy = True
        """Whether it is loading or answering; otherwise it may sleep."""
        self._is_stuck = False
        self._read_at = time.monotonic()
        self._reader = threading.Thread(target=self._read, name="ggbench-server-log", daemon=True)
        self._reader.start()
        if not self.is_limited:
            threading.Thread(target=self._end_if_stuck, name="ggbench-server-watch", daemon=True).start()

    def _command(self, source: Source) -> list[str]:
        """Return the words that start it. Raises UsageError for drafts that the build cannot make."""
        setup, build = self.setup, self.build
        if setup.spec_type:
            build.check_drafts(setup.spec_type, rejects_all=setup.rejects_all)
        assert source.path is not None
        program, own = split_command(setup.words)
        given = server_flags(
            replace(setup, n_ctx=self.n_ctx, mmap=setup.mmap and self.is_limited),
            on_gpu=True,
            draft=[] if source.draft is None else ["-md", str(_with_tokens(source.draft))],
            spec_type=setup.spec_type,
            n_draft=setup.n_draft,
        )
        words = [*program, "-m", str(_with_tokens(source.path)), *build.flags_of(given)]
        return [*words, "--host", _HOST, "--port", "0", *(["-lv", "4"] if build.can_trace else []), *own]

    @property
    def address(self) -> Address:
        return Address(f"http://{_HOST}:{self._port}", own_key=self._key)

    def wait_until_loaded(self, cancel: threading.Event, timeout_s: float) -> Ending:
        """Return how the load ended: with a server that answers and is as it was asked for, or without."""
        ending = self._wait(cancel, timeout_s)
        self._is_loading = False
        refusal: GgbenchError | None = None
        if isinstance(ending, Crashed):
            refusal = refused_option(ending.message, self.setup.words, self.build)
        elif isinstance(ending, Completed):
            refusal = self._deviation()
        return ending if refusal is None else Failed("load", refusal.message, refusal)

    def _wait(self, cancel: threading.Event, timeout_s: float) -> Ending:
        while not self._is_healthy(timeout_s):
            if not self._reader.is_alive():
                return self.ending("load")
            if cancel.is_set():
                return Cancelled()
            if time.monotonic() - self._read_at > timeout_s:
                return TimedOut(timeout_s, NAME)
            time.sleep(_POLL_S)
        return Completed()

    def _is_healthy(self, timeout_s: float) -> bool:
        """Ask the server, once its log names its port."""
        if self._port is None:
            return False
        with contextlib.suppress(GgbenchError), Client(self.address, timeout_s=timeout_s) as client:
            return client.get("/health").status == 200
        return False

    def _deviation(self) -> GgbenchError | None:
        """Return what the loaded server is not, though it was asked for: limited, or drafting."""
        if self._limit_error:
            what = f"the memory of {NAME} cannot be limited: {self._limit_error}"
            return EngineFailed(what, "omit --memory-limit")
        if not self.is_limited:
            what = f"this {NAME} does not log when it loads, so that its memory cannot be limited"
            return EngineFailed(what, "omit --memory-limit, or use a newer build")
        if self.setup.spec_type and (reason := server_log.no_drafts(self.load_log)):
            return UsageError(
                f"{NAME} does not draft: {reason}", "give a draft of the same vocabulary, or none"
            )
        return None

    def ends_soon(self) -> bool:
        """Return whether it ends within a moment, as after a connection that it broke off by dying."""
        self._reader.join(_DYING_S)
        return not self._reader.is_alive()

    def ending(self, stage: Stage) -> Ending:
        """Return how the ended server ended, by the cause in its log."""
        self._reader.join(_END_S)
        try:
            status = self._keeper.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.close()
            return Crashed(f"{NAME} closed its log but did not exit")
        log = [*self.load_log, *self._tail]
        if blame := self._memory_blame(log, status):
            return OutOfMemory(stage, shorten(blame, 200), alive=False)
        cause = next(iter([*server_log.faults(log), *self._errors, *list(self._tail)[-1:]]), "")
        if status == -signal.SIGILL:
            cause = _SIGILL_HINT
        return Crashed.exited(NAME, status, shorten(cause, 200))

    def _memory_blame(self, log: Sequence[str], status: int) -> str:
        """Return why it ended for lack of memory; empty if it did not."""
        if blame := out_of_memory_line(log):
            return blame
        no_stack = os.strerror(errno.EAGAIN)  # what a thread says that found no room for its stack
        if self.setup.memory_limit_bytes is not None and (
            blame := next((line for line in log if no_stack in line), "")
        ):
            return blame
        if self._is_stuck:
            return f"{NAME} neither logged nor computed for {_STUCK_S:g} s at its memory limit"
        if status == -signal.SIGKILL and has_oom_kills_since(self._n_oom_kills):
            return f"the kernel killed {NAME} because memory ran out"
        return ""

    def close(self) -> None:
        """Kill the server and wait for it; may be called twice."""
        self._kill()
        try:
            self._keeper.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._reader.join(_END_S)

    def _kill(self) -> None:
        assert self._keeper.stdin is not None
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()

    def _end_if_stuck(self) -> None:
        """Kill the server if it gets stuck at its limit."""
        seen, since = self._progress(), time.monotonic()
        while self._reader.is_alive():
            self._reader.join(_STUCK_S / 20)
            progress = self._progress()
            if progress is None or progress != seen:
                seen, since = progress, time.monotonic()
            elif time.monotonic() - since >= _STUCK_S:
                self._is_stuck = True
                self._kill()
                return

    def _progress(self) -> tuple[float, list[str]] | None:
        """Return the time of the last line of the log, and the CPU time; None unless it sleeps while busy and limited.

        Fields of a process's stat, from its state on: proc_pid_stat(5).
        """
        if self.pid is None or not (self.is_busy and self.is_limited):
            return None
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            return None
        state, *fields = stat.rpartition(")")[2].split()
        return (self._read_at, fields[10:12]) if state == "S" else None

    def _limit(self) -> None:
        """Limit what the server may allocate beyond its libraries and the threads that answer, which it has by now."""
        setup = self.setup
        assert self.pid is not None and setup.memory_limit_bytes is not None
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        stack = _STACK_BYTES if stack == resource.RLIM_INFINITY else stack
        n_threads = (setup.threads or 0) + (setup.threads_batch or 0)
        try:
            limit_data(self.pid, setup.memory_limit_bytes + n_threads * stack)
            self.is_limited = True
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
        except OSError as error:
            self._limit_error = error.strerror or str(error)

    def _read(self) -> None:
        stdout = self._keeper.stdout
        assert stdout is not None
        with stdout:
            for raw in iter(lambda: stdout.readline(_MAX_LINE_BYTES), b""):
                self._read_at = time.monotonic()
                line = raw.decode(errors="replace").rstrip()
                if self.pid is None and line.isdecimal():
                    self.pid = int(line)
                else:
                    self._take(line)

    def _take(self, line: str) -> None:
        if prefix := _PREFIX.match(line):
            line = line[prefix.end() :]
            if prefix["level"] == "E":
                self._errors.append(line)
        self._tail.append(line)
        if self._is_loading and len(self.load_log) < _MAX_LOG_LINES:
            self.load_log.append(line)
        if not self.is_limited and line.startswith(_LOADS):
            self._limit()
        if self._port is None:
            self._port = server_log.port_of(line)


def _with_tokens(path: Path) -> Path:
    """Return the file, or for a twin, at whose lack of a tokenizer llama-server aborts, a copy with one.

    Raises BadFile, Unsupported, and DoesNotFit if the disk lacks room.
    """
    file = read_model_file(path)
    is_without = file.metadata.get(gguf_constants.Keys.Tokenizer.MODEL) == "none"
    return with_vocabulary(file, paths.twins_dir()) if file.is_twin and is_without else path
