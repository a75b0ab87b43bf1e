"""Fit W and B to the latency of every decoded token, with intervals valid for the noise of real machines.

Adjacent samples are correlated, and llama.cpp's reads in steps of 256 cells add a staircase, so the textbook interval
is several times too narrow; over one or two stairs, even the line depends on whether latency grows in stairs or on a
ramp. Steps timed together by another tool, such as llama-bench's tg128 at several depths, have one mean latency, which
is the line's value at their middle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ggbench.stats.decode_timing import DecodeWindow, DepthSpeed, LatencySummary, LineFit
from ggbench.stats.intervals import t_95
from ggbench.stats.samples import (
    FREEDOM,
    Floats,
    Repetition,
    half_width,
    slow_waves,
    split_repetitions,
    spread,
    stair,
)
from ggbench.stats.speed import mean_interval_ms, prompt_speed
from ggbench.units import KV_CELLS

MIN_SAMPLES = 16
"""Minimum number of samples, and of samples outside the fullest stair, to define a line."""

_STAIR_SHARES = (0.0, 0.5, 1.0)
"""Share of the growth in stairs: none (masked cells are skipped), half, all (cells are read in whole steps)."""

_CLOCK_MS = 1e-6
"""An increase over the whole run below the clock's resolution of 1 ns counts as zero."""


class Moments(msgspec.Struct, frozen=True):
    """Count, means and centred sums of pairs: sufficient for least squares, and mergeable without cancellation.

    Source: Chan, Golub & LeVeque (1983), "Algorithms for computing the sample variance", The American Statistician 37.
    """

    count: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    sxx: float = 0.0
    sxy: float = 0.0
    syy: float = 0.0

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Moments:
        if not len(x):
            return cls()
        mean_x, mean_y = float(x.mean()), float(y.mean())
        dx, dy = x - mean_x, y - mean_y
        return cls(len(x), mean_x, mean_y, float(dx @ dx), float(dx @ dy), float(dy @ dy))

    def merge(self, other: Moments) -> Moments:
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        weight = self.count * other.count / count
        return Moments(
            count,
            self.mean_x + dx * other.count / count,
            self.mean_y + dy * other.count / count,
            self.sxx + other.sxx + dx * dx * weight,
            self.sxy + other.sxy + dx * dy * weight,
            self.syy + other.syy + dy * dy * weight,
        )

    @property
    def slope(self) -> float:
        """Slope of the least-squares line; 0 if x does not vary."""
        return self.sxy / self.sxx if self.sxx > 0 else 0.0

    @property
    def intercept(self) -> float:
        return self.mean_y - self.slope * self.mean_x

    @property
    def r2(self) -> float | None:
        """Share of the variance of y explained by the line; None if x or y does not vary."""
        return min(1.0, self.sxy / self.sxx * self.sxy / self.syy) if self.sxx > 0 and self.syy > 0 else None


class RunningFit:
    """The fit of samples as they arrive, for a live view; equal to the final one in tables.

    It is recomputed after every eighth more samples, so all fits of a run cost as much as nine of the last.
    """

    def __init__(self) -> None:
        self._fit: LineFit | None = None
        self._due_at = MIN_SAMPLES

    def of(self, position: npt.ArrayLike, step_ns: npt.ArrayLike) -> LineFit | None:
        """Return the fit of all samples so far, or of most of them; None if they do not define a line."""
        n_samples = np.size(position)
        if n_samples >= self._due_at:
            fit = fit_line(position, step_ns)
            self._fit = fit if fit is not None and fit.w_ci95 is not None else None
            self._due_at = n_samples + n_samples // 8 + 1
        return self._fit


