"""What share of the memory's bandwidth the models reach that this machine has run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from ggbench.experiments.decode.record import DecodeResult
from ggbench.experiments.forecast.record import ForecastResult
from ggbench.runs.run import Run
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.stats.intervals import Expected
from ggbench.units import counted, format_number

_FEWEST = 2
"""Models that have to be measured before others are expected to be like them."""
_LEAST_DEVIATION = 0.15
"""Of the shares' logarithms: how far quants and models of all sizes differ on the Xeon that this was written on. A few
models may happen to be alike."""


class BandwidthShares(msgspec.Struct, frozen=True):
    """Median over the models, with the interval of one more model."""

    weights: Expected
    """Of the bandwidth, that reading the weights reaches; 1.0 is all of it."""
    kv_cache: Expected
    """As above, of what a longer context adds."""
    seen: tuple[float, ...]
    """Of the weights, of each model."""

    @property
    def source(self) -> str:
        """For people: `this machine's other runs reach 41 to 52 % of the bound (5 models)`."""
        low, high = (format_number(100 * each, 2) for each in (min(self.seen), max(self.seen)))
        share = low if low == high else f"{low} to {high}"
        return f"this machine's other runs reach {share} % of the bound ({counted(len(self.seen), 'model')})"


def bandwidth_shares(runs: Iterable[Run], bandwidth_bytes_per_s: float) -> BandwidthShares | None:
    """Return the shares of a bandwidth that the newest run of each model reaches; None for fewer than two models."""
    found: dict[str, tuple[float, float]] = {}
    for run in runs:
        key, rates = run.subject.shape_key or run.subject.header_sha256, _rates(run)
        if key and rates is not None:
            found.setdefault(key, rates)
    if len(found) < _FEWEST:
        return None
    weights, kv_cache = (
        [rate / bandwidth_bytes_per_s for rate in rates] for rates in zip(*found.values(), strict=True)
    )
    return BandwidthShares(_next_of(weights), _next_of(kv_cache), tuple(weights))


def _rates(run: Run) -> tuple[float, float] | None:
    """Bytes/s of weights and of KV; those of all together for both where a line does not separate them."""
    match run.result:
        case DecodeResult(fit=fit, limit=DecodeLimit() as limit, latency=latency) if latency is not None:
            if fit is not None and fit.b_ms and fit.w_tokens_per_ms:
                return _of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
            rate = limit.bandwidth_bytes_per_s * limit.b_ms * latency.tok_s / 1e3
            return rate, rate
        case ForecastResult(b_ms=Expected() as b_ms, w_tokens_per_ms=w, limit=DecodeLimit() as limit):
            return _of_line(limit, b_ms.value, None if w is None else w.value)
    return None


def _of_line(limit: DecodeLimit, b_ms: float, w_tokens_per_ms: float | None) -> tuple[float, float]:
    weights = limit.bandwidth_bytes_per_s * limit.b_ms / b_ms
    if w_tokens_per_ms is None or limit.w_tokens_per_ms is None:
        return weights, weights
    return weights, limit.bandwidth_bytes_per_s * w_tokens_per_ms / limit.w_tokens_per_ms


def _next_of(shares: Sequence[float]) -> Expected:
    """The median, and where one more share lies with 95 %; they spread evenly as logarithms, and to 1 at most."""
    median = statistics.median(shares)
    deviation = max(_LEAST_DEVIATION, statistics.stdev(math.log(each) for each in shares))
    factor = math.exp(2 * deviation * math.sqrt(1 + 1 / len(shares)))
    return Expected(median, median / factor, max(median, min(1.0, median * factor)))
