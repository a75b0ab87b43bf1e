"""A llama-server that ggbench starts: with the flags of the commands that `ggbench pick` prints, on a free port of the
loopback interface, with a random key; its log, and how it ended.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import threading
import time
from collections import deque
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
from ggbench.engines.http.keeper import KeptProgram
from ggbench.engines.http.program import (
    NAME,
    describe_build,
    program_environment,
    refused_option,
    split_command,
)
from ggbench.engines.llama.config import whole_steps
from ggbench.engines.llama.flags import server_flags
from ggbench.errors import GgbenchError, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import with_vocabulary
from ggbench.machine.host import count_oom_kills, has_oom_kills_since
from ggbench.text import shorten

_HOST = "127.0.0.1"
_MAX_LOG_BYTES = 8 << 20
"""Bytes kept of a load's log, each line with those of a string; a log of every tensor has some thousand lines."""
_TAIL_LINES = 200
_MAX_LINE_BYTES = 1 << 16
_POLL_S = 0.05
_END_S = 10.0
_LINE_OVERHEAD = 64
_DYING_S = 1.0
_PREFIX = re.compile(r"^\d+\.\d+\.\d+\.\d+ [A-Z] ")
"""llama-server's prefix of a line: time, level."""


class ServerProcess:
    """A running llama-server. A thread reads its log, so that a flood does not block it."""

    def __init__(self, setup: LlamaServerConfig, source: Source) -> None:
        """Start it; without an n_ctx, with the smallest context.

        A random key is passed in the environment, as other users can read a command line. Raises BadFile, Unsupported,
        DoesNotFit if the disk lacks room for a twin's copy, and like `describe_build`.
        """
        self.setup, self._key = setup, secrets.token_hex(16)
        self.build = describe_build(setup.program_words)
        self.n_ctx = setup.n_ctx or whole_steps(1) * setup.n_streams
        """The context that it is started with, of all slots."""
        self._n_oom_kills = count_oom_kills()
        self._kept = KeptProgram(self._command(source), program_environment({"LLAMA_API_KEY": self._key}))
        self._port: int | None = None
        """None until its log names it."""
        self.load_log: list[str] = []
        self._log_bytes = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._is_loading = True
        self._read_at = time.monotonic()
        self._reader = threading.Thread(target=self._read, name="ggbench-server-log", daemon=True)
        self._reader.start()

    def _command(self, source: Source) -> list[str]:
        """Return the words that start it."""
        setup = self.setup
        assert source.path is not None
        program, own = split_command(setup.words)
        given = server_flags(
            replace(setup, n_ctx=self.n_ctx),
            on_gpu=True,
            draft=[] if source.draft is None else ["-md", str(_with_tokens(source.draft))],
            spec_type=setup.spec_type,
            n_draft=setup.n_draft,
        )
        words = [*program, "-m", str(_with_tokens(source.path)), *given, "--host", _HOST, "--port", "0"]
        return [*words, *(["-lv", "4"] if self.build.can_trace else []), *own]

    @property
    def pid(self) -> int | None:
        """Return the process to measure; None if it has ended."""
        return self._kept.pid

    @property
    def address(self) -> Address:
        return Address(f"http://{_HOST}:{self._port}", own_key=self._key)

    def wait_until_loaded(self, cancel: threading.Event, timeout_s: float) -> Ending:
        """Return how the load ended: with a server that answers, and drafts if it was asked to, or without."""
        ending = self._wait(cancel, timeout_s)
        self._is_loading = False
        refusal: GgbenchError | None = None
        if isinstance(ending, Crashed):
            refusal = refused_option(ending.message, self.setup.words, self.build)
        elif (
            isinstance(ending, Completed)
            and self.setup.spec_type
            and (reason := server_log.no_drafts(self.load_log))
        ):
            hint = "give a draft of the same vocabulary, or none"
            refusal = UsageError(f"{NAME} does not draft: {reason}", hint)
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
        with contextlib.suppress(GgbenchError), contextlib.closing(Client(self.address, timeout_s)) as client:
            return client.ask("/health").status == 200
        return False

    def ends_soon(self) -> bool:
        """Return whether it ends within a moment, as after a connection that it broke off by dying."""
        self._reader.join(_DYING_S)
        return not self._reader.is_alive()

    def ending(self, stage: Stage) -> Ending:
        """Return how the ended server ended, by the cause in its log."""
        self._reader.join(_END_S)
        status = self._kept.wait()
        if status is None:
            self.close()
            return Crashed(f"{NAME} closed its log but did not exit")
        log = [*self.load_log, *self._tail]
        blame = out_of_memory_line(log)
        if not blame and status == -signal.SIGKILL and has_oom_kills_since(self._n_oom_kills):
            blame = f"the kernel killed {NAME} because memory ran out"
        if blame:
            return OutOfMemory(stage, shorten(blame, 200), alive=False)
        cause = next(iter([*server_log.faults(log), *list(self._tail)[-1:]]), "")
        return Crashed.exited(NAME, status, shorten(cause, 200))

    def close(self) -> None:
        """Kill the server and wait for it; may be called twice."""
        self._kept.close()
        self._reader.join(_END_S)

    def _read(self) -> None:
        with self._kept.output as output:
            for raw in iter(lambda: output.readline(_MAX_LINE_BYTES), b""):
                self._take(raw.decode(errors="replace").rstrip())

    def _take(self, line: str) -> None:
        """Keep a line; one of a log that is longer than any load's is no sign of life."""
        line = _PREFIX.sub("", line)
        self._tail.append(line)
        if self._is_loading and self._log_bytes < _MAX_LOG_BYTES:
            self._log_bytes += len(line) + _LINE_OVERHEAD
            self.load_log.append(line)
            self._read_at = time.monotonic()
        if self._port is None:
            self._port = server_log.port_of(line)


def _with_tokens(path: Path) -> Path:
    """Return the file, or for a twin, at whose lack of a tokenizer llama-server aborts, a copy with one.

    Raises BadFile, Unsupported, and DoesNotFit if the disk lacks room.
    """
    file = read_model_file(path)
    is_without = file.metadata.get("tokenizer.ggml.model") == "none"
    return with_vocabulary(file, paths.twins_dir()) if file.is_twin and is_without else path
