"""Whether a candidate meets what is needed: yes, no, or unknown."""

from __future__ import annotations

import math

from ggbench.decisions.pick.record import Candidate, Checked, NeedCheck, Needs
from ggbench.engines.endings import Outcome


def check(candidate: Candidate, needs: Needs) -> Checked:
    """Return the candidate beside every need that is stated; that of memory always is."""
    checks = [_memory(candidate, needs)]
    if needs.tok_s is not None:
        checks.append(_speed(candidate, needs.tok_s))
    if needs.max_loss is not None:
        checks.append(_loss(candidate, needs.max_loss))
    return Checked(candidate, tuple(checks))


def _memory(candidate: Candidate, needs: Needs) -> NeedCheck:
    """By the longest context that fits; what llama.cpp refuses to size misses the need."""
    row, n_ctx = candidate.row, candidate.max_n_ctx
    if row.outcome is not Outcome.COMPLETED:
        return NeedCheck("memory", needs.n_ctx, None, False, short_by=math.inf)
    if n_ctx is None:
        return NeedCheck("memory", needs.n_ctx, None, None)
    if n_ctx >= needs.n_ctx:
        return NeedCheck("memory", needs.n_ctx, n_ctx, True)
    missing, budget = -(row.left_bytes or 0), row.budget_bytes
    return NeedCheck("memory", needs.n_ctx, n_ctx, False, short_by=missing / budget if budget else math.inf)


def _speed(candidate: Candidate, wanted: float) -> NeedCheck:
    speed = candidate.speed
    if speed is None:
        return NeedCheck("speed", wanted, None, None)
    value = speed.tok_s.value
    if value < wanted:
        is_close = not speed.is_bound and speed.tok_s.high >= wanted
        return NeedCheck("speed", wanted, value, False, is_close, short_by=1 - value / wanted)
    if speed.is_bound:
        return NeedCheck("speed", wanted, value, None)
    return NeedCheck("speed", wanted, value, True, is_close=speed.tok_s.low < wanted)


def _loss(candidate: Candidate, wanted: float) -> NeedCheck:
    """Where only a part of the loss is known, it can only prove that the need is missed."""
    known = candidate.least_loss
    if known is None:
        return NeedCheck("loss", wanted, None, None)
    if known.value > wanted:
        short_by = known.value / wanted - 1 if wanted else math.inf
        return NeedCheck("loss", wanted, known.value, False, known.low <= wanted, short_by)
    if candidate.loss is None:
        return NeedCheck("loss", wanted, None, None)
    return NeedCheck("loss", wanted, known.value, True, known.high > wanted)
