"""The memory that an engine allocated, by device."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Place(enum.StrEnum):
    """The kind of memory that a buffer lies in, as the engine reports it."""

    HOST = "host"
    GPU = "gpu"
    REMOTE = "remote"
    """Another machine's, reached over RPC."""


@dataclass(frozen=True, slots=True)
class DeviceBuffers:
    """What was allocated on one device; bytes."""

    device: str
    """The engine's name: llama.cpp's buffer type, `CPU`, `CPU_REPACK`, `CUDA0`, `CUDA_Host`."""
    place: Place = Place.HOST
    weight_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def is_host(self) -> bool:
        """Whether it lies in this machine's main memory."""
        return self.place is Place.HOST

    @property
    def total_bytes(self) -> int:
        """All four together."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one loaded model and its context took."""

    buffers: tuple[DeviceBuffers, ...] = ()
    """In the order in which they were allocated; those of a load that failed half-way, too."""
    n_ctx: int | None = None
    """As the engine rounded it; None without a context."""
    n_batch: int | None = None
    """As the engine clamped it, at most n_ctx; the setup has what was asked for."""
    n_ubatch: int | None = None
    """As the engine clamped it, at most n_batch."""
    flash_attn: bool | None = None
    """What `auto` became; None where the engine does not say."""
    peak_bytes: int | None = None
    """Most resident memory of the engine's process; of a search on GPUs, what they had less free meanwhile."""
    other_bytes: int | None = None
    """What the buffers do not explain of `peak_bytes`, or with weights on GPUs of what the process held there; None
    where they explain more, some being untouched."""

    @property
    def kv_bytes(self) -> int | None:
        """KV caches over all devices; None without a context."""
        return None if self.n_ctx is None else sum(each.kv_bytes for each in self.buffers)

    @property
    def compute_bytes(self) -> int | None:
        """Compute buffers over all devices; None without a context."""
        return None if self.n_ctx is None else sum(each.compute_bytes for each in self.buffers)

    @property
    def total_bytes(self) -> int | None:
        """All buffers on all devices; None where none was reported."""
        return sum(each.total_bytes for each in self.buffers) if self.buffers else None

    @property
    def weights_on_gpu(self) -> bool:
        """Whether any weights lie outside this machine's main memory."""
        return any(each.weight_bytes and not each.is_host for each in self.buffers)
