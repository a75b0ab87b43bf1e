"""What the bandwidth of memory allows: the time in which decoding reads what it needs from each memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggbench.errors import Unsupported
from ggbench.sizing.placement import Placement
from ggbench.sizing.theory.offload import HOST
from ggbench.stats.speed_curve import POSITIONS


def speed_limit(placement: Placement, n_ctx: int) -> float | None:
    """Return the tokens/s at `n_ctx` that bandwidth allows; None if it is unknown.

    A token reads from the memories in turn, unless each device has a part of each layer.
    """
    latency_ms = read_latencies_ms(placement, (n_ctx,))
    return None if latency_ms is None else 1e3 / latency_ms[n_ctx]


def read_latencies_ms(placement: Placement, positions: Sequence[int]) -> dict[int, float] | None:
    """Return the least time to read what a token at each position needs; None if it is unknown, or nothing is read."""
    try:
        read = {n: placement.read_bytes(n) for n in positions}
    except Unsupported:
        return None
    places = set().union(*read.values())
    if not places or not places <= set(placement.bandwidths):
        return None
    return {n: 1e3 * _seconds(placement, by_place) for n, by_place in read.items()}


def _seconds(placement: Placement, n_bytes: Mapping[int, float]) -> float:
    """Return the time in which these bytes of each memory are read."""
    seconds = {place: each / placement.bandwidths[place].bytes_per_s for place, each in n_bytes.items()}
    of_host = seconds.pop(HOST, 0.0)
    return of_host + (max if placement.is_parallel else sum)((0.0, *seconds.values()))


def speed_positions(placement: Placement) -> list[int]:
    """Return the positions between which latency is linear: the usual ones, and where it begins to grow otherwise."""
    breaks = () if placement.theory is None else placement.theory.breaks
    return sorted({*POSITIONS, *breaks})


def weights_ratio(placement: Placement, n_seqs: int) -> float:
    """Return how much longer a step of `n_seqs` sequences reads the weights than one of a single sequence, at best.

    It exceeds 1 for a mixture: of E experts with k per token, all sequences read E (1 - (1 - k / E)^n_seqs)
    (`Weights.read_bytes`), as if routers chose evenly and independently; trained ones agree more often. If a
    bandwidth is unknown, all memories count as equally fast. 1 if a tensor's size is unknown.
    """
    try:
        read = placement.weights_read
    except Unsupported:
        return 1.0
    rates = {place: rate.bytes_per_s for place, rate in placement.bandwidths.items() if place in read}
    rates = rates if len(rates) == len(read) else dict.fromkeys(read, 1.0)
    one, many = (sum(each.read_bytes(n) / rates[place] for place, each in read.items()) for n in (1, n_seqs))
    return many / one
