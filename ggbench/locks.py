"""Locks that the kernel holds for a process until it ends, and waits that say what they wait for.

They tell who lives, where a pid does not: in another container it may be another process's, or no one's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_SAY_AFTER_S = 2.0


def wait_for(
    attempt: Callable[[], bool],
    what: str,
    *,
    limit_s: float,
    pause_s: float = 0.1,
    progress: Callable[[], object] = lambda: None,
) -> bool:
    """Attempt something until it succeeds, and say on stderr after 2 s that it waits for `what`.

    Returns False once the value of `progress` has not changed for `limit_s`.
    """
    begun_s = moved_s = time.monotonic()
    seen, is_said = progress(), False
    while not attempt():
        now_s = time.monotonic()
        if not is_said and now_s - begun_s >= _SAY_AFTER_S:
            is_said = True
            sys.stderr.write(f"waiting for {what}\n")
        found = progress()
        if found != seen:
            seen, moved_s = found, now_s
        if now_s - moved_s >= limit_s:
            return False
        time.sleep(pause_s)
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file or folder until the block or this process ends.

    Raises BlockingIOError if another holds it, in this process too, and OSError, also from a file system without such
    locks; a network file system has them for files that may be written. Source: flock(2).
    """
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR
    descriptor = os.open(path, access | os.O_NONBLOCK)  # not waiting for the reader of a FIFO
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
