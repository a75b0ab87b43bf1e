"""How fast a plan could be at best: what the bandwidth of the planned memory allows."""

from __future__ import annotations

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget, PlannedSpeed
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.limits import DECODE_POSITIONS, decode_limit, decode_read_ms
from ggbench.sizing.theory.weights import file_weights
from ggbench.stats.decode_timing import DecodeLimit


def speed_bounds(
    file: ModelFile, setup: LlamaConfig, budget: Budget, placement: Placement, longest: int | None, n_ctx: int
) -> tuple[DecodeLimit | None, tuple[PlannedSpeed, ...]]:
    """Return the bound of the planned memory's bandwidth, and the speeds at the fixed positions and at `n_ctx`.

    `longest` is the longest context that fits. None where weights lie in memories of two speeds.
    """
    bandwidth = budget.bandwidth
    if bandwidth is None or placement.has_two_speeds:
        return None, ()
    try:
        limit = decode_limit(file, bandwidth, setup.type_k, setup.type_v)
        weights, cache = file_weights(file, file.name), kv_cache(file, setup.type_k, setup.type_v)
    except Unsupported:
        return None, ()
    positions = (*DECODE_POSITIONS, n_ctx)
    latencies = [decode_read_ms(weights, cache, bandwidth.bytes_per_s, n) for n in positions]
    return limit, tuple(
        PlannedSpeed(n, ms, 1e3 / ms, None if longest is None else longest >= n)
        for n, ms in zip(positions, latencies, strict=True)
    )
