"""Compute the cost of a sequence's state by length: bytes stored, bytes read, attention operations.

All of it is piecewise linear. Each kind of cache grows up to a limit, and is read up to one: all positions, those in a
sliding window, or the budget of sparse attention, whose indexer reads the keys of all. Recurrent states do not grow.
`ModelFile.states` has the rows of each layer; an architecture with further state raises Unsupported.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection

from msgspec.structs import replace

from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile
from ggbench.record import Record
from ggbench.units import KV_CELLS

_MOST_CELLS = (1 << 32) - 1
"""llama.cpp counts cells in 32 bits."""


class Growth(Record):
    """What caches of one kind cost for each position up to their limit, summed over a set of layers."""

    limit: int | None = None
    """Number of positions; None for all."""
    every: int = 1
    """Positions that have one row together; llama.cpp keeps a multiple of 256 of such rows."""
    n_bytes: float = 0
    """Bytes added to the cache."""
    read_bytes: float = 0
    """Bytes added to those read per token, by all layers that read this cache."""
    flop: float = 0
    """Operations of one token's attention to this position, or of its indexer."""

    def positions(self, n: float, n_window: int | None = None) -> float:
        """Return the positions that count of n; `n_window` replaces the limit."""
        return n if self.limit is None else min(n, n_window or self.limit)

    def padded(self, n: float) -> float:
        """Return n with the positions of the rows that llama.cpp keeps in addition."""
        step = KV_CELLS * self.every
        return n if self.every == 1 else math.ceil(n / step) * step

    def summed_positions(self, n: float) -> float:
        """Return the sum of `positions` for 1, 2, ... n."""
        within = self.positions(n)
        return 0.5 * within * (2 * n - within + 1)

    def part(self, share: float) -> Growth:
        costs = (share * each for each in (self.n_bytes, self.read_bytes, self.flop))
        return Growth(self.limit, self.every, *costs)


class KvCache(Record):
    """The caches of one sequence."""

    type_k: str = "f16"
    type_v: str = "f16"
    growths: tuple[Growth, ...] = ()
    """One for each limit and number of positions of a row."""
    state_bytes: float = 0
    """Recurrent states, of the same size at every length."""

    @property
    def bytes_per_token(self) -> int:
        return round(sum(each.n_bytes for each in self.growths))

    @property
    def breaks(self) -> tuple[int, ...]:
        """Positions beyond which a token reads no more of some cache, so that latency grows otherwise."""
        return tuple(
            sorted({each.limit for each in self.growths if each.limit is not None and each.read_bytes})
        )

    def part(self, share: float) -> KvCache:
        """Return a share of every layer's cache, as one device has some of its heads."""
        growths = tuple(each.part(share) for each in self.growths)
        return replace(self, growths=growths, state_bytes=share * self.state_bytes)

    def cached_bytes(self, n: float, n_window: int | None = None) -> float:
        """Return the bytes of n positions; `n_window` are the cells of a sliding window, if not as many as it has."""
        return self.state_bytes + sum(
            each.n_bytes * each.positions(each.padded(n), n_window) for each in self.growths
        )

    def read_bytes(self, n: float) -> float:
        """Return the bytes that decoding the n-th token reads: of each kind of cache up to its limit, and the states.

        Limits, latencies, forecasts and expected speeds follow from it.
        """
        return self.state_bytes + sum(each.read_bytes * each.positions(n) for each in self.growths)

    def read_growth(self, n: float = math.inf) -> float:
        """Return the bytes that the token after the n-th reads in addition; by default beyond all limits."""
        return sum(each.read_bytes for each in self.growths if each.limit is None or n < each.limit)

    def attention_flop(self, n: float) -> float:
        return sum(each.flop * each.positions(n) for each in self.growths)

    def prefill_bytes(self, n: float) -> float:
        """Return the bytes of KV read in a prefill of n tokens if each reads as decoding at its position (4.3)."""
        return sum(each.read_bytes * each.summed_positions(n) for each in self.growths)

    def prefill_flop(self, n: float) -> float:
        return sum(each.flop * each.summed_positions(n) for each in self.growths)

    def n_that_fit(self, n_bytes: float) -> int:
        """Return the maximum number of positions that fit in `n_bytes`, at most llama.cpp's 2^32 - 1."""
        return max(0, bisect.bisect_right(range(_MOST_CELLS + 1), n_bytes, key=self.cached_bytes) - 1)


def kv_cache(
    file: ModelFile, type_k: str = "f16", type_v: str = "f16", layers: Collection[int] | None = None
) -> KvCache:
    """Return the caches of one sequence for some layers, None for all, with a KV cache of the given types.

    Source: the article, sections 3.2 and 5.2.2, for each layer. Raises Unsupported if the layers have further state or
    a hyperparameter is missing, and UnknownName for an unknown type.
    """
    _require(file)
    states = [state for layer, state in enumerate(file.states) if layers is None or layer in layers]
    costs: dict[tuple[int | None, int], list[float]] = {}
    for state in states:
        for rows in state.kept:
            costs.setdefault((rows.limit, rows.every), [0, 0, 0])[0] += rows.n_bytes(type_k, type_v)
        for rows in state.read:
            cost = costs.setdefault((rows.limit, rows.every), [0, 0, 0])
            cost[1] += rows.n_bytes(type_k, type_v)
            cost[2] += rows.flop / rows.every
    growths = tuple(Growth(*kind, *cost) for kind, cost in costs.items())
    return KvCache(type_k, type_v, growths, sum(state.state_bytes for state in states))


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
