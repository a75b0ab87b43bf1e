"""A llama-server started by ggbench: its log, and how it ended."""

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

from ggbench.engines.contract import Stage
from ggbench.engines.endings import Crashed, Ending, OutOfMemory
from ggbench.engines.events import Allocated, MemoryKind
from ggbench.engines.failure_lines import out_of_memory_line
from ggbench.engines.http.program import NAME, Build, program_environment
from ggbench.engines.llama.logs import parse_allocations
from ggbench.engines.llama_server.config import HOST
from ggbench.engines.server.config import Address
from ggbench.errors import EngineFailed, GgbenchError, UsageError
from ggbench.machine.address_space import limit_data
from ggbench.machine.host import count_oom_kills, has_oom_kills_since
from ggbench.text import shorten

_MAX_LOG_LINES = 20_000
"""Lines kept of a load; a log of every tensor has some thousands."""
_TAIL_LINES = 200
_MAX_LINE_BYTES = 1 << 16
_END_S = 10.0
_DYING_S = 1.0
_STUCK_S = 10.0
"""A busy server at its memory limit that neither logs nor computes for this long waits forever for a thread that failed
to allocate."""

_PREFIX = re.compile(r"^\d+\.\d+\.\d+\.\d+ (?P<level>[A-Z]) ")
"""llama-server's prefix of a line: time, level."""
_NO_DRAFTS = re.compile(
    r"failed to initialize speculative decoding context: .+|speculative decoding not supported by this context"
)
_LISTENING = re.compile(r"listening on http://[^:]+:(\d+)|is listening.*\bport: (\d+)")
_LOADS_DRAFT = re.compile(r"loading draft model '|creating MTP draft context")
"""Before the lines of what drafts: `common_speculative_init_result` in llama.cpp's speculative.cpp."""
_CONTEXT_SIZE = re.compile(r"^llama_context: (?P<name>n_ctx|n_batch|n_ubatch) += (?P<n>\d+)$")
_SYSTEM_INFO = re.compile(r"system_info: .*? \| (?P<features>.+)$")
_LOADED_BACKEND = re.compile(r"load_backend: loaded (?P<name>\S+) backend")
_DEVICE = re.compile(
    r"^(?:cmn +common_param: +)?- (?P<name>\S+?)(?P<index>\d*) *: (?P<about>.+) \(\d+ MiB, \d+ MiB free\)"
)
_LOADS = "llama_model_loader: "
"""Start of llama.cpp's first lines about a file, before it allocates anything for it."""
_STACK_BYTES = 8 << 20
"""Stack of a thread without a limit of its own: Linux's default."""
_SIGILL_HINT = (
    "this build uses instructions that this CPU lacks: use a build for this CPU, or compile llama.cpp here"
)
_FAULT = re.compile(
    r"error loading model: .+|error while loading shared libraries: .+|error while handling argument .+|error: .+"
    r"|cannot run .+"
    r"|couldn't bind .+|GGML_ASSERT.+|.*\w+Error: .+"
)


class OwnAddress(Address, frozen=True):
    """The address of a server that ggbench started, with the key that ggbench made for it."""

    key: str = ""

    def api_key(self) -> str:
        return self.key


