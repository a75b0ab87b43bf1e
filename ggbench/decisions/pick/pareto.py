"""The Pareto front of a pick's candidates, with their uncertainty.

One candidate dominates another if it is at least as good in quality, in speed and in context, and clearly better in one
of them. At least as good means that value and both ends of the interval are; clearly better, that the intervals are
apart. So two figures whose intervals overlap never decide by themselves, a bound on speed does not beat a measurement,
and what is dominated by the dominated is dominated too. A loss, a speed or a context that is unknown of one of two
candidates leaves both on the front: losses compare between quants of one model, and of two cache types only where both
are known. A context that llama.cpp refused to size counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ggbench.decisions.pick.record import Candidate
from ggbench.engines.endings import Outcome
from ggbench.stats.intervals import Expected

_Order = Literal["better", "as good", "worse", "unknown"]
"""Of one candidate by the other: `better` is clearly better, `as good` not worse, `worse` anything else."""


def pareto_front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other dominates, in their order."""
    return tuple(one for one in candidates if not any(dominates(other, one) for other in candidates))


def dominates(one: Candidate, other: Candidate) -> bool:
    """Return whether the first is as good as the second in everything, and clearly better in something.

    What llama.cpp refuses to size dominates nothing: it misses the need for memory, whatever else is known of it.
    """
    if one.row.outcome is not Outcome.COMPLETED:
        return False
    orders = [_by_loss(one, other), _by_context(one, other), *_by_speed(one, other)]
    return "better" in orders and not {"worse", "unknown"} & set(orders)


def _by_loss(one: Candidate, other: Candidate) -> _Order:
    if one.model_key != other.model_key:
        return "unknown"
    if one.loss is not None and other.loss is not None:
        return _less(one.loss, other.loss)
    if one.loss is None and other.loss is None and one.cache == other.cache:
        # What the cache loses is unknown, and the same of both.
        if one.weights_loss is None or other.weights_loss is None:
            return "unknown"
        return _less(one.weights_loss.nats, other.weights_loss.nats)
    return "unknown"


def _by_speed(one: Candidate, other: Candidate) -> list[_Order]:
    """By the speed of the answer, and by the time of the turn where that is known of both or of neither."""
    if one.speed is None or other.speed is None:
        return ["unknown"]
    orders = [_less(_negative(one.speed.tok_s), _negative(other.speed.tok_s))]
    if one.speed.turn_s is not None and other.speed.turn_s is not None:
        orders.append(_less(one.speed.turn_s, other.speed.turn_s))
    elif one.speed.turn_s is not None or other.speed.turn_s is not None:
        orders.append("unknown")
    return orders


def _by_context(one: Candidate, other: Candidate) -> _Order:
    mine, theirs = _context(one), _context(other)
    if mine is None or theirs is None:
        return "unknown"
    if mine == theirs:
        return "as good"
    return "better" if mine > theirs else "worse"


def _context(candidate: Candidate) -> int | None:
    return candidate.offered_n_ctx if candidate.row.outcome is Outcome.COMPLETED else 0


def _less(one: Expected, other: Expected) -> _Order:
    """The order where less is better."""
    if one.high < other.low:
        return "better"
    is_as_good = one.value <= other.value and one.low <= other.low and one.high <= other.high
    return "as good" if is_as_good else "worse"


def _negative(expected: Expected) -> Expected:
    return Expected(-expected.value, -expected.high, -expected.low)
