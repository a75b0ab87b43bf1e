"""Limit what an RPC server exposes of a device's memory: it reports and allocates no more than that.

llama.cpp's server has no such limit, and reports all of main memory as free on a CPU. Functions in ggml's tables of the
device, of its buffer type and of each buffer are replaced by counting ones, in the server's process alone.

Source: `ggml_backend_device_i`, `ggml_backend_buffer_type_i` and `ggml_backend_buffer_i` in ggml-backend-impl.h. Each
object begins with its table. They are no public interface, so the constructor checks that the replaced functions are
called.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ggbench.engines.llama.ggml_devices import GgmlDevices

_GET_MEMORY, _ALLOC_BUFFER, _FREE_BUFFER = 2, 1, 0
"""Places in the three tables."""
_size = ctypes.c_size_t
_GetMemory = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_size), ctypes.POINTER(_size))
_AllocBuffer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, _size)
_FreeBuffer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PROBE_BYTES = 1 << 16


class NotLimited(Exception):
    """The limit has no effect with this llama.cpp."""


class ExposedMemory:
    """At most `limit_bytes` of one device; has to live as long as the device is used."""

    def __init__(self, devices: GgmlDevices, device: int, limit_bytes: int) -> None:
        """Raises NotLimited."""
        self._ggml, self._device, self._limit = devices.ggml, device, limit_bytes
        self._taken: dict[int, int] = {}
        buffer_type = self._ggml.ggml_backend_dev_buffer_type(device)
        memory, allocation = _table(device), _table(buffer_type)
        self._get_memory = _GetMemory(memory[_GET_MEMORY])
        self._alloc_buffer = _AllocBuffer(allocation[_ALLOC_BUFFER])
        self._free_buffers: dict[int, Any] = {}
        self._callbacks = _GetMemory(self._report), _AllocBuffer(self._allocate), _FreeBuffer(self._free)
        memory[_GET_MEMORY] = _pointer(self._callbacks[0])
        allocation[_ALLOC_BUFFER] = _pointer(self._callbacks[1])
        self._check(buffer_type)

    @property
    def free_bytes(self) -> int:
        """What may still be allocated."""
        return max(0, self._limit - sum(self._taken.values()))

    def _report(self, device: int, free: Any, total: Any) -> None:  # noqa: ANN401 - pointers to size_t
        self._get_memory(device, free, total)
        free[0] = min(free[0], self.free_bytes)
        total[0] = min(total[0], self._limit)

    def _allocate(self, buffer_type: int, n_bytes: int) -> int | None:
        if n_bytes > self.free_bytes:
            return None
        buffer: int | None = self._alloc_buffer(buffer_type, n_bytes)
        if buffer:
            self._taken[buffer] = n_bytes
            table = _table(buffer)
            self._free_buffers[buffer] = _FreeBuffer(table[_FREE_BUFFER])
            table[_FREE_BUFFER] = _pointer(self._callbacks[2])
        return buffer

    def _free(self, buffer: int) -> None:
        self._taken.pop(buffer, None)
        self._free_buffers.pop(buffer)(buffer)

    def _check(self, buffer_type: int) -> None:
        self._ggml.ggml_backend_buffer_free.argtypes = [ctypes.c_void_p]
        buffer = self._ggml.ggml_backend_buft_alloc_buffer(buffer_type, _PROBE_BYTES)
        is_counted = not buffer or buffer in self._taken
        if buffer:
            self._ggml.ggml_backend_buffer_free(buffer)
        if not is_counted or self._taken or self._reported() > self._limit:
            raise NotLimited

    def _reported(self) -> int:
        free, total = _size(), _size()
        self._ggml.ggml_backend_dev_memory(self._device, ctypes.byref(free), ctypes.byref(total))
        return free.value


def _table(address: int) -> Any:  # noqa: ANN401 - a pointer to function pointers
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))


def _pointer(callback: Any) -> int | None:  # noqa: ANN401 - a function of ctypes
    return ctypes.cast(callback, ctypes.c_void_p).value