class ServerProcess:
    """A running llama-server. A thread reads its log, so that a flood does not block it."""

    def __init__(self, command: Sequence[str], *, limit_bytes: int | None = None, n_threads: int = 0) -> None:
        """Start it. A random key is passed in the environment, as other users can read a command line.

        `limit_bytes` limits what it allocates from the load on, without the stacks of `n_threads` compute threads.
        """
        self._limit_bytes, self._n_threads, self._key = limit_bytes, n_threads, secrets.token_hex(16)
        self.is_limited = limit_bytes is None
        """Whether the limit is set, or none is wanted."""
        self._limit_error = ""
        """Why the kernel refused the limit; empty if it did not."""
        self._n_oom_kills = count_oom_kills()
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "ggbench.engines.llama_server.keeper", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=program_environment({"LLAMA_API_KEY": self._key}),
            start_new_session=True,  # ggbench handles Ctrl-C and decides about the server
        )
        self.pid: int | None = None
        self.port: int | None = None
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
        if limit_bytes is not None:
            threading.Thread(target=self._end_if_stuck, name="ggbench-server-watch", daemon=True).start()

    @property
    def address(self) -> Address:
        return OwnAddress(f"http://{HOST}:{self.port}", key=self._key)

    @property
    def silent_s(self) -> float:
        """Time since the last line of its log."""
        return time.monotonic() - self._read_at

    @property
    def has_ended(self) -> bool:
        return not self._reader.is_alive()

    def ends_soon(self) -> bool:
        """Return whether it ends within a moment, as after a connection that it broke off by dying."""
        self._reader.join(_DYING_S)
        return self.has_ended

    def stop_keeping(self) -> None:
        """Stop collecting the log for `allocated`: the model is loaded."""
        self._is_loading = False

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
        faults = [match[0] for line in log if (match := _FAULT.search(line))]
        cause = next(iter([*faults, *self._errors, *list(self._tail)[-1:]]), "")
        if status == -signal.SIGILL:
            cause = _SIGILL_HINT
        return Crashed.exited(NAME, status, shorten(cause, 200))

    def _memory_blame(self, log: Sequence[str], status: int) -> str:
        """Return why it ended for lack of memory; empty if it did not."""
        if blame := out_of_memory_line(log):
            return blame
        no_stack = os.strerror(errno.EAGAIN)  # what a thread says that found no room for its stack
        if self._limit_bytes is not None and (blame := next((line for line in log if no_stack in line), "")):
            return blame
        if self._is_stuck:
            return f"{NAME} neither logged nor computed for {_STUCK_S:g} s at its memory limit"
        if status == -signal.SIGKILL and has_oom_kills_since(self._n_oom_kills):
            return f"the kernel killed {NAME} because memory ran out"
        return ""

    def deviation(self, *, drafts: bool) -> GgbenchError | None:
        """Return what the loaded server is not, though it was asked for: limited, or drafting."""
        if self._limit_error:
            return EngineFailed(
                f"the memory of {NAME} cannot be limited: {self._limit_error}", "omit --memory-limit"
            )
        if not self.is_limited:
            what = f"this {NAME} does not log when it loads, so that its memory cannot be limited"
            return EngineFailed(what, "omit --memory-limit, or use a newer build")
        if drafts and (reason := next(filter(None, map(_NO_DRAFTS.search, self.load_log)), None)):
            what = f"{NAME} does not draft: {shorten(reason[0], 200)}"
            return UsageError(what, "give a draft of the same vocabulary, or none")
        return None

    def allocated(self) -> Allocated:
        places = self._places()
        drafts = (number for number, line in enumerate(self.load_log) if _LOADS_DRAFT.search(line))
        first = next(drafts, len(self.load_log))
        draft = parse_allocations(self.load_log[first:], places)
        return replace(parse_allocations(self.load_log[:first], places), draft_buffers=draft.buffers)

    def context_sizes(self) -> dict[str, int]:
        """Return `n_ctx`, `n_batch` and `n_ubatch` as llama.cpp rounded them; without those that the log lacks."""
        return {
            match["name"]: int(match["n"]) for line in self.load_log if (match := _CONTEXT_SIZE.search(line))
        }

    def versions(self, build: Build) -> dict[str, str]:
        """Return the versions for `Ready`, from the build and the log of the load."""
        info = next((match["features"] for line in self.load_log if (match := _SYSTEM_INFO.search(line))), "")
        backends = [part.partition(" : ")[0].strip() for part in info.split("|") if " : " in part]
        backends += [match["name"] for line in self.load_log if (match := _LOADED_BACKEND.search(line))]
        backends += [
            name.rstrip("0123456789") for name, place in self._places().items() if place is not MemoryKind.HOST
        ]
        return {
            "llama_cpp": build.version.partition(" (")[0],
            "llama_cpp_commit": build.commit,
            "build_flags": build.built_with,
            "system_info": shorten(info, 2000),
            "backends": " ".join(shorten(name, 40) for name in dict.fromkeys(backends)),
            "server": " ".join(filter(None, (NAME, build.version))),
        }

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
        while not self.has_ended:
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
        assert self.pid is not None and self._limit_bytes is not None
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        stacks = self._n_threads * (_STACK_BYTES if stack == resource.RLIM_INFINITY else stack)
        try:
            limit_data(self.pid, self._limit_bytes + stacks)
            self.is_limited = True
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
        except OSError as error:
            self._limit_error = error.strerror or str(error)

    def _places(self) -> dict[str, MemoryKind]:
        """Return the kind of memory of each device that the log lists."""
        found: dict[str, MemoryKind] = {}
        for line in self.load_log:
            if (match := _DEVICE.search(line)) and match["name"] not in ("CPU", "BLAS"):
                is_remote, device = match["name"] == "RPC", match["name"] + match["index"]
                found[device] = MemoryKind.REMOTE if is_remote else MemoryKind.GPU
                if is_remote:  # its buffers are named with the server's address
                    found[f"{device}[{match['about']}]"] = MemoryKind.REMOTE
                found[f"{match['name']}_Host"] = MemoryKind.HOST
        return found

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
        if self.port is None and (match := _LISTENING.search(line)):
            self.port = int(match[1] or match[2])
