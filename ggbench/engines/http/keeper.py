"""Runs a program that never outlives ggbench: `python -m ggbench.engines.http.keeper PROGRAM FLAGS...`.

The program is a tree of processes, as a script starts the server. On Linux all of it stays below the keeper, which
adopts what loses its parent. It ends when stdin closes, which the kernel does when ggbench dies, and when the program
itself ends. The keeper ends as the program did, by the same exit status or signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Source: prctl(2)."""
_END_S = 10.0


class KeptProgram:
    """A program started by a keeper: measured and ended with everything that it has started."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "ggbench.engines.http.keeper", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # ggbench handles Ctrl-C and decides about the program
        )
        assert self._keeper.stdout is not None
        self.output: IO[bytes] = self._keeper.stdout
        """What the program prints, until all of it has ended."""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Return the process that uses the most memory, which is the server behind any script; None without one."""
        import psutil

        sizes = {}
        with contextlib.suppress(psutil.Error):
            for each in psutil.Process(self._keeper.pid).children(recursive=True):
                sizes[each.pid] = each.memory_info().rss
        return max(sizes, key=sizes.__getitem__, default=None)

    def wait(self) -> int | None:
        """Return the exit status of a program that closed its output; None if it does not exit."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._keeper.wait(_END_S)
        return None

    def close(self) -> None:
        """Kill the program with all that it has started, and wait for it; may be called twice."""
        assert self._keeper.stdin is not None
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        self.wait()
        self._keeper.kill()
        self._keeper.wait()
        import psutil

        for pid in psutil.pids():  # left by a keeper that was itself killed
            with contextlib.suppress(OSError):
                if os.getsid(pid) == self._keeper.pid:
                    os.kill(pid, signal.SIGKILL)


def main(command: list[str]) -> None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare, process_group=0)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")

    def watch() -> None:
        os.read(0, 1)
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    _end_adopted()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status)


def _end_adopted() -> None:
    """Kill the processes left to this one; each that ends may leave it further ones, so repeat until none is left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                import psutil

                for each in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        each.kill()
                os.waitpid(-1, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
