"""Seconds a turn: a prompt read after some context, and the answer to it, from what is known of a quant's speed.

The prompt takes T(depth + n_prompt) - T(depth), where T(n) = b n + c n² is the time of a prompt read from an empty
context; the answer takes the sum of its steps. Both ends of an interval are carried through by themselves: what makes
one length slower than expected makes the others slower too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ggbench.decisions.pick.needs import Workload
from ggbench.decisions.pick.record import TurnSpeed
from ggbench.stats.intervals import Expected
from ggbench.stats.known_speed import KnownSpeed, step_ms_at
from ggbench.stats.samples import least_squares_above_zero
from ggbench.units import KV_CELLS

_SAMPLED_STEPS = 9
"""Of an answer: latency grows by straight lines, so that their mean is that of all steps."""


def turn_speed(known: KnownSpeed, workload: Workload, n_ctx: int) -> TurnSpeed:
    """Return how fast the turn is in a context of `n_ctx` tokens."""
    depth = workload.depth_in(n_ctx)
    answer_ms = _summed_steps(known, depth + workload.n_prompt, workload.n_gen)
    per_s = 1e3 * workload.n_gen
    return TurnSpeed(
        tok_s=Expected(per_s / answer_ms.value, per_s / answer_ms.high, per_s / answer_ms.low),
        turn_s=_turn_s(known, depth, workload.n_prompt, answer_ms),
        basis=known.basis,
        source=known.source,
    )


def longest_fast_enough(known: KnownSpeed, workload: Workload, n_ctx: int, tok_s: float) -> int:
    """Return the longest context up to `n_ctx` in which the answer is as fast as `tok_s`, by the value; 0 for none.

    A multiple of 256. Latency does not fall as the context grows, so that halving finds it.
    """
    fast, slow = 0, n_ctx // KV_CELLS + 1
    while slow - fast > 1:
        middle = (fast + slow) // 2
        if turn_speed(known, workload, middle * KV_CELLS).tok_s.value >= tok_s:
            fast = middle
        else:
            slow = middle
    return fast * KV_CELLS


def _summed_steps(known: KnownSpeed, first: int, n_gen: int) -> Expected:
    """The time in ms of the steps that follow `first` tokens."""
    positions = np.unique(np.linspace(first + 1, first + n_gen, min(n_gen, _SAMPLED_STEPS)).round().astype(int))
    steps = [step_ms_at(known, int(position)) for position in positions]
    return _each_way(lambda way: n_gen * float(np.mean([getattr(step, way) for step in steps])))


def _turn_s(known: KnownSpeed, depth: int, n_prompt: int, answer_ms: Expected) -> Expected | None:
    if not known.prefill_ms:
        return None
    return _each_way(
        lambda way: (
            (_prompt_ms([(n, getattr(each, way)) for n, each in known.prefill_ms], depth, n_prompt)
             + getattr(answer_ms, way)) / 1e3
        )
    )  # fmt: skip


def _prompt_ms(timings: Sequence[tuple[int, float]], depth: int, n_prompt: int) -> float:
    """The time of a prompt after `depth` tokens, by b n + c n² through the timings, relative errors least."""
    if not all(np.isfinite(ms) for _, ms in timings):
        return float("inf")
    if not all(ms > 0 for _, ms in timings):  # low ends of wide intervals: no fit of relative errors
        return 0.0
    lengths = np.array([n for n, _ in timings], np.float64)
    ms = np.array([each for _, each in timings])
    rows = np.stack([lengths, lengths**2], axis=1)
    linear, square = least_squares_above_zero(rows / ms[:, None], np.ones_like(ms))
    end = depth + n_prompt
    return float(linear * n_prompt + square * (end**2 - depth**2))


def _each_way(value: Callable[[str], float]) -> Expected:
    """The value, and what it is at either end of the interval."""
    return Expected(value("value"), value("low"), value("high"))
