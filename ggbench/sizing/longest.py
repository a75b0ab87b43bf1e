"""The longest context that a plan foresees, the same in a plan and in a search for the largest context."""

from __future__ import annotations

from collections.abc import Callable

from ggbench.engines.endings import EngineEnded, Failed, OutOfMemory
from ggbench.gguf_file.model_file import ModelFile
from ggbench.sizing.bracket import largest_n_ctx
from ggbench.sizing.dry_allocator import DryContext
from ggbench.sizing.placement import Placement
from ggbench.units import KV_CELLS

CEILING = 1 << 20
"""No longer context is planned, unless the model was trained for one."""
LONGEST = 1 << 24
"""Of any context: beyond it even a dry run takes a gigabyte, for a table of the cache's cells."""

_TOO_MUCH = 1 << 62
"""For a context that llama.cpp refuses even to size."""


def planning_ceiling(file: ModelFile, n_ctx: int = 0) -> int:
    """The longest context that is looked for, at least `n_ctx`; a multiple of 256."""
    return max(CEILING, n_ctx, min(file.n_ctx_train or 0, LONGEST)) // KV_CELLS * KV_CELLS


def longest_n_ctx(
    placement: Placement, usable_bytes: int, size: Callable[[int], DryContext], first: DryContext, ceiling: int
) -> int:
    """The longest context that the bytes hold with its weights and process, looked for from `first`; 0 where none is.

    `size` makes a dry context, and the placement has to know the size of the weights. Raises EngineEnded where the
    worker ends, but not where llama.cpp refuses a context.
    """
    weight_bytes = placement.weight_bytes
    assert weight_bytes is not None
    if weight_bytes > usable_bytes:
        return 0

    def need(n_ctx: int) -> int:
        try:
            context = first if n_ctx == first.n_ctx else size(n_ctx)
        except EngineEnded as end:
            if not isinstance(end.ending, Failed | OutOfMemory):
                raise
            return _TOO_MUCH
        return placement.needed_bytes(context, usable_bytes)

    bytes_per_token = placement.cache_bytes(first) / first.n_ctx
    return largest_n_ctx(need, usable_bytes, ceiling, first.n_ctx, bytes_per_token)
