"""Making this machine behave like one with less main memory, inside the worker.

An address-space limit turns the next allocation that is too large into a failure, where plain malloc would overcommit.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's malloc.h."""
_KEPT_BYTES = 4 << 20
"""What malloc may keep of freed blocks: more than the sampler takes for each token, little beside a context."""


def limit_memory(limit_bytes: int) -> None:
    """Limit what is allocated from here on to `limit_bytes` of main memory."""
    _return_what_is_freed()
    limit = _address_space_bytes() + limit_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def left_bytes() -> int | None:
    """What may still be taken; None where there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else max(0, limit - _address_space_bytes())


@contextlib.contextmanager
def beside_the_limit(n_bytes: int) -> Iterator[None]:
    """Room for something of our own that large, which neither the model nor a context would need."""
    limit, hard = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        yield
        return
    raised = limit + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (raised if hard == resource.RLIM_INFINITY else min(raised, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _return_what_is_freed() -> None:
    """Let malloc keep little of what was freed, so that every allocation meets the same limit.

    Else glibc raises the size up to which blocks come from a heap that seldom shrinks, when one larger is freed. If it
    kept nothing at all, the sampler's blocks would be new memory for every token, which takes four times as long.
    """
    with contextlib.suppress(AttributeError):
        for threshold in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(threshold, _KEPT_BYTES)


def _address_space_bytes() -> int:
    """Address space of this process, which Python and the libraries have filled before any model."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
