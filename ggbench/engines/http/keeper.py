"""Runs a program that never outlives ggbench: `python -m ggbench.engines.http.keeper PROGRAM FLAGS...`.

The program is killed when stdin closes, which the kernel does when ggbench dies, and with it what it started itself, as
a script does. On Linux it is also killed when this process dies. Its output starts with a line of its process id. It
ends as the program did, by the same exit status or signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.write(1, b"%d\n" % os.getpid())

    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare, process_group=0)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")

    def end_all() -> None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)

    def watch() -> None:
        os.read(0, 1)
        end_all()

    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    end_all()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