def fit_line(position: npt.ArrayLike, step_ns: npt.ArrayLike) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B by least squares, with 95 % intervals; None without a finite sample.

    `position` is n, 1-based; `step_ns` are the latencies in ns, ignored if not finite. Repetitions are concatenated: a
    new one starts if n does not increase. Raises ValueError if the arrays differ in length.

    The intervals assume a line plus stationary noise of unknown correlation, measured as `ggbench.stats.samples`
    describes along the 4 directions that the 5 slowest cosines span besides the line. A drift as long as the run is
    indistinguishable from a slope: under 1/f noise the 95 % are about 85 %. Repetitions help there.

    If the KV cache is read in whole steps of 256 cells, latency grows in stairs; if masked cells are skipped, on a
    ramp. W and B are defined the same way for both: by the line through the middles of the stairs. Over few stairs,
    fitting one model to the other is off by about 1 / stairs², so the interval is the union of those for a ramp, for
    stairs, and for half of each.

    Repetitions share one line.

    If they differ by more than their noise, the excess widens the interval. If the slope's interval includes zero, W is
    None and `w_ci95` is (bound, None); a falling line is treated as a flat one of the same uncertainty, so the bound
    stays finite. Without W, or if its own interval includes zero, B is None and only `b_ci95` is known. Latency does
    not fall with position, so its mean bounds B from above. Below 16 samples, or 16 outside the fullest stair, there is
    no line, only that bound.
    """
    repetitions = split_repetitions(position, step_ns)
    if not repetitions:
        return None
    n_samples = sum(len(repetition.position) for repetition in repetitions)
    mean_ms = mean_interval_ms(repetitions)
    waves = [
        slow_waves(len(position), FREEDOM + 1) if _holds_a_line(position) else None
        for position, _ in repetitions
    ]
    if all(wave is None for wave in waves):
        return LineFit(n_samples, None, None, None, mean_ms and (0.0, mean_ms[1]), None)
    fits = [_fit_with_stairs(repetitions, waves, share) for share in _STAIR_SHARES]
    farthest = max(float(repetition.position[-1]) for repetition in repetitions)
    return _line_fit(n_samples, fits, farthest, math.inf if mean_ms is None else mean_ms[1])


def fewest_samples(first_position: int) -> int:
    """Return the number of samples of one decode, from this 1-based position on, that define a line, significant or
    not.
    """
    seen: Counter[int] = Counter()
    while seen.total() - max(seen.values(), default=0) < MIN_SAMPLES:
        seen[(first_position + seen.total() - 1) // KV_CELLS] += 1
    return seen.total()


class _StairFit(NamedTuple):
    """A line and the half-widths of its 95 % intervals, in ms per token and ms."""

    moments: Moments
    slope_error: float
    intercept_error: float


def _line_fit(n_samples: int, fits: Sequence[_StairFit], farthest: float, most_ms: float = math.inf) -> LineFit:
    """Return the first fit with the union of the intervals of all, for samples up to the position `farthest`.

    Without W if its interval includes a flat line, and without B if there is no W or B may be zero; B is then at most
    `most_ms`.
    """
    line, w_tokens_per_ms, b_ms = fits[0].moments, None, None
    w_ci95: tuple[float, float | None] | None = None
    lowest = min(fit.moments.slope - fit.slope_error for fit in fits)
    highest = max(max(fit.moments.slope, 0.0) + fit.slope_error for fit in fits)
    b_low_ms = max(0.0, min(fit.moments.intercept - fit.intercept_error for fit in fits))
    b_high_ms = max(0.0, max(fit.moments.intercept + fit.intercept_error for fit in fits))
    if lowest * farthest > _CLOCK_MS:
        w_tokens_per_ms, w_ci95 = 1 / line.slope, (1 / highest, 1 / lowest)
        b_ms = line.intercept if b_low_ms > 0 else None
    elif highest * farthest > _CLOCK_MS:
        w_ci95 = (1 / highest, None)
    if b_ms is None:
        b_low_ms, b_high_ms = min(b_low_ms, most_ms), min(b_high_ms, most_ms)
    return LineFit(n_samples, w_tokens_per_ms, w_ci95, b_ms, (b_low_ms, b_high_ms), line.r2)


def _holds_a_line(position: Floats) -> bool:
    stairs = stair(position)
    return len(stairs) - int(np.bincount(stairs - stairs.min()).max()) >= MIN_SAMPLES


def _fit_with_stairs(
    repetitions: Sequence[Repetition], waves: Sequence[Floats | None], stair_share: float
) -> _StairFit:
    """Fit one line to all repetitions; a repetition without waves adds samples but no noise estimate."""
    pooled = Moments()
    lines: list[Moments] = []
    energy = 0.0
    for (position, step_ms), wave in zip(repetitions, waves, strict=True):
        ramp = position - 1
        # the middle of a stair is on the ramp: position 256 k + 128.5 is (256 k + 127.5) after the first
        x = ramp + stair_share * (stair(position) * KV_CELLS + (KV_CELLS - 1) / 2 - ramp)
        moments = Moments.of(x, step_ms)
        pooled = pooled.merge(moments)
        if wave is not None:
            lines.append(moments)
            energy += _wave_energy(wave, x, step_ms, moments)
    freedom = FREEDOM * len(lines)
    noise = energy / freedom
    slope_spread = spread([line.slope for line in lines], [1 / line.sxx for line in lines])
    b_spread = spread([line.intercept for line in lines], [_intercept_variance(line) for line in lines])
    return _StairFit(
        pooled,
        half_width(noise, slope_spread, len(lines), freedom) / math.sqrt(pooled.sxx),
        half_width(noise, b_spread, len(lines), freedom) * math.sqrt(_intercept_variance(pooled)),
    )


def _intercept_variance(line: Moments) -> float:
    """Return the variance of the line's value at x = 0 for noise of variance 1."""
    return 1 / line.count + line.mean_x**2 / line.sxx


