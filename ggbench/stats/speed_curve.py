"""Estimate speed at any position from measured runs.

Latency grows linearly, so it is interpolated between known positions and extrapolated by the last line.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from ggbench.stats.decode_timing import DecodeLimit, DepthSpeed, LineFit, PrefillSpeed
from ggbench.stats.intervals import Estimate

POSITIONS = (1, 1024, 4096, 8192, 32768)
"""Token positions at which speed is forecast."""
_FAR = 32768
"""Last position at which a measured line is evaluated; a straight line continues from there."""

Known = tuple[tuple[int, Estimate], ...]
"""Pairs of position or length and value, ascending."""


_WIDEST = 2.0
"""Largest ratio of high to low end for a latency by the slope of a line to be meaningful."""


def is_measured(known: SpeedEstimate, n: int) -> bool:
    """Return whether position n is between the first and last measured or forecast ones."""
    return known.reach is not None and known.first <= n <= known.reach


def knows(known: SpeedEstimate, n: int) -> bool:
    """Return whether position n was measured, or the line gives its latency within a factor of 2."""
    if known.reach is None or is_measured(known, n):
        return True
    found = interpolated(known.step_ms, n)
    return known.has_line and found.high <= _WIDEST * found.low


def estimate_at(known: SpeedEstimate, n: int) -> SpeedEstimate | None:
    """Return the known estimate to use at position n, preferring a run that measured there to a longer line."""
    found = [each for each in (known, *known.others) if knows(each, n)]
    return min(
        found,
        key=lambda each: (each.basis != "measured", not each.is_steady, not is_measured(each, n)),
        default=None,
    )


def step_ms_at(known: SpeedEstimate, n: int) -> Estimate:
    return interpolated(known.step_ms, n)


def tok_s_at(known: SpeedEstimate, n: int) -> Estimate:
    """Return tokens/s at position n; the low end is 0 if the latency has no upper end."""
    return inverse(step_ms_at(known, n))


def prefill_ms_at(known: SpeedEstimate, n_prompt: int) -> Estimate | None:
    """Return the time [ms] of a prompt, 0 for an empty one; None if no prompt was timed."""
    if not known.prefill_ms:
        return None
    nothing = Estimate(0.0, 0.0, 0.0)
    return interpolated(((0, nothing), *known.prefill_ms), n_prompt)


def inverse(expected: Estimate, numerator: float = 1e3) -> Estimate:
    """Convert milliseconds to tokens/s, and back; zero becomes infinite and infinity zero."""
    value, low, high = (
        numerator / each if each else math.inf for each in (expected.value, expected.high, expected.low)
    )
    return Estimate(value, low, high)


_PROMPT = 512
"""Prompt length at which prefill is compute-bound."""


def with_sequences(known: SpeedEstimate, n_seqs: int, weights_ratio: float = 1.0) -> SpeedEstimate:
    """Return the latency of steps of `n_seqs` sequences and the time of their prompts together, from those of one.

    A step is at best one reading of the weights and one of every cache, t(1) + n_seqs (t(n) - t(1)), and at worst the
    steps of the sequences one after the other. In between, reading the weights takes `weights_ratio` t(1), as the
    sequences of a mixture use different experts (`Placement.weights_ratio`), or as long as computing `n_seqs` tokens of
    a prompt if that is longer; without a known prompt, the step is the geometric mean of that and the worst. The low
    end of a step, and a bound, let all sequences use the same experts, as no router is known to need more.

    t(1) is that of the most reliable estimate that begins there; without any, the caches count as the whole step.
    """
    every = (known, *known.others)
    first = next((each.step_ms[0][1] for each in every if each.step_ms[0][0] == 1), None)
    best, *others = (_with_sequences(each, n_seqs, weights_ratio, first) for each in every)
    return msgspec.structs.replace(best, others=tuple(others))


def _with_sequences(
    known: SpeedEstimate, n_seqs: int, weights_ratio: float, first: Estimate | None
) -> SpeedEstimate:
    position, own = known.step_ms[0]
    begins_at_1 = position == 1
    first = own if begins_at_1 else first or Estimate(0.0, 0.0, 0.0)
    prompt = prefill_ms_at(known, _PROMPT)

    def of_all(step: Estimate) -> Estimate:
        low, at_best = (
            one + n_seqs * max(0.0, end - one)
            for one, end in ((first.low, step.low), (first.value, step.value))
        )
        if not begins_at_1:
            low = step.low  # another estimate's t(1) is no bound of this one's
        high, at_worst = n_seqs * step.high, n_seqs * step.value
        if known.basis == "bound":
            return Estimate(at_best, low, high)
        weights_ms = weights_ratio * first.value
        read = at_best + weights_ms - first.value
        computed = math.sqrt(read * at_worst)
        if prompt is not None:
            computed = read + max(0.0, n_seqs * prompt.value / _PROMPT - weights_ms)
        return Estimate(min(max(computed, read), at_worst), low, high)

    return SpeedEstimate(
        "other runs" if known.basis in ("measured", "forecast") else known.basis,
        f"{known.source}, of one user" if known.basis != "bound" else known.source,
        tuple((n, of_all(step)) for n, step in known.step_ms),
        tuple(
            (n, Estimate(n_seqs * ms.value, n_seqs * ms.low, n_seqs * ms.high)) for n, ms in known.prefill_ms
        ),
        known.is_steady,
        known.first,
        known.reach,
        known.has_line,
        rows=known.rows,
    )


def measured_steps(windows: Sequence[DepthSpeed], fit: LineFit | None, limit: DecodeLimit | None) -> Known:
    """Return latencies by position from mean latencies and the line through their steps; empty for too few steps.

    Level and slope of a line are independent at the middle of a window, so elsewhere their intervals add as squares. If
    W does not differ from zero the slope is the limit's, within its interval; if that leaves a factor of more than 2 at
    the start of the first window, each window has its level from end to end.
    """
    middles = ((each.n_depth + (each.n_gen + 1) // 2, _level(each)) for each in windows)
    levels = tuple(sorted((n, level) for n, level in middles if level is not None))
    slope = _slope(fit, limit)
    if not levels or slope is None:
        return ()
    floor = limit.b_ms if limit is not None else 0.0
    ends = measured_levels(windows)
    start = _moved(levels[0][1], slope, ends[0][0] - levels[0][0], floor)
    if fit is not None and fit.w_tokens_per_ms is None and start.high > _WIDEST * start.low:
        levels = ends
    (first, lowest), (last, highest) = levels[0], levels[-1]
    found = [(1, _moved(lowest, slope, 1 - first, floor))] if first > 1 else []
    found += levels
    return (*found, (max(_FAR, 2 * last), _moved(highest, slope, max(_FAR, 2 * last) - last, floor)))


def measured_levels(depths: Sequence[DepthSpeed]) -> Known:
    """Return the mean latency at both ends of the window at each depth, for windows without a line through them."""
    levels = [(each, level) for each in depths if (level := _level(each)) is not None]
    ends = [(each.n_depth + n, level) for each, level in levels for n in (1, each.n_gen)]
    return tuple(sorted(ends, key=lambda end: end[0]))


def speed_at_depths(
    run_id: int | None,
    depths: Sequence[DepthSpeed],
    fit: LineFit | None,
    limit: DecodeLimit | None,
    *,
    is_steady: bool = True,
) -> SpeedEstimate | None:
    """Return the speeds at the depths, and beyond them if they define a line; None without an interval."""
    levels = measured_levels(depths)
    if not levels:
        return None
    steps = measured_steps(depths, fit, limit)
    rates = None
    if limit is not None and fit is not None and fit.b_ms and fit.w_tokens_per_ms:
        rates = rates_of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
    elif limit is not None:
        known = (each for each in depths if _level(each) is not None)
        rates = rates_of_window(limit, max(known, key=lambda each: each.n_depth))
    return SpeedEstimate(
        "measured",
        f"run {run_id}",
        steps or levels,
        first=levels[0][0],
        reach=levels[-1][0],
        is_steady=is_steady,
        rates=rates,
        has_line=bool(steps),
    )


def measured_prefills(prefills: Sequence[PrefillSpeed]) -> Known:
    """Return the times of prompts with an interval, by length."""
    return tuple(
        (
            each.n_prompt,
            Estimate(each.prefill_ms, 1e3 * each.n_prompt / high if high else 0.0, 1e3 * each.n_prompt / low),
        )
        for each in sorted(prefills, key=lambda each: each.n_prompt)
        if each.tok_s_ci95 is not None and (low := each.tok_s_ci95[0]) > 0
        for high in (each.tok_s_ci95[1],)
    )


def interpolated(known: Known, n: int) -> Estimate:
    """Return the value at `n`, on the line through the two nearest points, or the last two."""
    if len(known) == 1:
        return known[0][1]
    positions = [position for position, _ in known]
    above = min(max(bisect.bisect_left(positions, n), 1), len(known) - 1)
    (n0, one), (n1, other) = known[above - 1], known[above]
    share = (n - n0) / (n1 - n0)
    value, low, high = (
        before if before == after else before + share * (after - before)  # also if both are infinite
        for before, after in ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    )
    return Estimate(value, min(low, value), max(high, value))


def _level(latency: DepthSpeed) -> Estimate | None:
    """Return the mean latency over a window; None if its interval is unknown or has no upper end."""
    if latency.tok_s_ci95 is None or latency.tok_s_ci95[0] <= 0:
        return None
    low, high = latency.tok_s_ci95
    return Estimate(1e3 / latency.tok_s, 1e3 / high if high else 0.0, 1e3 / low)


def _slope(fit: LineFit | None, limit: DecodeLimit | None) -> Estimate | None:
    """Return the milliseconds added by each position; None if not even an upper end is known."""
    if fit is None or fit.w_ci95 is None or fit.w_ci95[0] <= 0:
        return None
    steepest, flattest = 1 / fit.w_ci95[0], 1 / fit.w_ci95[1] if fit.w_ci95[1] else 0.0
    if fit.w_tokens_per_ms is not None:
        return Estimate(1 / fit.w_tokens_per_ms, flattest, steepest)
    least = 0.0 if limit is None or limit.w_tokens_per_ms is None else 1 / limit.w_tokens_per_ms
    return Estimate(min(max(least, flattest), steepest), flattest, steepest)


def _moved(level: Estimate, slope: Estimate, distance: int, floor: float) -> Estimate:
    """Return the level `distance` positions away, at least `floor` [ms]."""
    value = max(level.value + distance * slope.value, floor)
    steeper, flatter = abs(distance) * (slope.high - slope.value), abs(distance) * (slope.value - slope.low)
    up, down = (steeper, flatter) if distance > 0 else (flatter, steeper)
    low = max(value - math.hypot(level.value - level.low, down), min(floor, value))
    return Estimate(value, low, value + math.hypot(level.high - level.value, up))


SpeedBasis = Literal["measured", "forecast", "other runs", "published", "bound"]
"""Sources of an estimate, most reliable first: runs of this quant; twins of its layers; this machine's other runs (of
other files, or of fewer users); others' rows of llama-bench; memory bandwidth alone, which is a limit and no speed."""


