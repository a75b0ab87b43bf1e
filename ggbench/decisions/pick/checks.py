"""Check a candidate against every need."""

from __future__ import annotations

import math

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Checked, NeedCheck
from ggbench.engines.endings import Outcome


def check(candidate: Candidate, needs: Needs) -> Checked:
    """Check a candidate against every need; memory is always one, for the context up to the trained one."""
    checks = [_memory(candidate, needs)]
    if needs.tok_s is not None:
        checks.append(_speed(candidate, needs.tok_s))
    if needs.max_loss is not None:
        checks.append(_loss(candidate, needs.max_loss))
    return Checked(candidate, tuple(checks))


def _memory(candidate: Candidate, needs: Needs) -> NeedCheck:
    row, n_ctx, wanted = candidate.row, candidate.max_n_ctx, candidate.row.used_of(needs.n_ctx)
    if row.outcome is not Outcome.COMPLETED:
        return NeedCheck("memory", wanted, None, False, short_by=math.inf, refusal=row.reason)
    if n_ctx is None:
        return NeedCheck("memory", wanted, None, None)
    if n_ctx >= wanted:
        return NeedCheck("memory", wanted, n_ctx, True)
    missing, budget = -(candidate.left_bytes or 0), row.budget_bytes
    if not missing:
        return NeedCheck("memory", wanted, n_ctx, False, short_by=1 - n_ctx / wanted)
    short_by = missing / budget if budget else math.inf
    return NeedCheck(
        "memory",
        wanted,
        n_ctx,
        False,
        short_by=short_by,
        missing_bytes=missing,
        of_main_memory=row.lacks_main_memory,
    )


def _speed(candidate: Candidate, wanted: float) -> NeedCheck:
    speed = candidate.speed
    if speed is None:
        return NeedCheck("speed", wanted, None, None)
    value = speed.tok_s.value
    if value < wanted:
        return NeedCheck("speed", wanted, value, False, speed.tok_s.high >= wanted, 1 - value / wanted)
    is_close = speed.tok_s.low < wanted
    is_met = True if speed.tok_s.is_timed or not is_close else None
    return NeedCheck("speed", wanted, value, is_met, is_close)


def _loss(candidate: Candidate, wanted: float) -> NeedCheck:
    known = candidate.loss
    if known is not None and known.value > wanted:
        short_by = known.value / wanted - 1 if wanted else math.inf
        return NeedCheck("loss", wanted, known.value, False, known.low <= wanted, short_by)
    if known is None:
        return NeedCheck("loss", wanted, None, None)
    return NeedCheck("loss", wanted, known.value, True, known.high > wanted)
