"""Estimates with their intervals, and the intervals of ratios and differences of two estimates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeAlias

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


class Expected(msgspec.Struct, frozen=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


Z_95 = 1.959963984540054
"""Half-width of a 95 % interval, in standard errors."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean with its standard error, as printed by llama-perplexity."""

    mean: float
    error: float

    @property
    def ci95(self) -> tuple[float, float]:
        return self.mean - Z_95 * self.error, self.mean + Z_95 * self.error


def t_95(freedom: int) -> float:
    """Return Student's two-sided 95 % point; infinite without a degree of freedom."""
    return t_point(0.05, freedom) if freedom else math.inf


def geometric_mean(ratios: Sequence[float], model_error: float = 0.0) -> Expected:
    """Return the mean of at least two ratios with Student's interval of their logarithms, widened by a share."""
    logs = list(map(math.log, ratios))
    spread = t_95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean, half = statistics.fmean(logs), math.hypot(spread, math.log1p(model_error))
    return Expected(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def t_point(tail: float, freedom: int) -> float:
    """Return the point with a share `tail` of Student's distribution beyond it, on both sides together.

    Source: G. W. Hill, Algorithm 396, Communications of the ACM 13 (1970) 619; six digits for 5 degrees of freedom and
    more, four below. SciPy has it too, at 100 MB installed for one function. Raises ValueError for a tail outside 0 to
    1 or less than one degree of freedom.
    """
    if not 0 < tail <= 1 or freedom < 1:
        raise ValueError(f"no such point: tail {tail}, {freedom} degrees of freedom")
    if freedom == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if freedom == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    n = float(freedom)
    a = 1 / (n - 0.5)
    b = 48 / (a * a)
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y <= 0.05 + a:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1)
        return math.sqrt(n * (y / (n + 2) + 1 / ((d * tail) ** (2 / n))))
    x = NormalDist().inv_cdf(tail / 2) if tail < 1 else 0.0
    y = x * x
    if n < 5:
        c += 0.3 * (n - 4.5) * (x + 0.6)
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
    return math.sqrt(n * math.expm1(a * y * y))
