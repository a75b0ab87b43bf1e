"""Making this machine behave like a smaller one, inside the worker.

On the CPU an address-space limit turns the next allocation that is too large into a failure, where plain malloc would
overcommit. On a GPU a ballast buffer takes what the smaller card would not have.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path

_GGML_BACKEND_DEVICE_TYPE_GPU = 1
_M_MMAP_THRESHOLD = -3
"""Of glibc's malloc.h."""
_MMAP_THRESHOLD_BYTES = 1 << 17
"""As glibc begins with."""


class LimitFailed(Exception):
    """The limit could not be put in place."""


def limit_memory(limit_bytes: int, ggml_library: Path, *, on_gpus: bool) -> list[int]:
    """Let what is allocated from here on take at most `limit_bytes`: of each GPU if there are any and they are used.

    Else of main memory. Returns the handles of the ballast, which is held until the process ends. Raises LimitFailed.
    """
    ggml = _open_ggml(ggml_library)
    if gpus := _gpus(ggml) if on_gpus else []:
        return [ballast for device in gpus if (ballast := _fill(ggml, device, limit_bytes))]
    _return_what_is_freed()
    limit = _address_space_bytes() + limit_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return []


def _return_what_is_freed() -> None:
    """Let malloc keep no large block that was freed, so that every allocation meets the same limit.

    Else glibc raises the size up to which blocks come from a heap that seldom shrinks, when one larger is freed.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


def left_bytes(ggml_library: Path, *, on_gpus: bool) -> int | None:
    """What may still be taken: of the GPU that has the least free, else of the limit; None where there is no limit."""
    ggml = _open_ggml(ggml_library)
    free_bytes = [_free_bytes(ggml, device) for device in (_gpus(ggml) if on_gpus else [])]
    if free_bytes:
        return min(free_bytes)
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


def _gpus(ggml: ctypes.CDLL) -> list[int]:
    devices = map(ggml.ggml_backend_dev_get, range(ggml.ggml_backend_dev_count()))
    return [device for device in devices if ggml.ggml_backend_dev_type(device) == _GGML_BACKEND_DEVICE_TYPE_GPU]


def _free_bytes(ggml: ctypes.CDLL, device: int) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value


def _fill(ggml: ctypes.CDLL, device: int, leave_bytes: int) -> int | None:
    excess = _free_bytes(ggml, device) - leave_bytes
    if excess <= 0:
        return None
    ballast: int | None = ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device), excess)
    if not ballast:
        raise LimitFailed(f"could not set {excess} bytes of GPU memory aside")
    return ballast


def _address_space_bytes() -> int:
    """Address space of this process, which Python and the libraries have filled before any model."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _open_ggml(library: Path) -> ctypes.CDLL:
    ggml = ctypes.CDLL(str(library))
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_dev_memory.restype = None
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    ggml.ggml_backend_dev_buffer_type.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_buffer_type.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_buft_alloc_buffer.restype = ctypes.c_void_p
    ggml.ggml_backend_buft_alloc_buffer.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return ggml
