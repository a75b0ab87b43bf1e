"""The memory of the GPUs that llama.cpp uses, asked through ggml, and the ballast that makes a card smaller."""

from __future__ import annotations

import ctypes

from ggbench.engine.ggml_devices import GPU, IGPU, GgmlDevices
from ggbench.units import format_bytes


class LimitFailed(Exception):
    """The limit could not be put in place."""


class GpuMemory:
    """Of every GPU that a model is loaded on; empty, and false, where llama.cpp sees none."""

    def __init__(self, devices: GgmlDevices, main_gpu: int | None) -> None:
        """`main_gpu` is the one GPU in use, None means all."""
        self._ggml = devices.ggml
        chosen = devices.of_type(GPU) or devices.of_type(IGPU)  # as llama.cpp does: integrated ones where no other is
        self._devices = chosen if main_gpu is None else chosen[main_gpu : main_gpu + 1]
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
