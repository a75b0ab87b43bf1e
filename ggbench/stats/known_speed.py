"""The latency of a step at any position, from what is known of a quant's speed."""

from __future__ import annotations

import bisect

from ggbench.records.forecast import Expected
from ggbench.records.known_speed import KnownSpeed


def step_ms_at(known: KnownSpeed, n: int) -> Expected:
    """Return the latency of the token at position `n`, by the line through the two known positions around it."""
    positions = [position for position, _ in known.step_ms]
    above = min(max(bisect.bisect_left(positions, n), 1), len(positions) - 1)
    (n0, one), (n1, other) = known.step_ms[above - 1], known.step_ms[above]
    share = (n - n0) / (n1 - n0)
    value, low = (
        before + share * (after - before) for before, after in ((one.value, other.value), (one.low, other.low))
    )
    return Expected(value, low, one.high + share * (other.high - one.high) if one.high < float("inf") else one.high)
