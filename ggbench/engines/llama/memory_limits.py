"""Emulate a machine with less memory, inside the worker.

For main memory an address-space limit makes the next allocation that is too large fail, while plain malloc would
overcommit; a GPU is made smaller by a ballast, allocated through ggml.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence

from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.protocol import Refusal
from ggbench.machine import address_space
from ggbench.units import format_bytes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
"""glibc's malloc.h."""
_KEPT_BYTES = 4 << 20
"""Bytes of freed blocks that malloc may keep: more than the sampler needs for a token, little compared with a
context.
"""


def start_threads(library: ctypes.CDLL, n_threads: int) -> None:
    """Start ggml's compute threads, so that a limit set later does not count their stacks.

    They are OpenMP's, found through `library`, which links ggml's CPU backend. They belong to the calling thread and
    stay for its computations with as many threads. Without OpenMP nothing happens.
    """
    if n_threads > 1 and hasattr(library, "GOMP_parallel"):
        # each runs a C function, since one in Python would wait for the others
        nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        library.GOMP_parallel(nothing, None, n_threads, 0)


def limit_memory(limit_bytes: int) -> None:
    """Limit further allocations to `limit_bytes` of main memory. Raises Refusal."""
    if not address_space.CAN_LIMIT:
        raise Refusal("load", "main memory can be limited only on Linux")
    # When a large block is freed, glibc raises the size up to which blocks come from a heap that seldom shrinks, so not
    # every allocation would meet the same limit. If malloc kept nothing at all, the sampler's blocks would be new
    # memory for every token, which takes four times as long.
    with contextlib.suppress(AttributeError):
        for threshold in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(threshold, _KEPT_BYTES)
    address_space.set_limit(address_space.used_bytes() + limit_bytes)


def keep_freed_memory() -> None:
    """Let malloc keep what is freed: a dry context of a hybrid model takes some hundred MB for its graph, and as much
    time for the page faults as for the graph if each has to ask the system for them.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_MAX, 0)
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def left_bytes() -> int | None:
    """Return the bytes left of the limit; None without a limit."""
    limit = address_space.limit_bytes()
    return None if limit is None else max(0, limit - address_space.used_bytes())


@contextlib.contextmanager
def beside_the_limit(n_bytes: int) -> Iterator[None]:
    """Raise the limit by this much for ggbench's own use, beyond model and context."""
    limit = address_space.limit_bytes()
    if limit is None:
        yield
        return
    address_space.set_limit(limit + n_bytes)
    try:
        yield
    finally:
        address_space.set_limit(limit)


class GpuMemory:
    """The memory of all GPUs used by a model; empty, and false, if llama.cpp sees none."""

    def __init__(self, devices: GgmlDevices, used: Sequence[int]) -> None:
        """`used` are those in use."""
        self._ggml, self._every, self._devices = devices.ggml, devices, used

    def __bool__(self) -> bool:
        return bool(self._devices)

    @property
    def left_bytes(self) -> int:
        """Free bytes if all are filled equally: the smallest free memory of one, times their number."""
        return min((self._free_bytes(each) for each in self._devices), default=0) * len(self._devices)

    def _free_bytes(self, device: int) -> int:
        return self._every.memory(device)[0]

    def shrink(self, limit_bytes: int | None, reserve_bytes: int) -> None:
        """Keep memory above the limit of each GPU, and the reserve, until the process ends. Raises Refusal."""
        every_free = [self._free_bytes(device) for device in self._devices]
        over = [0 if limit_bytes is None else max(0, free_bytes - limit_bytes) for free_bytes in every_free]
        held = [min(free, each + reserve_bytes) for free, each in zip(every_free, over, strict=True)]
        if any(held) and held == every_free:
            free, reserve = format_bytes(sum(every_free)), format_bytes(reserve_bytes)
            message = f"a reserve of {reserve} on each GPU uses up {free} of free GPU memory"
            raise Refusal("load", message, out_of_memory=True)
        for device, n_bytes in zip(self._devices, held, strict=True):
            self._set_aside(device, n_bytes)

    def _set_aside(self, device: int, n_bytes: int) -> None:
        """Allocate a ballast. Raises Refusal, also if the driver does not count it, as Vulkan ones without a memory
        budget.
        """
        free_bytes, buffer_type = self._free_bytes(device), self._ggml.ggml_backend_dev_buffer_type(device)
        largest = self._ggml.ggml_backend_buft_get_max_size(buffer_type)  # Vulkan limits one buffer
        left = n_bytes
        while left:
            size = min(left, largest)
            ballast: int | None = self._ggml.ggml_backend_buft_alloc_buffer(buffer_type, size)
            if not ballast:
                message = f"could not allocate {format_bytes(n_bytes)} of GPU memory as ballast"
                raise Refusal("load", message, out_of_memory=True)
            if self._free_bytes(device) >= free_bytes:
                message = "this GPU's driver does not report what is allocated, so its memory cannot be limited"
                raise Refusal("load", message)
            left -= size