def _wave_energy(waves: Floats, x: Floats, y: Floats, line: Moments) -> float:
    """Return the sum of squares of the residuals along the waves, without the direction of x itself."""
    dx = x - line.mean_x
    of_residual, of_x = waves @ ((y - line.mean_y) - line.slope * dx), waves @ dx
    along_x = float(of_x @ of_residual) ** 2 / float(of_x @ of_x)
    return max(0.0, 2 / line.count * (float(of_residual @ of_residual) - along_x))


FEWEST = 3
"""Minimum number of timings for `fit_windows`: two define a line, but not its error."""


def fit_windows(windows: Sequence[DecodeWindow]) -> LineFit | None:
    """Fit latency(n) = (n - 1) / W + B by least squares; None for fewer than 3 timings, or a single depth.

    The 95 % intervals are the textbook's, for independent timings about a straight line: Student's t with two degrees
    of freedom fewer than timings. The effects of drift and of the stairs of 256 cells are unknown. As in `fit_line`, W
    is None if its interval includes zero, and B without W or if its interval does.
    """
    x = np.array([window.mean_position - 1 for window in windows], np.float64)
    y = np.array([window.step_ms for window in windows], np.float64)
    line = Moments.of(x, y)
    if len(windows) < FEWEST or line.sxx <= 0:
        return None
    freedom = len(windows) - 2
    residuals = y - line.intercept - line.slope * x
    noise_ms = t_95(freedom) * math.sqrt(float(residuals @ residuals) / freedom)
    slope_error, b_error = noise_ms / math.sqrt(line.sxx), noise_ms * math.sqrt(_intercept_variance(line))
    return _line_fit(len(windows), [_StairFit(line, slope_error, b_error)], float(x.max()))


def _by_depth(windows: Sequence[DecodeWindow]) -> dict[int, list[DecodeWindow]]:
    found: dict[int, list[DecodeWindow]] = {}
    for window in windows:
        found.setdefault(window.n_depth, []).append(window)
    return found


def window_speed(windows: Sequence[DecodeWindow]) -> LatencySummary:
    """Return tokens per second over all windows, at least one, without percentiles, which need single steps.

    Its interval is that of the repetitions' total times; None below 3 repetitions, or if depths have different numbers.
    """
    n_tokens, elapsed_ns = sum(each.n_gen for each in windows), sum(each.elapsed_ns for each in windows)
    depths, interval = list(_by_depth(windows).values()), None
    if len(set(map(len, depths))) == 1 and {window.repeat for window in windows} == {1}:
        rounds = list(zip(*depths, strict=True))
        n_each = sum(window.n_gen for window in rounds[0])
        interval = prompt_speed(
            n_each, [round(sum(each.elapsed_ns for each in one)) for one in rounds]
        ).tok_s_ci95
    return LatencySummary(None, None, None, n_tokens * 1e9 / elapsed_ns, None, interval)


def depth_speeds(windows: Sequence[DecodeWindow]) -> tuple[DepthSpeed, ...]:
    """Return the speed at each depth from windows timed as a whole."""
    speeds = ((n_depth, own, window_speed(own)) for n_depth, own in sorted(_by_depth(windows).items()))
    return tuple(
        DepthSpeed(n_depth, own[0].n_gen, speed.tok_s, sum(each.repeat or 1 for each in own), speed.tok_s_ci95)
        for n_depth, own, speed in speeds
    )
