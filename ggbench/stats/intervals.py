"""Estimates with their 95 % intervals: of means, of pairs, and of the ratio of two estimates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from ggbench.record import Record

_Key = TypeVar("_Key")

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
    below = math.hypot(_log_ratio(one, one_ci[0]), _log_ratio(other_ci[1], other))
    above = math.hypot(_log_ratio(one_ci[1], one), _log_ratio(other, other_ci[0]))
    return _exp(ratio - below), _exp(ratio + above)


def _log_ratio(more: float, less: float) -> float:
    """Return ln(more / less); infinite if `less` is not positive or `more` is infinite."""
    return math.log(more / less) if less > 0 and math.isfinite(more) else math.inf


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


class Estimate(Record):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def plus(self, other: Estimate, times: float = 1.0) -> Estimate:
        """Return the sum with another a number of times, as if the errors of both are one."""
        return Estimate(
            self.value + times * other.value, self.low + times * other.low, self.high + times * other.high
        )


SpeedBasis = Literal["measured", "forecast", "scaled", "published"]
"""What a speed rests on, most reliable first: runs of this file here; twins of its layers here; this machine's other
runs, of other files or of fewer users; others' rows of llama-bench."""
LossBasis = Literal["measured", "published", "typical"]
"""What a loss rests on, most reliable first: quality runs here; published rows of the model itself; what is typical of
the type by family and size."""


class Expected(Estimate):
    """A value expected before it is measured, with a 95 % interval and what it rests on."""

    basis: SpeedBasis | LossBasis
    source: str
    """For people: `run 12, from q8_0`, `twins of 2 and 6 of 32 layers`, `1 row of llama.cpp-perplexity, wikitext-2`."""
    is_steady: bool = True
    """Whether the machine was steady during the measurements."""

    @property
    def is_estimate(self) -> bool:
        """Whether it was not measured here and is not certainly nothing."""
        return self.basis != "measured" and self.high > 0

    @property
    def is_timed(self) -> bool:
        """Whether a speed was timed here, of the file or of twins of its layers."""
        return self.basis in ("measured", "forecast")


Z_95 = 1.959963984540054
"""Half-width of a 95 % interval, in standard errors."""


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


def student_p(t: float, freedom: int) -> float:
    """Return the probability that Student's t is as far from zero, either way.

    Source: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, square, is_odd = math.sin(angle), math.cos(angle) ** 2, freedom % 2
    term, total = math.cos(angle) if is_odd else 1.0, 0.0
    for number in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= square * (number - 1) / number
    within = 2 / math.pi * (angle + sine * total) if is_odd else sine * total
    return max(0.0, 1 - within)


def half_width(values: Sequence[float]) -> float:
    """Return Student's half-width of the mean of independent values; infinite for one."""
    if len(values) < 2:
        return math.inf
    return t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def geometric_mean(ratios: Sequence[float], model_error: float = 0.0) -> Estimate:
    """Return the mean of at least two ratios with Student's interval of their logarithms, widened by a share."""
    logs = list(map(math.log, ratios))
    mean, half = statistics.fmean(logs), math.hypot(half_width(logs), math.log1p(model_error))
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


class Ratio(Estimate):
    p: float
    """Probability that equals differ as much, either way."""


FEWEST_PAIRS = 4
"""Fewest turns, or chunks of a text, whose own ratios give an interval."""


def paired_ratio(logs: Sequence[float]) -> Ratio | None:
    """Return the ratio whose logarithm is the mean of these of pairs, with Student's interval; None for fewer than four
    pairs.
    """
    if len(logs) < FEWEST_PAIRS:
        return None
    mean, half, freedom = statistics.fmean(logs), half_width(logs), len(logs) - 1
    p = student_p(t_95(freedom) * mean / half, freedom) if half else float(not mean)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), p)


def log_shares(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return for each pair a logarithm, of which the mean is that of the ratio of two positive means, and the spread
    its own (delta method); empty if a mean is not positive.
    """
    pairs = list(zip(one, other, strict=False))
    mean, its = (statistics.fmean(side) for side in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    if min(mean, its) <= 0:
        return []
    return [math.log(mean / its) + a / mean - b / its for a, b in pairs]


def differing(p_values: Mapping[_Key, float]) -> set[_Key]:
    """Return the comparisons that show a difference, with 5 % for a false one among all of them.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979) 65.
    """
    found = set[_Key]()
    for n_left, key in zip(
        range(len(p_values), 0, -1), sorted(p_values, key=p_values.__getitem__), strict=True
    ):
        if p_values[key] > _LEVEL / n_left:
            break
        found.add(key)
    return found


_LEVEL = 0.05


class ChunkMean(Record):
    """A mean over all positions of a text, with the 95 % interval that its chunks give."""

    mean: float
    ci95: Interval | None = None
    """None for a single chunk, and in results of versions that took positions as independent."""

    @property
    def estimate(self) -> Estimate | float:
        """The mean with its interval, if that is known."""
        return self.mean if self.ci95 is None else Estimate(self.mean, *self.ci95)


def chunk_mean(
    means: Sequence[float],
    form: Callable[[float], float] = float,
    bounds: Interval = (-math.inf, math.inf),
) -> ChunkMean:
    """Return `form` of the mean of chunk means ± t(k - 1), as positions of one chunk are not independent.

    No end lies beyond `bounds`.
    """
    mean, half = statistics.fmean(means), half_width(means)
    if math.isinf(half):
        return ChunkMean(form(mean))
    low, high = max(bounds[0], mean - half), min(bounds[1], mean + half)
    return ChunkMean(form(mean), (form(min(low, mean)), form(max(high, mean))))
