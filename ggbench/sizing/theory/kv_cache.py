"""Compute the cost of a sequence's state by length: bytes stored, bytes read, attention operations.

Layers with a sliding window stop growing at the window, and recurrent states do not grow at all. `ModelFile.states` has
the kind of each layer; an architecture with further state raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from ggbench.errors import Unsupported
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.gguf_file.model_file import ModelFile

_MOST_CELLS = (1 << 32) - 1
"""llama.cpp counts cells in 32 bits."""


class Growth(msgspec.Struct, frozen=True):
    """Cost of one position, summed over a set of layers."""

    n_bytes: int = 0
    """Bytes added to the cache."""
    read_bytes: int = 0
    """Bytes added to those read per token: more than `n_bytes` if layers share a cache."""
    flop: int = 0
    """Operations of one token's attention to this position: a multiplication and an addition for each query head and
    element of its K and V."""


class KvCache(msgspec.Struct, frozen=True):
    """The cache of one sequence."""

    type_k: str
    type_v: str
    full: Growth
    """Layers that keep every position."""
    windowed: Growth = Growth()
    """Layers that keep the last `window` positions."""
    window: int | None = None
    state_bytes: int = 0
    """Recurrent states, of the same size at every length."""

    @property
    def bytes_per_token(self) -> int:
        return self.full.n_bytes + self.windowed.n_bytes

    def part(self, share: float) -> KvCache:
        """Return a share of every layer's cache, as one device has some of its heads."""
        full, windowed = (
            Growth(*(round(share * each) for each in msgspec.structs.astuple(part)))
            for part in (self.full, self.windowed)
        )
        return replace(self, full=full, windowed=windowed, state_bytes=round(share * self.state_bytes))

    def cached_bytes(self, n: float) -> float:
        return self.state_bytes + self._over(n, self.full.n_bytes, self.windowed.n_bytes)

    def read_bytes(self, n: float) -> float:
        """Return the bytes that decoding the n-th token reads: each layer's KV within its window, and the states."""
        return self.state_bytes + self._over(n, self.full.read_bytes, self.windowed.read_bytes)

    def attention_flop(self, n: float) -> float:
        return self._over(n, self.full.flop, self.windowed.flop)

    def prefill_bytes(self, n: float) -> float:
        """Return the bytes of KV read in a prefill of n tokens if each reads all positions up to its own (4.3)."""
        return self._summed_over(n, self.full.read_bytes, self.windowed.read_bytes)

    def prefill_flop(self, n: float) -> float:
        return self._summed_over(n, self.full.flop, self.windowed.flop)

    def n_that_fit(self, n_bytes: float) -> int:
        """Return the maximum number of positions that fit in `n_bytes`, at most llama.cpp's 2^32 - 1."""
        n_bytes -= self.state_bytes
        if n_bytes < self.bytes_per_token:
            return 0
        if not self.window or n_bytes <= self.bytes_per_token * self.window:
            return (
                min(_MOST_CELLS, int(n_bytes / self.bytes_per_token)) if self.bytes_per_token else _MOST_CELLS
            )
        beyond = n_bytes - self.windowed.n_bytes * self.window
        return min(_MOST_CELLS, int(beyond / self.full.n_bytes)) if self.full.n_bytes else _MOST_CELLS

    def _over(self, n: float, full: int, windowed: int) -> float:
        """Return `full` times n plus `windowed` times the part of n within the window."""
        return full * n + windowed * min(n, self.window or n)

    def _summed_over(self, n: float, full: int, windowed: int) -> float:
        """Return the sum of `_over` for 1, 2, ... n."""
        within = min(n, self.window or n)
        return 0.5 * (full * n * (n + 1) + windowed * within * (2 * n - within + 1))


def kv_cache(
    file: ModelFile, type_k: str = "f16", type_v: str = "f16", layers: Collection[int] | None = None
) -> KvCache:
    """Return the cache of one sequence for some layers, None for all, with a KV cache of the given types.

    Source: the article, sections 3.2 and 5.2.2, for each layer. Raises Unsupported if the layers have further state or
    a hyperparameter is missing, and UnknownName for an unknown type.
    """
    _require(file)
    parts = {False: [0, 0, 0], True: [0, 0, 0]}
    states = [(layer, state) for layer, state in enumerate(file.states) if layers is None or layer in layers]
    for layer, state in states:
        part = parts[state.window is not None]
        read = state if state.reads_layer is None else file.states[state.reads_layer]
        part[0] += row_bytes(type_k, state.k_width) + row_bytes(type_v, state.v_width)
        part[1] += row_bytes(type_k, read.k_width) + row_bytes(type_v, read.v_width)
        part[2] += 2 * file.n_head[layer] * (state.head_dim_k + state.head_dim_v)
    window = next((state.window for state in file.states if state.window), None)
    return KvCache(
        type_k=type_k,
        type_v=type_v,
        full=Growth(*parts[False]),
        windowed=Growth(*parts[True]),
        window=window,
        state_bytes=sum(state.state_bytes for _, state in states),
    )


def checkpoint_bytes(file: ModelFile, type_k: str, type_v: str, *, swa_full: bool = False) -> int | None:
    """Return the size of one of llama-server's context checkpoints, without its few bytes for each cell.

    It is a slot's windows and recurrent states, which cannot be rolled back; 0 for a model that has neither. None if
    the header does not determine them. Source: `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY` in llama_kv_cache_iswa and
    llama_memory_hybrid, and `create_checkpoint` in server-context.cpp.
    """
    try:
        cache = kv_cache(file, type_k, type_v)
    except Unsupported:
        return None
    windows = 0 if swa_full else cache.windowed.n_bytes * (cache.window or 0)
    return windows + cache.state_bytes


def _require(file: ModelFile) -> None:
    """Raise Unsupported if the state is unknown, or if the header lacks a key needed to compute its size."""
    is_recurrent = any(state.recurrent_elements for state in file.states)
    has_heads = is_recurrent or (any(file.n_head) and file.head_dim_k)
    if not (file.n_layer and file.n_embd and has_heads):
        raise Unsupported(
            f"{file.name}: the header lacks layers, width or heads, which are needed for the size of the KV cache",
            "convert the model again with a converter that writes them",
        )
    file.require_kv()
