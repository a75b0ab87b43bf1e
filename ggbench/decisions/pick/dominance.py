"""Which candidates no other dominates: at least as good in loss, speed and context, and clearly better in one.

"At least as good" compares the value and both ends of the interval; "clearly better" means that intervals do not
overlap. So overlapping values never decide alone, and dominance is transitive. If a value is unknown for one of two
candidates, neither dominates.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.decisions.pick.record import Candidate
from ggbench.engines.endings import Outcome
from ggbench.stats.intervals import Estimate


def pareto_front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that no other dominates, in their order."""
    return [one for one in candidates if not any(dominates(other, one) for other in candidates)]


def dominates(one: Candidate, other: Candidate) -> bool:
    """Return whether the first is at least as good as the second in everything and clearly better in something."""
    if one.row.outcome is not Outcome.COMPLETED or one.model_key != other.model_key:
        return False
    mine, theirs = _costs(one), _costs(other)
    if not mine or len(mine) != len(theirs):
        return False
    pairs = list(zip(mine, theirs, strict=True))
    is_better = [a.high < b.low for a, b in pairs]
    is_as_good = [a.value <= b.value and a.low <= b.low and a.high <= b.high for a, b in pairs]
    return any(is_better) and all(is_as_good)


def _costs(candidate: Candidate) -> list[Estimate]:
    """Return what of a candidate is better if it is less: its loss, context, speed and, if known, time of a turn.

    Empty if one of the others is unknown.
    """
    loss, n_ctx, speed = candidate.loss, candidate.max_n_ctx, candidate.speed
    if loss is None or n_ctx is None or speed is None:
        return []
    slowness = Estimate(-speed.tok_s.value, -speed.tok_s.high, -speed.tok_s.low)
    costs = [loss, Estimate(-n_ctx, -n_ctx, -n_ctx), slowness]
    return costs if speed.turn_s is None else [*costs, speed.turn_s]
