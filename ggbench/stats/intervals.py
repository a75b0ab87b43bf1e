"""Estimates with their intervals, and the intervals of ratios and differences of two estimates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end; equal for an exact value; an end may be infinite."""

_LARGEST_EXPONENT = 700.0
"""exp() of this is close to the largest float."""


def ratio_interval(one: float, one_ci: Interval, other: float, other_ci: Interval) -> Interval:
    """Return the interval of `one / other`, two independent positive estimates, from their own intervals.

    An end is infinite if the interval of `other` reaches zero, and 0 if that of `one` does. Source: the method of
    variance estimates recovery on the logarithms, G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008) 1693.
    """
    ratio = math.log(one / other)
    below = math.hypot(log_ratio(one, one_ci[0]), log_ratio(other_ci[1], other))
    above = math.hypot(log_ratio(one_ci[1], one), log_ratio(other, other_ci[0]))
    return _exp(ratio - below), _exp(ratio + above)


def difference_interval(one: float, one_ci: Interval, other: float, other_ci: Interval) -> Interval:
    """Return the interval of `one - other`, two independent estimates; same source as `ratio_interval`."""
    difference = one - other
    below = math.hypot(one - one_ci[0], other_ci[1] - other)
    above = math.hypot(one_ci[1] - one, other - other_ci[0])
    return difference - below, difference + above


def log_ratio(more: float, less: float) -> float:
    """Return ln(more / less); infinite if `less` is not positive or `more` is infinite."""
    return math.log(more / less) if less > 0 and math.isfinite(more) else math.inf


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


class Estimate(msgspec.Struct, frozen=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


SpeedBasis = Literal["measured", "forecast", "scaled", "published"]
"""What a speed rests on, most reliable first: runs of this file here; twins of its layers here; this machine's other
runs, of other files or of fewer users; others' rows of llama-bench."""
LossBasis = Literal["measured", "published", "typical"]
"""What a loss rests on, most reliable first: quality runs here; published rows of the model itself; what is typical of
the type by family and size."""


class Expected(Estimate, frozen=True):
    """A value expected before it is measured, with a 95 % interval and what it rests on."""

    basis: SpeedBasis | LossBasis
    source: str
    """For people: `run 12, from q8_0`, `twins of 2 and 6 of 32 layers`, `1 row of llama.cpp-perplexity, wikitext-2`."""
    is_steady: bool = True
    """Whether the machine was steady during the measurements."""
    rows: tuple[str, ...] = ()
    """Names of the published rows behind it, as `ggbench published --behind` takes them."""

    @property
    def is_estimate(self) -> bool:
        """Whether it was not measured here and is not certainly nothing."""
        return self.basis != "measured" and self.high > 0


Z_95 = 1.959963984540054
"""Half-width of a 95 % interval, in standard errors."""


class MeanError(msgspec.Struct, frozen=True):
    """A mean with its standard error, as printed by llama-perplexity."""

    mean: float
    error: float

    @property
    def estimate(self) -> Estimate:
        """The mean with its 95 % interval."""
        return Estimate(self.mean, *self.ci95)

    @property
    def ci95(self) -> tuple[float, float]:
        return self.mean - Z_95 * self.error, self.mean + Z_95 * self.error


_T_95 = (math.inf, 12.7062047, 4.3026527, 3.1824463, 2.7764451, 2.5705818)
"""Student's two-sided 95 % points of few degrees of freedom."""
_T_95_SERIES = (Z_95, 2.3722712, 2.8224986, 2.5558497, 1.5895341)
"""Coefficients of the powers of 1 / freedom, for more: within 0.00011. Source: M. Abramowitz and I. Stegun, Handbook of
Mathematical Functions (1964), 26.7.5."""


def t_95(freedom: int) -> float:
    """Return Student's two-sided 95 % point; infinite without a degree of freedom."""
    if freedom < len(_T_95):
        return _T_95[freedom]
    return math.fsum(term / freedom**power for power, term in enumerate(_T_95_SERIES))


def geometric_mean(ratios: Sequence[float], model_error: float = 0.0) -> Estimate:
    """Return the mean of at least two ratios with Student's interval of their logarithms, widened by a share."""
    logs = list(map(math.log, ratios))
    spread = t_95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean, half = statistics.fmean(logs), math.hypot(spread, math.log1p(model_error))
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))
