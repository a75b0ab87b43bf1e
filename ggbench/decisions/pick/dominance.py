"""Which candidates no other dominates: at least as good in loss, speed and context, and clearly better in one.

"At least as good" compares the value and both ends of the interval; "clearly better" means that intervals do not
overlap. So overlapping values never decide alone, and dominance is transitive. If a value is unknown for one of two
candidates, neither dominates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ggbench.decisions.pick.record import Candidate
from ggbench.engines.endings import Outcome
from ggbench.stats.intervals import Estimate

_Order = Literal["better", "as good", "worse", "unknown"]
"""The comparison of two candidates: clearly better, at least as good, or neither."""


def pareto_front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other dominates, in their order."""
    return tuple(one for one in candidates if not any(dominates(other, one) for other in candidates))


def dominates(one: Candidate, other: Candidate) -> bool:
    """Return whether the first is at least as good as the second in everything and clearly better in something."""
    if one.row.outcome is not Outcome.COMPLETED:
        return False
    orders = [_by_loss(one, other), _by_context(one, other), *_by_speed(one, other)]
    return "better" in orders and not {"worse", "unknown"} & set(orders)


def _by_loss(one: Candidate, other: Candidate) -> _Order:
    if one.model_key != other.model_key:
        return "unknown"
    return "unknown" if one.loss is None or other.loss is None else _less(one.loss, other.loss)


def _by_speed(one: Candidate, other: Candidate) -> list[_Order]:
    """Compare the speed of the answer, and the time of the turn if either is known."""
    if one.speed is None or other.speed is None:
        return ["unknown"]
    orders = [_less(_negative(one.speed.tok_s), _negative(other.speed.tok_s))]
    if one.speed.turn_s is not None and other.speed.turn_s is not None:
        orders.append(_less(one.speed.turn_s, other.speed.turn_s))
    elif one.speed.turn_s is not None or other.speed.turn_s is not None:
        orders.append("unknown")
    return orders


def _by_context(one: Candidate, other: Candidate) -> _Order:
    mine = one.offered_n_ctx
    theirs = other.offered_n_ctx if other.row.outcome is Outcome.COMPLETED else 0
    if mine is None or theirs is None:
        return "unknown"
    if mine == theirs:
        return "as good"
    return "better" if mine > theirs else "worse"


def _less(one: Estimate, other: Estimate) -> _Order:
    """Compare two values; less is better."""
    if one.high < other.low:
        return "better"
    is_as_good = one.value <= other.value and one.low <= other.low and one.high <= other.high
    return "as good" if is_as_good else "worse"


def _negative(expected: Estimate) -> Estimate:
    return Estimate(-expected.value, -expected.high, -expected.low)