class SpeedEstimate(msgspec.Struct, frozen=True):
    """Latency of a step by position, and time of a prompt by its length, each with a 95 % interval.

    With basis `bound` the value is the lower bound, and `high` is infinite. `KnownSpeeds.of`, `speed_at_depths` and
    `with_sequences` return at least two steps. A run that shows only prompts or `rates` has none, so pass its estimate
    to none of the functions that take a position of a decode.
    """

    basis: SpeedBasis
    source: str
    """For people: `run 12`, `twins of 2 and 6 of 32 layers`."""
    step_ms: tuple[tuple[int, Estimate], ...] = ()
    """Pairs of position and latency, ascending."""
    prefill_ms: tuple[tuple[int, Estimate], ...] = ()
    """Pairs of prompt length, from an empty context, and time, ascending; empty if unknown."""
    is_steady: bool = True
    """Whether the machine was steady during the measurement."""
    first: int = 1
    """The first measured position; `reach` is the last."""
    reach: int | None = None
    """Run number; None for a bound, or for the share of it that other runs reach."""
    has_line: bool = True
    """Whether a line through the steps extends beyond the measured positions."""
    rates: tuple[float, float] | None = None
    """Bytes/s at which a run or forecast reads weights and KV cache; None if the limit or the line is unknown."""
    others: tuple[SpeedEstimate, ...] = ()
    """Less reliable estimates, for positions that this one does not cover."""
    rows: tuple[str, ...] = ()
    """Names of the published rows that it leans on, as `ggbench published --behind` takes them."""


