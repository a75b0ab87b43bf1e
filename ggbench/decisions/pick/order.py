"""Check candidates against needs, and compare them in what they ask of their user, in loss and in speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ggbench.decisions.pick.needs import FIRST_WAIT_S, LAST_WAIT_S, Concern, Needs, Preference
from ggbench.decisions.pick.record import Candidate, NeedCheck
from ggbench.engines.endings import Outcome
from ggbench.expect.loss import UNNOTICED_LOSS
from ggbench.gguf_file.quants import plain_quant
from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import SessionTime, inverse
from ggbench.units import GIB

ALIKE_LOSS = 0.002
"""Nats by which a loss is too little above another's to pay for it with memory: half the step from q8_0 to q6_k of an
8B, 0.0042, and more than that of a 27B (see `UNNOTICED_LOSS`)."""
FASTER = 1.1
"""Ratio of speeds from which one is worth naming for its speed alone."""
MORE_CONTEXT = 1.5
"""Ratio of contexts from which one is worth naming."""
ROOM_BYTES = GIB
"""Memory that an experienced person leaves free, for a longer context and a desktop."""
STRAIN = 0.02
"""Nats that having no room counts as: as much as the step from a q5_k_m to a q4_k_m of an 8B."""
SAME_SIZE = 1.5
"""Ratio of parameters up to which a dense model and a mixture of experts are rivals."""
SHARE_OF_SCORED = 4
"""How many times larger a model without a score is than scored ones that it counts as much as: what two years of
progress are worth, by the scores of one maker's models.
"""


class Concessions(NamedTuple):
    """What a candidate asks of its user; less of the first matters more than any of the next."""

    noticed: bool
    """People notice its loss."""
    slow: bool
    """It is certainly not comfortable."""
    untimed: bool
    """Its speed is not known."""


def concessions(candidate: Candidate, needs: Needs) -> Concessions:
    """Return what a candidate asks of its user; an unknown loss is not noticed."""
    return Concessions(
        concern_of(candidate, needs) == "noticed",
        is_comfortable(candidate, needs) is False,
        candidate.speed is None,
    )


def asks_nothing(candidate: Candidate, needs: Needs) -> bool:
    """Return whether nobody notices its loss, and it is not certainly slow."""
    return not any(concessions(candidate, needs)[:2])


def concern_of(candidate: Candidate, needs: Needs) -> Concern:
    """Return whether people notice its loss, of unknown weights its cache's; if not, whether they do of what that stays
    below in four of five cases.
    """
    if needs.notices((candidate.loss or candidate.cache_loss).value):
        return "noticed"
    return "may" if needs.notices(candidate.cautious_loss) else "little"


def is_comfortable(candidate: Candidate, needs: Needs) -> bool | None:
    """Return whether answers and waits are as fast as the workload's comfort asks; None if unknown."""
    speed = candidate.speed
    if speed is None:
        return None
    if speed.tok_s.value < needs.comfort_tok_s or waits_long(speed):
        return False
    return None if speed.total_s is None else True


def waits_long(speed: SessionTime) -> bool:
    """Return whether the first or the last wait is not comfortable; false if they are unknown."""
    waits = ((speed.first_wait_s, FIRST_WAIT_S), (speed.last_wait_s, LAST_WAIT_S))
    return any(wait is not None and wait.value > most_s for wait, most_s in waits)


def level(candidate: Candidate, needs: Needs, prefer: Preference) -> int:
    """Return 0 for a loss that nobody can tell, with room for it; 1 for little; 2 for one that may be noticed or is
    unknown.
    """
    if candidate.loss is None or concern_of(candidate, needs) != "little":
        return 2
    return 0 if weighed_loss(candidate, prefer) <= UNNOTICED_LOSS else 1


def weighed_loss(candidate: Candidate, prefer: Preference) -> float:
    """Return what it stays below in four of five cases [nats]; more for a part in main memory beside a GPU, or for
    leaving less than 1 GiB, unless quality is preferred.
    """
    return candidate.cautious_loss + (0.0 if prefer == "quality" else STRAIN * _strain(candidate))


