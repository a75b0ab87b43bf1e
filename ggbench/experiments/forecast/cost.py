"""What a forecast takes, said before it starts: disk, and roughly how long.

The constants are of the runs that this was written with, on two cores of a Xeon; a GPU is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.experiments.forecast.record import ForecastCost, ForecastSettings, ForecastTwin
from ggbench.stats.decode_timing import Bandwidth

BATCH_ROUNDS = 3
"""Rounds in which a batch is timed too: the spread of two says little."""
_FEWEST_TOKENS = 4
_TIMED_S = 1.0
"""A timing of slow steps takes no longer, unless the fewest tokens do."""
_UNKNOWN_BYTES_PER_S = 20e9
_WEIGHTS_SHARE, _KV_SHARE = 0.5, 0.1
"""Of the memory's bandwidth, that reading weights and a KV cache reach."""
_MADE_BYTES_PER_S = 0.3e9
"""Of a twin that is written, loaded, put into the order that the CPU's kernels read, and removed."""
_STARTED_S = 2.0
"""For each worker."""
_BATCH_TOKENS_PER_STEP = 25
"""Tokens of a batch that take as long as a step."""
_FILL_TOKENS = 32
"""That are read before the cells behind them are copies."""


def n_gen_of(settings: ForecastSettings, step_s: float) -> int:
    """Return the tokens to time at once of a twin whose steps take that long."""
    return min(settings.n_gen, max(_FEWEST_TOKENS, int(_TIMED_S / step_s))) if step_s else settings.n_gen


def forecast_cost(
    twins: Sequence[ForecastTwin],
    disk_bytes: int,
    outside_bytes: float,
    settings: ForecastSettings,
    bandwidth: Bandwidth | None,
    n_placements: int = 1,
) -> ForecastCost:
    """Return what it takes to make twins of `disk_bytes` together and to time them in each placement.

    A step reads `outside_bytes` besides the layers.
    """
    rate = bandwidth.bytes_per_s if bandwidth is not None else _UNKNOWN_BYTES_PER_S
    near_s = [(outside_bytes + twin.cost.layer_bytes) / (_WEIGHTS_SHARE * rate) for twin in twins]
    far_s = near_s[-1] + twins[-1].cost.kv_bytes(settings.n_depth) / (_KV_SHARE * rate)
    timed_s = sum((n_gen_of(settings, step_s) + 1) * step_s for step_s in [*near_s, far_s])
    batch_s = (sum(near_s) + far_s) * settings.n_batch / _BATCH_TOKENS_PER_STEP
    fill_s = near_s[-1] * _FILL_TOKENS / _BATCH_TOKENS_PER_STEP
    probed_s = settings.rounds * (timed_s + fill_s) + min(BATCH_ROUNDS, settings.rounds) * batch_s
    warm_s = 6 * sum(near_s)
    made_s = len(twins) * _STARTED_S + disk_bytes / _MADE_BYTES_PER_S
    return ForecastCost(disk_bytes, made_s + n_placements * (warm_s + probed_s))
