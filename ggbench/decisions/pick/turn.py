"""The speed of a workload's turn from an estimate of steps and prompts, and the longest context that is fast enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ggbench.decisions.pick.needs import ChatTurn
from ggbench.decisions.pick.record import TurnSpeed
from ggbench.expect.speed import curve_at
from ggbench.stats.intervals import Estimate, Expected
from ggbench.stats.speed_curve import SpeedCurve, inverse
from ggbench.units import KV_CELLS, format_count

_SAMPLED_STEPS = 9
"""Number of an answer's steps to average: latency is piecewise linear."""


def turn_speed(curve: SpeedCurve, workload: ChatTurn, n_ctx: int) -> TurnSpeed:
    """Return the speed of the turn in a context of `n_ctx` tokens.

    The prompt takes T(depth + n_prompt) - T(depth), where T(n) = b n + c n² is the time of a prompt read from an empty
    context; the answer takes the sum of its steps. Each end of an interval is computed from the same ends of all parts,
    since errors at different lengths are correlated.
    """
    depth = workload.depth_in(n_ctx)
    answer_ms = _summed_steps(curve, depth + workload.n_prompt, workload.n_gen)
    source, reach = curve.source, curve.reach
    if curve.basis == "measured" and reach is not None and depth + workload.n_turn > reach:
        source += f", by its line beyond {format_count(reach)} tokens"
    tok_s = inverse(answer_ms, 1e3 * workload.n_gen)
    return TurnSpeed(
        Expected(tok_s.value, tok_s.low, tok_s.high, curve.basis, source, curve.is_steady),
        _turn_s(curve, depth, workload.n_prompt, answer_ms),
    )


def known_turn(curves: Sequence[SpeedCurve], workload: ChatTurn, n_ctx: int) -> TurnSpeed | None:
    """Return the speed of the turn by the curve that covers the end of its answer; None if none does."""
    curve = curve_at(curves, workload.depth_in(n_ctx) + workload.n_turn)
    return None if curve is None else turn_speed(curve, workload, n_ctx)


def longest_fast_enough(curves: Sequence[SpeedCurve], workload: ChatTurn, n_ctx: int, tok_s: float) -> int:
    """Return the longest context up to `n_ctx`, a multiple of 256, with an answer at `tok_s` or faster; 0 for none."""
    fast, slow = 0, n_ctx // KV_CELLS + 1
    while slow - fast > 1:
        middle = (fast + slow) // 2
        speed = known_turn(curves, workload, middle * KV_CELLS)
        if speed is not None and speed.tok_s.value >= tok_s:
            fast = middle
        else:
            slow = middle
    return fast * KV_CELLS


def _summed_steps(curve: SpeedCurve, first: int, n_gen: int) -> Estimate:
    """Return the time in ms of the steps that follow `first` tokens."""
    last = min(n_gen, _SAMPLED_STEPS) - 1
    positions = [round(first + 1 + index * (n_gen - 1) / max(1, last)) for index in range(last + 1)]
    steps = [curve.step_ms_at(position) for position in positions]
    return _each_way(lambda way: n_gen * math.fsum(getattr(step, way) for step in steps) / len(steps))


def _turn_s(curve: SpeedCurve, depth: int, n_prompt: int, answer_ms: Estimate) -> Estimate | None:
    if not curve.prefill_ms:
        return None
    return _each_way(
        lambda way: (
            (_prompt_ms([(n, getattr(each, way)) for n, each in curve.prefill_ms], depth, n_prompt)
             + getattr(answer_ms, way)) / 1e3
        )
    )  # fmt: skip


def _prompt_ms(timings: Sequence[tuple[int, float]], depth: int, n_prompt: int) -> float:
    """Return the time of a prompt after `depth` tokens, by fitting b n + c n² with the least relative errors.

    Neither coefficient is negative: if the best of both is, the better of either alone is taken.
    """
    if not all(math.isfinite(ms) for _, ms in timings):
        return math.inf
    if not all(ms > 0 for _, ms in timings):  # low ends of wide intervals cannot be fitted by relative errors
        return 0.0
    rows = [(n / ms, n * n / ms) for n, ms in timings]
    xx, xy, yy, x1, y1 = (
        math.fsum(each) for each in zip(*((x * x, x * y, y * y, x, y) for x, y in rows), strict=True)
    )
    one, other = x1 * yy - y1 * xy, y1 * xx - x1 * xy
    if len(timings) > 1 and one >= 0 and other >= 0:
        linear, square = one / (xx * yy - xy**2), other / (xx * yy - xy**2)
    else:
        linear, square = (x1 / xx, 0.0) if x1**2 / xx >= y1**2 / yy else (0.0, y1 / yy)
    end = depth + n_prompt
    return linear * n_prompt + square * (end**2 - depth**2)


def _each_way(value: Callable[[str], float]) -> Estimate:
    """Return a time and its interval, each computed from the corresponding values or ends of its parts."""
    return Estimate(value("value"), max(0.0, value("low")), value("high"))
