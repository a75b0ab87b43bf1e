"""How long a session takes where a file is placed: each prompt after what is cached, and each answer at its depth.

A file may hold thousands of turns, and a pick times it with each candidate: all turns are computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
from msgspec.structs import astuple, replace

from ggbench.expect.sessions import Conversation, count_reread
from ggbench.expect.speed import curve_at
from ggbench.stats.intervals import Estimate, Expected, SpeedBasis
from ggbench.stats.samples import Floats
from ggbench.stats.speed_curve import Known, SessionTime, SpeedCurve, inverse


class TurnTimes(NamedTuple):
    """Seconds, with a column for each turn."""

    waits_s: Floats | None
    """Until each first token; None if prompt speed is unknown."""
    answers_s: Floats
    """After it; 0 without another token."""
    curve: SpeedCurve
    """What the last answer rests on."""


def session_time(
    curves: Sequence[SpeedCurve], session: Conversation, n_cached: Sequence[int] = ()
) -> SessionTime | None:
    """Return the time of a session; None if the speed at a depth is unknown. `turn_times()` describes `n_cached`.

    Each end of a sum is the sum of these ends: errors of one curve are correlated over turns.
    """
    times, n_steps = turn_times(curves, session, n_cached), sum(turn.n_steps for turn in session.turns)
    if times is None:
        return None
    waits, curve, answers = times.waits_s, times.curve, Estimate(*times.answers_s.sum(axis=1).tolist())
    tok_s = inverse(answers, n_steps) if n_steps else curve.tok_s_at(session.n_tokens)
    speed = Expected(tok_s.value, tok_s.low, tok_s.high, curve.basis, curve.source, curve.is_steady)
    n_reread = sum(map(count_reread, session.depths, n_cached))
    found = SessionTime(session.name, len(session.turns), session.n_tokens, speed, answers, n_reread=n_reread)
    if waits is None:
        return found
    first, last = (Estimate(*ends) for ends in waits.T[[0, -1]].tolist())
    total = answers.plus(Estimate(*waits.sum(axis=1).tolist()))
    basis = max(curve.basis, curve.prefill_basis or curve.basis, key=get_args(SpeedBasis).index)
    return replace(
        found,
        total_s=Expected(total.value, total.low, total.high, basis, curve.prefill_source or curve.source),
        first_wait_s=first,
        last_wait_s=last,
    )


@np.errstate(invalid="ignore")  # infinite ends
def turn_times(
    curves: Sequence[SpeedCurve], session: Conversation, n_cached: Sequence[int] = ()
) -> TurnTimes | None:
    """Return the times of the turns; None if a depth is unknown.

    `n_cached` are the tokens that a server has cached of each prompt, by default all that the session keeps. An answer
    takes the step in its middle, times its steps. No wait is shorter than a step, which reads the weights as well.
    """
    begins, turns = np.array(n_cached or session.depths), session.turns
    ends = np.add(session.depths, [turn.n_new for turn in turns])
    steps = np.array([turn.n_steps for turn in turns])
    middles = ends + (steps + 1) // 2
    chosen = list(filter(None, (curve_at(curves, middle) for middle in middles.tolist())))
    if len(chosen) < len(turns):
        return None
    answers, waits = np.zeros((3, len(turns))), np.zeros((3, len(turns)))
    for curve in {id(each): each for each in chosen}.values():
        own, steps_ms = [each is curve for each in chosen], _points_of(curve.step_ms)
        answers[:, own] = np.where(steps[own], steps[own] * _along(*steps_ms, middles[own]), 0.0)
        if curve.prefill_ms:
            read = _read(curve.prefill_ms, ends[own])
            read = np.where(np.isfinite(read), read - _read(curve.prefill_ms, begins[own]), np.inf)
            waits[:, own] = _ordered(np.maximum(read, _along(*steps_ms, ends[own])))
    return TurnTimes(waits / 1e3 if waits.any() else None, answers / 1e3, chosen[-1])


def _read(known: Known, n: Floats) -> Floats:
    """Return the times of prompts of `n` tokens from an empty context.

    A token takes what lies on the line through the two nearest lengths, but no less than in any that is known.
    """
    lengths, ms = _points_of(known)
    of_token = ms / lengths
    return np.where(n, n * np.maximum(_along(lengths, of_token, n), of_token.min(axis=1, keepdims=True)), 0.0)


def _points_of(known: Known) -> tuple[Floats, Floats]:
    """Return the positions, and the values with both ends as rows."""
    positions, values = zip(*known, strict=True)
    return np.array(positions), np.array(list(map(astuple, values))).T


def _along(positions: Floats, values: Floats, n: Floats) -> Floats:
    """Return what `interpolated()` does, at many positions."""
    above = np.clip(np.searchsorted(positions, n), 1, len(positions) - 1)
    before, after = values[:, above - 1], values[:, above]
    share = (n - positions[above - 1]) / np.maximum(positions[above] - positions[above - 1], 1)
    return _ordered(np.where(np.isinf(before + after), np.inf, before + share * (after - before)))


def _ordered(found: Floats) -> Floats:
    """Return values with both ends, each on its side."""
    value, low, high = found
    return np.array([value, np.minimum(low, value), np.maximum(high, value)])
