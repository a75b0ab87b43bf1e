"""The speed of a file by the share of the memory bandwidth that this machine's runs of other files reach."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ggbench.expect.machine_runs import Rates
from ggbench.stats.intervals import Estimate, t_95
from ggbench.stats.speed_curve import SpeedCurve, inverse
from ggbench.units import counted, format_number

_FEWEST = 2
"""Minimum number of measured models to extrapolate from."""
_ASSUMED_DEVIATION, _ASSUMED_FREEDOM = 0.25, 3
"""Standard deviation of the shares' logarithms that a few models are combined with, as they may agree by chance, and
its degrees of freedom. Of published rows at 27 places with three models or more, the interval from 2 to 9 others holds
94 to 98 % of a model's share of the weights' bandwidth.
"""


def scaled_curve(
    rates: Sequence[Rates], bytes_per_s: float, latencies: Mapping[int, float]
) -> SpeedCurve | None:
    """Return the latency at the shares of a bandwidth that runs of other models reach; None for fewer than two models.

    `rates` are those of these runs; `latencies` [ms], by position from 1 on, are what the full bandwidth allows.
    """
    if len(rates) < _FEWEST:
        return None
    weights, kv_cache = ([rate / bytes_per_s for rate in each] for each in zip(*rates, strict=True))
    of_weights, of_cache, first = _next_of(weights), _next_of(kv_cache), latencies[1]
    reading = inverse(of_weights, first)
    steps = tuple((n, reading.plus(inverse(of_cache, ms - first))) for n, ms in latencies.items())
    return SpeedCurve("scaled", _source(weights), steps)


def _source(shares: Sequence[float]) -> str:
    low, high = (format_number(100 * each, 2) for each in (min(shares), max(shares)))
    share = low if low == high else f"{low} to {high}"
    return f"this machine's other runs reach {share} % of the bandwidth ({counted(len(shares), 'model')})"


def _next_of(shares: Sequence[float]) -> Estimate:
    """Return the mean and a 95 % prediction interval for one more share, up to 1; shares are taken as log-normal."""
    logarithms = list(map(math.log, shares))
    own = len(shares) - 1
    freedom = _ASSUMED_FREEDOM + own
    variance = (_ASSUMED_FREEDOM * _ASSUMED_DEVIATION**2 + own * statistics.variance(logarithms)) / freedom
    mean = math.exp(statistics.fmean(logarithms))
    factor = math.exp(t_95(freedom) * math.sqrt(variance * (1 + 1 / len(shares))))
    return Estimate(mean, mean / factor, max(mean, min(1.0, mean * factor)))