def _strain(candidate: Candidate) -> float:
    if candidate.is_split:
        return 1.0
    return 0.0 if candidate.left_bytes is None else max(0.0, 1 - candidate.left_bytes / ROOM_BYTES)


def least_loss(candidate: Candidate, prefer: Preference) -> tuple[bool, float, float]:
    """Order by loss, or if that of the weights is unknown, by their bits, then by what the cache loses."""
    if candidate.loss is None:
        return True, -(candidate.row.bpw or 0.0), candidate.cautious_loss
    return False, weighed_loss(candidate, prefer), candidate.loss.value


def fastest(candidate: Candidate) -> tuple[bool, bool, float, bool, int, int, tuple[str, ...]]:
    """Order by the time of the session, then quantization of the cache, context, file size and name.

    After those are sessions whose prompt speed is unknown, by the time of their answers, and last unknown speeds.
    """
    speed = candidate.speed
    return (
        speed is None,
        speed is None or speed.total_s is None,
        0.0 if speed is None else (speed.total_s or speed.answers_s).value,
        candidate.is_cache_quantized,
        -(candidate.max_n_ctx or 0),
        candidate.row.file_bytes or 0,
        candidate.name,
    )


def pace(candidate: Candidate) -> float:
    """Return the tokens/s of answers, which all estimates have, unlike the time of a session; 0 if unknown."""
    return 0.0 if candidate.speed is None else candidate.speed.tok_s.value


def is_slower(one: Candidate, other: Candidate, ratio: float) -> bool:
    """Return whether the first's session, or if that of one is unknown its answers, take over `ratio` times longer and,
    unless both are estimates of one kind, share at most half of the wider interval.

    Such estimates share their error: both follow from the bytes to read, at a rate found elsewhere. By bytes alone an
    i-quant makes no other slower, as it takes more computation.
    """
    if one.speed is None or other.speed is None:
        return other.speed is not None
    basis = other.speed.tok_s.basis
    mine: Estimate = one.speed.tok_s
    theirs: Estimate = other.speed.tok_s
    is_estimate = one.speed.tok_s.basis == basis and not one.speed.tok_s.is_timed
    if one.speed.total_s is not None and other.speed.total_s is not None:
        mine, theirs = inverse(one.speed.total_s), inverse(other.speed.total_s)
    if ratio * mine.value >= theirs.value:
        return False
    if is_estimate:
        return not (basis == "scaled" and _is_i_quant(other) and not _is_i_quant(one))
    shared = min(mine.high, theirs.high) - max(mine.low, theirs.low)
    return 2 * shared <= max(mine.high - mine.low, theirs.high - theirs.low)


def _is_i_quant(candidate: Candidate) -> bool:
    return plain_quant(candidate.row.quant).startswith("iq")


def capability(candidate: Candidate) -> tuple[float, int, tuple[object, ...]]:
    """Order models of a kind: the most capable first, by score, then by parameters, then by speed."""
    return -candidate.score, -candidate.n_params, fastest(candidate)


def newest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of models that no other's model supersedes."""
    keys = {each.model_key for each in candidates}
    return [each for each in candidates if not keys & each.superseded_by]


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


def pareto_front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that no other dominates, in their order."""
    return [one for one in candidates if not any(dominates(other, one) for other in candidates)]


def dominates(one: Candidate, other: Candidate) -> bool:
    """Return whether the first is at least as good as the second in everything and clearly better in something.

    "At least as good" compares the value and both ends of the interval; "clearly better" means that intervals do not
    overlap. So overlapping values never decide alone, and dominance is transitive. If a value is unknown for one of two
    candidates, neither dominates.
    """
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
    """Return what of a candidate is better if it is less: its loss, context, speed and, if known, time of a session.

    Empty if one of the others is unknown.
    """
    loss, n_ctx, speed = candidate.loss, candidate.max_n_ctx, candidate.speed
    if loss is None or n_ctx is None or speed is None:
        return []
    slowness = Estimate(-speed.tok_s.value, -speed.tok_s.high, -speed.tok_s.low)
    costs = [loss, Estimate(-n_ctx, -n_ctx, -n_ctx), slowness]
    return costs if speed.total_s is None else [*costs, speed.total_s]
