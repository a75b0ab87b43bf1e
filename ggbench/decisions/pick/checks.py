"""Check a candidate against every need."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, NeedCheck
from ggbench.engines.endings import Outcome


def check(candidate: Candidate, needs: Needs) -> Candidate:
    """Return a candidate with the check of every need; memory is always one, for the context up to the trained one."""
    checks = [_memory(candidate, needs)]
    if needs.tok_s is not None:
        checks.append(_speed(candidate, needs.tok_s))
    if needs.max_loss is not None:
        checks.append(_loss(candidate, needs.max_loss))
    return replace(candidate, checks=tuple(checks))


def _memory(candidate: Candidate, needs: Needs) -> NeedCheck:
    row, n_ctx, wanted = candidate.row, candidate.max_n_ctx, candidate.row.used_of(needs.n_ctx)
    if row.outcome is not Outcome.COMPLETED:
        return NeedCheck("memory", wanted, None, False, short_by=1.0)
    if n_ctx is None or n_ctx >= wanted:
        return NeedCheck("memory", wanted, n_ctx, None if n_ctx is None else True)
    missing = max(0, -(candidate.left_bytes or 0))
    short_by = missing / (row.budget_bytes or missing) if missing else 1 - n_ctx / wanted
    return NeedCheck("memory", wanted, n_ctx, False, short_by)


def _speed(candidate: Candidate, wanted: float) -> NeedCheck:
    if candidate.speed is None:
        return NeedCheck("speed", wanted, None, None)
    tok_s = candidate.speed.tok_s
    if tok_s.value < wanted:
        return NeedCheck("speed", wanted, tok_s.value, False, 1 - tok_s.value / wanted)
    return NeedCheck("speed", wanted, tok_s.value, True if tok_s.is_timed or tok_s.low >= wanted else None)


def _loss(candidate: Candidate, wanted: float) -> NeedCheck:
    loss = candidate.loss
    if loss is None:
        return NeedCheck("loss", wanted, None, None)
    is_met = loss.value <= wanted
    return NeedCheck("loss", wanted, loss.value, is_met, 0.0 if is_met else 1 - wanted / loss.value)
