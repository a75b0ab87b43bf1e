"""The memory of the GPUs that llama.cpp uses, asked through ggml, and the ballast that makes a card smaller."""

from __future__ import annotations

import ctypes
from pathlib import Path

from ggbench.units import format_bytes

_GPU, _IGPU = 1, 2
"""Of ggml's `ggml_backend_dev_type`; an integrated GPU works in main memory."""


class LimitFailed(Exception):
    """The limit could not be put in place."""


class GpuMemory:
    """Of every GPU that a model is loaded on; empty, and false, where llama.cpp sees none."""

    def __init__(self, ggml_library: Path, main_gpu: int | None) -> None:
        """`main_gpu` is the one GPU in use, None means all."""
        self._ggml = _open_ggml(ggml_library)
        self._devices = self._list_devices(main_gpu)
        self._ballast: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._devices)

    @property
    def left_bytes(self) -> int:
        """What may still be taken, if it is taken of all alike: the least that one has free, times their number."""
        return min(map(self._free_bytes, self._devices), default=0) * len(self._devices)

    def shrink(self, limit_bytes: int | None, reserve_bytes: int) -> None:
        """Hold what is over the limit of each GPU, and the reserve, until the process ends. Raises LimitFailed."""
        every_free = [self._free_bytes(device) for device in self._devices]
        over = [0 if limit_bytes is None else max(0, free_bytes - limit_bytes) for free_bytes in every_free]
        held = [min(free, each + reserve_bytes) for free, each in zip(every_free, over, strict=True)]
        if any(held) and held == every_free:
            free, reserve = format_bytes(sum(every_free)), format_bytes(reserve_bytes)
            raise LimitFailed(f"of {free} of free GPU memory a reserve of {reserve} on each GPU leaves nothing")
        for device, n_bytes in zip(self._devices, held, strict=True):
            if n_bytes:
                self._ballast.append(self._hold(device, n_bytes))

    def _list_devices(self, main_gpu: int | None) -> list[int]:
        """As llama.cpp chooses them: integrated GPUs only where there is no other."""
        ggml = self._ggml
        every = [ggml.ggml_backend_dev_get(index) for index in range(ggml.ggml_backend_dev_count())]
        by_type = {kind: [each for each in every if ggml.ggml_backend_dev_type(each) == kind] for kind in (_GPU, _IGPU)}
        devices = by_type[_GPU] or by_type[_IGPU]
        return devices if main_gpu is None else devices[main_gpu : main_gpu + 1]

    def _free_bytes(self, device: int) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        return free.value

    def _hold(self, device: int, n_bytes: int) -> int:
        buffer_type = self._ggml.ggml_backend_dev_buffer_type(device)
        ballast: int | None = self._ggml.ggml_backend_buft_alloc_buffer(buffer_type, n_bytes)
        if not ballast:
            raise LimitFailed(f"could not set {format_bytes(n_bytes)} of GPU memory aside")
        return ballast


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
