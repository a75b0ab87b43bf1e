"""What the bandwidth of memory allows: the time in which decoding reads what it needs from each memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggbench.errors import Unsupported
from ggbench.sizing.placement import Placement
from ggbench.sizing.theory.offload import HOST
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.stats.speed_curve import POSITIONS
from ggbench.text import in_words
from ggbench.units import format_bandwidth


def speed_limits(placement: Placement, n_ctx: int) -> tuple[DecodeLimit | None, float | None]:
    """Return what bandwidth allows: the limit of decoding, and tokens/s at `n_ctx`; nothing if it is unknown.

    A token reads from the memories in turn, unless each device has a part of each layer.
    """
    latency_ms = read_latencies_ms(placement, (1, n_ctx))
    if latency_ms is None:
        return None, None
    return _limit(placement, latency_ms[1]), 1e3 / latency_ms[n_ctx]


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


def _limit(placement: Placement, b_ms: float) -> DecodeLimit:
    growing = {place: cache.unbounded_read_bytes for place, cache in placement.caches.items()}
    growth = _seconds(placement, {place: n_bytes for place, n_bytes in growing.items() if n_bytes})
    read = placement.read_bytes(1)
    used = [placement.bandwidths[place] for place in sorted(read, reverse=True)]
    rate, source = used[0].bytes_per_s, used[0].source
    if len(used) > 1:
        rate = sum(read.values()) / b_ms * 1e3
        source = in_words(
            [f"{format_bandwidth(each.bytes_per_s)} ({each.source})" for each in dict.fromkeys(used)]
        )
    return DecodeLimit(
        w_tokens_per_ms=1 / growth / 1e3 if growth else None,
        b_ms=b_ms,
        bandwidth_bytes_per_s=rate,
        bandwidth_source=source,
    )


def speed_positions(placement: Placement) -> list[int]:
    """Return the positions between which the speed is linear: the usual ones, and the end of a window."""
    window = None if placement.theory is None else placement.theory.window
    return sorted({*POSITIONS, window or 1})


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
