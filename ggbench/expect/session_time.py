"""How long a session takes where a file is placed: each prompt after what is cached, and each answer at its depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import astuple, replace

from ggbench.expect.sessions import Conversation
from ggbench.expect.speed import curve_at
from ggbench.stats.intervals import Estimate, Expected
from ggbench.stats.speed_curve import Known, SessionTime, SpeedCurve, interpolated, inverse

_NO_TIME = Estimate(0.0, 0.0, 0.0)


class TurnTime(NamedTuple):
    wait_s: Estimate | None
    """Until the first token; None if prompt speed is unknown."""
    answer_s: Estimate
    curve: SpeedCurve
    """What the answer rests on."""


def session_time(
    curves: Sequence[SpeedCurve], session: Conversation, n_cached: Sequence[int] = ()
) -> SessionTime | None:
    """Return the time of a session; None if the speed at a depth is unknown. `turn_times()` describes `n_cached`.

    Each end of a sum is the sum of these ends: errors of one curve are correlated over turns.
    """
    times = turn_times(curves, session, n_cached)
    n_gen = sum(turn.n_gen for turn in session.turns)
    if not times or not n_gen:
        return None
    answers, last = _NO_TIME, times[-1].curve
    for each in times:
        answers = answers.plus(each.answer_s)
    tok_s = inverse(answers, n_gen)
    speed = Expected(tok_s.value, tok_s.low, tok_s.high, last.basis, last.source, last.is_steady)
    n_again = sum(session.depths) - sum(n_cached or session.depths)
    found = SessionTime(session.name, len(session.turns), session.n_tokens, speed, answers, n_again=n_again)
    waits = [each.wait_s for each in times if each.wait_s is not None]
    if len(waits) < len(times):
        return found
    total = answers
    for wait in waits:
        total = total.plus(wait)
    return replace(found, total_s=total, first_wait_s=waits[0], last_wait_s=waits[-1])


def turn_times(
    curves: Sequence[SpeedCurve], session: Conversation, n_cached: Sequence[int] = ()
) -> list[TurnTime]:
    """Return the times of the turns; empty if a depth is unknown.

    `n_cached` are the tokens that a server has cached of each prompt, by default all that the session keeps. An answer
    takes the step in its middle, times its tokens.
    """
    found, readers = list[TurnTime](), dict[int, _Reader]()
    for begin, depth, turn in zip(n_cached or session.depths, session.depths, session.turns, strict=True):
        end = depth + turn.n_new
        middle = end + turn.n_gen // 2
        curve = curve_at(curves, middle)
        if curve is None:
            return []
        wait = None
        if curve.prefill_ms:
            if id(curve) not in readers:
                readers[id(curve)] = _Reader(curve.prefill_ms)
            wait = _seconds(readers[id(curve)].between(begin, end, curve.step_ms_at(end)))
        answer = _seconds(curve.step_ms_at(middle), turn.n_gen) if turn.n_gen else _NO_TIME
        found.append(TurnTime(wait, answer, curve))
    return found


def _seconds(ms: Estimate, times: int = 1) -> Estimate:
    return _NO_TIME.plus(ms, times / 1e3)


class _Reader:
    """Reads prompts whose times from an empty context are known by length.

    A token takes what lies on the line through the two nearest lengths, but no less than in any that is known.
    """

    def __init__(self, known: Known) -> None:
        self._of_token = tuple((n, Estimate(*(each / n for each in astuple(ms)))) for n, ms in known)
        self._least = tuple(map(min, zip(*(astuple(ms) for _, ms in self._of_token), strict=True)))

    def between(self, begin: int, end: int, step: Estimate) -> Estimate:
        """Return the time [ms] from one length to another, at least that of a step, which reads the weights as well.

        It is the time of a prompt to the end, less that to the beginning.
        """
        spans = zip(self._upto(end), self._upto(begin), astuple(step), strict=True)
        value, low, high = (
            max(after - before, least) if math.isfinite(after) else math.inf for after, before, least in spans
        )
        return Estimate(value, min(low, value), max(high, value))

    def _upto(self, n: int) -> tuple[float, ...]:
        if not n:
            return 0.0, 0.0, 0.0
        expected = astuple(interpolated(self._of_token, n))
        return tuple(n * max(pair) for pair in zip(expected, self._least, strict=True))
