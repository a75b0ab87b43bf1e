"""The latency of a step by position: of a run, or expected.

Latency grows linearly between the header's breaks, so it is interpolated between known positions and these breaks.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

from ggbench.record import Record
from ggbench.stats.decode_timing import DecodeLimit, DepthSpeed, LineFit, PrefillSpeed
from ggbench.stats.intervals import Estimate, Expected, SpeedBasis

POSITIONS = (1, 1024, 4096, 8192, 32768)
"""Token positions at which speed is forecast."""
_FAR = 32768
"""Last position at which a measured line is evaluated; a straight line continues from there."""

Known = tuple[tuple[int, Estimate], ...]
"""Pairs of position or length and value, ascending."""


_WIDEST = 2.0
"""Largest ratio of high to low end for a latency by the slope of a line to be meaningful. A slope without an interval,
which nothing tells from the machine, is taken within this factor."""
_BARE = 1.1
"""The factor within which a speed without an interval is taken: of a run too short to show its own spread."""
FEWEST_TIMED = 64
"""Fewest tokens whose speed says something without an interval."""


def inverse(expected: Estimate, numerator: float = 1e3) -> Estimate:
    """Convert milliseconds to tokens/s, and back; zero becomes infinite and infinity zero."""
    value, low, high = (
        numerator / each if each else math.inf for each in (expected.value, expected.high, expected.low)
    )
    return Estimate(value, low, high)


def measured_steps(windows: Sequence[DepthSpeed], fit: LineFit | None, limit: DecodeLimit | None) -> Known:
    """Return latencies by position from mean latencies and the line through their steps; empty for too few steps.

    Level and slope of a line are independent at the middle of a window, so elsewhere their intervals add as squares. If
    W is unknown the slope is the limit's, within its interval and at most that of the line from zero; if that leaves a
    factor of more than 2 at the start of the first window, each window has its level from end to end.
    """
    ends = measured_levels(windows)
    if not ends or fit is None:
        return ()
    pieces = _pieces(fit, limit, ends[-1][1].high / ends[-1][0])
    floor = limit.b_ms if limit is not None else 0.0
    timed = _timed(windows)
    start = timed[0].moved(ends[0][0], pieces, floor)
    if fit.w_tokens_per_ms is None and not fit.breaks and start.high > _WIDEST * start.low:
        timed = [_Timed(n - 1, 1, level) for n, level in ends]
    middles = [each.middle for each in timed]
    breaks = (round(each.start) for each in pieces[1:])
    positions = sorted({1, *middles, *breaks, max(_FAR, 2 * middles[-1])})
    nearest = (min(timed, key=lambda each: abs(each.middle - n)) for n in positions)
    return tuple((n, each.moved(n, pieces, floor)) for n, each in zip(positions, nearest, strict=True))


def _timed(windows: Sequence[DepthSpeed]) -> list[_Timed]:
    """Return the levels of the windows that have one, by position."""
    levels = ((each, _level(each)) for each in windows)
    return sorted(_Timed(each.n_depth, each.n_gen, level) for each, level in levels if level is not None)


class _Piece(NamedTuple):
    """Positions between breaks."""

    start: float
    end: float
    slope: Estimate
    """Milliseconds added by each position."""

    def part(self, n: float) -> float:
        """Return how far position n is into the piece."""
        return min(max(n, self.start), self.end) - self.start

    def summed(self, n: float) -> float:
        """Return the integral of `part` up to n."""
        part = self.part(n)
        return part * (n - self.start) - part**2 / 2


class _Timed(NamedTuple):
    """The mean latency over a window."""

    n_depth: int
    n_gen: int
    level: Estimate

    @property
    def middle(self) -> int:
        return self.n_depth + (self.n_gen + 1) // 2

    def moved(self, n: int, pieces: Sequence[_Piece], floor: float) -> Estimate:
        """Return the latency at position n that follows from this one, at least `floor` [ms] if this is."""
        first, level = self.middle - self.n_gen / 2, self.level
        by_ms = by_least = by_most = 0.0
        for each in pieces:
            mean = (each.summed(first + self.n_gen) - each.summed(first)) / self.n_gen
            apart = each.part(n) - mean
            by_ms += apart * each.slope.value
            by_least += apart * each.slope.low
            by_most += apart * each.slope.high
        value = max(level.value + by_ms, min(floor, level.value))
        down, up = by_ms - min(by_least, by_most), max(by_least, by_most) - by_ms
        low = max(value - math.hypot(level.value - level.low, down), min(floor, value))
        return Estimate(value, low, value + math.hypot(level.high - level.value, up))


def measured_levels(depths: Sequence[DepthSpeed]) -> Known:
    """Return the mean latency at both ends of the window at each depth, for windows without a line through them."""
    timed = _timed(depths)
    ends = [(n, each.level) for each in timed for n in (each.n_depth + 1, each.n_depth + each.n_gen)]
    return tuple(sorted(ends, key=lambda end: end[0]))


def measured_curve(
    run_id: int | None,
    depths: Sequence[DepthSpeed],
    fit: LineFit | None,
    limit: DecodeLimit | None,
    *,
    first: int | None = None,
    is_steady: bool = True,
) -> SpeedCurve | None:
    """Return the speeds in the windows of a run, and beyond them if they define a line; None for too few tokens.

    `first` is the first position that counts as measured; by default that of the first window.
    """
    levels = measured_levels(depths)
    if not levels:
        return None
    steps = measured_steps(depths, fit, limit)
    rates = None
    if limit is not None and fit is not None and fit.b_ms and fit.w_tokens_per_ms:
        rates = rates_of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
    elif limit is not None:
        # without a line nothing separates weights and cache: both at the rate in the deepest window's middle
        last = _timed(depths)[-1]
        middle_ms = limit.ms(last.n_depth + last.n_gen // 2 + 1)
        rates = (limit.bandwidth_bytes_per_s * middle_ms / last.level.value,) * 2
    return SpeedCurve(
        "measured",
        f"run {run_id}",
        steps or levels,
        first=first or levels[0][0],
        reach=levels[-1][0],
        is_steady=is_steady,
        rates=rates,
        has_line=bool(steps),
    )


def measured_prefills(prefills: Sequence[PrefillSpeed]) -> Known:
    """Return the times of prompts, by length."""
    found = []
    for each in sorted(prefills, key=lambda each: each.n_prompt):
        slowest, fastest = each.tok_s_ci95 or (each.tok_s / _BARE, each.tok_s * _BARE)
        if slowest > 0:
            least_ms = 1e3 * each.n_prompt / fastest if fastest else 0.0
            found.append((each.n_prompt, Estimate(each.prefill_ms, least_ms, 1e3 * each.n_prompt / slowest)))
    return tuple(found)


def interpolated(known: Known, n: int) -> Estimate:
    """Return the value at `n`, on the line through the two nearest points, or the last two; infinite if one is."""
    if len(known) == 1:
        return known[0][1]
    positions = [position for position, _ in known]
    above = min(max(bisect.bisect_left(positions, n), 1), len(known) - 1)
    (n0, one), (n1, other) = known[above - 1], known[above]
    share = (n - n0) / (n1 - n0)
    value, low, high = (
        math.inf if math.inf in (before, after) else before + share * (after - before)
        for before, after in ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    )
    return Estimate(value, min(low, value), max(high, value))


def _level(latency: DepthSpeed) -> Estimate | None:
    """Return the mean latency over a window; None for fewer than 64 tokens without an interval."""
    step_ms = 1e3 / latency.tok_s
    if latency.tok_s_ci95 is None:
        is_enough = latency.n_gen * latency.repeat >= FEWEST_TIMED
        return Estimate(step_ms, step_ms / _BARE, step_ms * _BARE) if is_enough else None
    low, high = latency.tok_s_ci95
    return Estimate(step_ms, 1e3 / high if high else 0.0, 1e3 / low if low else math.inf)


def _pieces(fit: LineFit, limit: DecodeLimit | None, most: float) -> list[_Piece]:
    """Return how latency grows between the breaks: by the fit's W as far as known, else by the limit's."""
    measured = {math.inf: (fit.w_tokens_per_ms, fit.w_ci95)}
    measured |= {each.n: (each.w_tokens_per_ms, each.w_ci95) for each in fit.breaks}
    limits: dict[float, float | None] = {}
    if limit is not None:
        limits = {each.n: each.w_tokens_per_ms for each in limit.breaks} | {math.inf: limit.w_tokens_per_ms}
    ends = sorted({*measured, *limits})
    slopes = [_slope(*measured.get(end, (None, None)), limits.get(end), most) for end in ends]
    return [_Piece(*each) for each in zip((0, *ends), ends, slopes, strict=False)]


def _slope(
    w: float | None, interval: tuple[float, float | None] | None, limit: float | None, most: float
) -> Estimate:
    """Return the milliseconds added by each position; if W is unknown at most `most`, as the first token takes time."""
    if w is not None and interval is None:
        return Estimate(1 / w, 1 / w / _WIDEST, _WIDEST / w)
    lowest, highest = interval or (0.0, None)
    steepest, flattest = 1 / lowest if lowest else most, 1 / highest if highest else 0.0
    if w is not None:
        return Estimate(1 / w, flattest, steepest)
    steepest = max(flattest, min(steepest, most))
    least = 1 / limit if limit else 0.0
    return Estimate(min(max(least, flattest), steepest), flattest, steepest)


class SpeedCurve(Record):
    """Latency of a step by position, and time of a prompt by its length, each with a 95 % interval.

    A run that shows only prompts has no steps, so pass its curve to none of the functions that take a position of a
    decode. Others have at least two.
    """

    basis: SpeedBasis
    source: str
    """For people: `run 12`, `twins of 2 and 6 of 32 layers`."""
    step_ms: Known = ()
    """Pairs of position and latency, ascending."""
    prefill_ms: Known = ()
    """Pairs of prompt length, from an empty context, and time, ascending; empty if unknown."""
    is_steady: bool = True
    """Whether the machine was steady during the measurement."""
    first: int = 1
    """The first measured position; `reach` is the last."""
    reach: int | None = None
    """None if no run of this file is behind it."""
    has_line: bool = True
    """Whether a line through the steps extends beyond the measured positions."""
    rates: tuple[float, float] | None = None
    """Bytes/s at which a run or forecast reads weights and KV cache; None if the limit or the line is unknown."""
    prefill_basis: SpeedBasis | None = None
    """What the times of prompts rest on, if not on what the steps do."""
    prefill_source: str = ""

    def has_measured(self, n: int) -> bool:
        """Return whether position n is between the first and last measured or forecast ones."""
        return self.reach is not None and self.first <= n <= self.reach

    def knows(self, n: int) -> bool:
        """Return whether position n was measured, or a line reaches it: to twice the last measured position, within
        which no latency doubles, and where it gives the latency within a factor of 2.
        """
        if self.reach is None or self.has_measured(n):
            return True
        found = self.step_ms_at(n)
        is_near = self.first <= n <= 2 * self.reach
        return self.has_line and (is_near or found.high <= _WIDEST * found.low)

    def step_ms_at(self, n: int) -> Estimate:
        return interpolated(self.step_ms, n)

    def tok_s_at(self, n: int) -> Estimate:
        """Return tokens/s at position n; the low end is 0 if the latency has no upper end."""
        return inverse(self.step_ms_at(n))

    def prefill_ms_at(self, n_prompt: int) -> Estimate | None:
        """Return the time [ms] of a prompt, 0 for an empty one; None if no prompt was timed."""
        if not self.prefill_ms:
            return None
        return interpolated(((0, Estimate(0.0, 0.0, 0.0)), *self.prefill_ms), n_prompt)


class SessionTime(Record):
    """How long a session takes; None without a known prompt speed."""

    name: str
    n_turns: int
    n_tokens: int
    """Length of its transcript."""
    tok_s: Expected
    """Mean speed of its answers; of a step at its end if none has a second token."""
    answers_s: Estimate
    """Seconds for all answers."""
    total_s: Expected | None = None
    """Seconds for all turns; it rests on what is less reliable of prompts and answers."""
    first_wait_s: Estimate | None = None
    """Seconds before the first answer, for the first prompt."""
    last_wait_s: Estimate | None = None
    n_reread: int = 0
    """Tokens that llama-server reads again, as its cache has lost what the session keeps."""


def rates_of_line(limit: DecodeLimit, b_ms: float, w_tokens_per_ms: float | None) -> tuple[float, float]:
    """Return the bytes/s at which a line reads weights and KV cache; equal if W is unknown."""
    weights = limit.bandwidth_bytes_per_s * limit.b_ms / b_ms
    if w_tokens_per_ms is None or limit.w_tokens_per_ms is None:
        return weights, weights
    return weights, limit.bandwidth_bytes_per_s * w_tokens_per_ms / limit.w_tokens_per_ms
