"""The memory that an engine allocated, by device, and the rule for what of it a model holds.

llama.cpp copies some matrices into an order that its CPU kernels read faster, a buffer of its own. In a mapped file the
pages that they came from stay in memory until the kernel needs the room, but nothing reads them again. So weights count
each tensor once, whether the file is mapped or read, and a plan says the same as a run.

Measured with llama.cpp 0.5.0-dev on a Xeon with AVX-512, a q4_k_m twin of qwen1.5-0.5b at n_ctx 512: of 382.6 MiB of
tensors 140.1 are repacked. Mapped, the worker had 382.6 of the pages and 222.0 MiB of its own; read, 465.1. After
`clear_refs` a second decode touched 161.1 of the pages: not those 140.1, nor embedding rows without a token.
`--mlock` keeps those pages, which is not counted.
"""

from __future__ import annotations

import enum

import msgspec

_REPACKED = frozenset({"CPU_REPACK", "AMX", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT"})
"""llama.cpp's buffers of repacked matrices."""
_ROUNDING_BYTES = 1 << 16
"""By which buffers and tensors may differ: what llama.cpp's log rounds, and pads each tensor by."""


class Place(enum.StrEnum):
    """The kind of memory that a buffer lies in, as the engine reports it."""

    HOST = "host"
    GPU = "gpu"
    REMOTE = "remote"
    """Another machine's, reached over RPC."""


class DeviceBuffers(msgspec.Struct, frozen=True):
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
    def is_mapped(self) -> bool:
        """Whether its weights are pages of the file in main memory."""
        return self.is_host and self.device.endswith("_Mapped")

    @property
    def is_repacked(self) -> bool:
        """Whether its weights are copies in another order."""
        return self.device in _REPACKED

    @property
    def total_bytes(self) -> int:
        """All four together."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one loaded model and its context took."""

    buffers: tuple[DeviceBuffers, ...] = ()
    """In the order in which they were allocated; those of a load that failed half-way, too."""
    tensor_bytes: int | None = None
    """All tensors of the model, each once; None before it is loaded, and where the engine does not say."""
    n_ctx: int | None = None
    """As the engine rounded it; None without a context."""
    n_batch: int | None = None
    """As the engine clamped it, at most n_ctx; the setup has what was asked for."""
    n_ubatch: int | None = None
    """As the engine clamped it, at most n_batch."""
    flash_attn: bool | None = None
    """What `auto` became; None where the engine does not say."""
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None where the model has none, or the engine does not say."""
    peak_bytes: int | None = None
    """Most resident memory of the engine's process; of a search on GPUs, what they had less free meanwhile."""
    other_bytes: int | None = None
    """What all buffers do not explain of `peak_bytes`, or with weights on GPUs of what the process held there; None
    where they explain more, some being untouched."""

    @property
    def kv_bytes(self) -> int | None:
        """KV caches over all devices; None without a context, and where no buffer was reported."""
        return None if self.n_ctx is None or not self.buffers else sum(each.kv_bytes for each in self.buffers)

    @property
    def compute_bytes(self) -> int | None:
        """Compute buffers over all devices; None as `kv_bytes`."""
        return None if self.n_ctx is None or not self.buffers else sum(each.compute_bytes for each in self.buffers)

    @property
    def weight_bytes(self) -> int | None:
        """Weights over all devices; None where no buffer was reported."""
        if not self.buffers:
            return None
        buffered = sum(each.weight_bytes for each in self.buffers)
        mapped = sum(each.weight_bytes for each in self.buffers if each.is_mapped)
        repacked = sum(each.weight_bytes for each in self.buffers if each.is_repacked)
        if self.tensor_bytes is None or self.weights_on_gpu:
            return buffered - min(mapped, repacked)
        is_all = bool(mapped) or abs(buffered - self.tensor_bytes) <= _ROUNDING_BYTES
        return self.tensor_bytes if is_all else buffered

    @property
    def unread_bytes(self) -> int:
        """Of the buffers: pages of a mapped file that repacked copies were made of, which are in none of the totals."""
        unread = sum(each.weight_bytes for each in self.buffers) - (self.weight_bytes or 0)
        return unread if unread > _ROUNDING_BYTES else 0

    @property
    def total_bytes(self) -> int | None:
        """All that model and context hold on all devices; None where no buffer was reported."""
        if self.weight_bytes is None:
            return None
        return self.weight_bytes + sum(each.total_bytes - each.weight_bytes for each in self.buffers)

    @property
    def weights_on_gpu(self) -> bool:
        """Whether any weights lie outside this machine's main memory."""
        return any(each.weight_bytes and not each.is_host for each in self.buffers)