def rates_of_line(limit: DecodeLimit, b_ms: float, w_tokens_per_ms: float | None) -> tuple[float, float]:
    """Return the bytes/s at which a line reads weights and KV cache; equal if W is unknown."""
    weights = limit.bandwidth_bytes_per_s * limit.b_ms / b_ms
    if w_tokens_per_ms is None or limit.w_tokens_per_ms is None:
        return weights, weights
    return weights, limit.bandwidth_bytes_per_s * w_tokens_per_ms / limit.w_tokens_per_ms


def rates_of_window(limit: DecodeLimit, window: DepthSpeed) -> tuple[float, float]:
    """Return the bytes/s at which a window reads weights and KV cache, without a line that separates them: equal."""
    n_before = window.n_depth + window.n_gen // 2
    kv_ms = n_before / limit.w_tokens_per_ms if limit.w_tokens_per_ms else 0.0
    return (limit.bandwidth_bytes_per_s * (limit.b_ms + kv_ms) * window.tok_s / 1e3,) * 2


def measured_speed(
    run_id: int | None,
    step_ms: Known,
    reach: int,
    *,
    is_steady: bool = True,
    rates: tuple[float, float] | None = None,
) -> SpeedEstimate | None:
    """Return the measurements of a run, up to `reach`; None if its steps show neither a line nor a rate."""
    if len(step_ms) > 1:
        return SpeedEstimate(
            "measured", f"run {run_id}", step_ms, reach=reach, is_steady=is_steady, rates=rates
        )
    return SpeedEstimate("measured", f"run {run_id}", is_steady=is_steady, rates=rates) if rates else None
