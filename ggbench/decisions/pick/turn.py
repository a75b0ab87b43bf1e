"""The speed of a workload's turn from an estimate of steps and prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import astuple

from ggbench.decisions.pick.needs import ChatTurn
from ggbench.decisions.pick.record import TurnSpeed
from ggbench.expect.speed import curve_at, speed_at
from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import Known, SpeedCurve, interpolated, inverse


def turn_speed(curves: Sequence[SpeedCurve], workload: ChatTurn) -> TurnSpeed | None:
    """Return the speed of the turn, by that in the middle of its answer; None if it is unknown.

    The prompt takes the time of one from an empty context to its end, less that to its beginning. Each end of an
    interval is computed from the same ends of all parts, since errors at different lengths are correlated.
    """
    depth, middle = workload.n_depth, workload.n_middle
    curve, tok_s = curve_at(curves, middle), speed_at(curves, middle)
    if curve is None or tok_s is None:
        return None
    if not curve.prefill_ms:
        return TurnSpeed(tok_s, None)
    before, after = (_prompt_ms(curve.prefill_ms, n) for n in (depth, depth + workload.n_prompt))
    answer_s = astuple(inverse(tok_s, workload.n_gen))
    prompt_s = (_less(*pair) / 1e3 for pair in zip(after, before, strict=True))
    return TurnSpeed(tok_s, Estimate(*map(sum, zip(prompt_s, answer_s, strict=True))))


def _prompt_ms(known: Known, n: int) -> tuple[float, ...]:
    """Return the time of a prompt of n tokens, and its ends.

    A token of it takes what lies on the line through the two nearest lengths, but no less than in any that is known.
    """
    if not n:
        return 0.0, 0.0, 0.0
    of_token = tuple((length, Estimate(*(each / length for each in astuple(ms)))) for length, ms in known)
    least = map(min, zip(*(astuple(ms) for _, ms in of_token), strict=True))
    return tuple(n * max(pair) for pair in zip(astuple(interpolated(of_token, n)), least, strict=True))


def _less(end: float, begin: float) -> float:
    return max(0.0, end - begin) if math.isfinite(end) else math.inf
