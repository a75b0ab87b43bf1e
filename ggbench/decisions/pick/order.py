"""Compare candidates in what they ask of their user, in loss and in speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ggbench.decisions.pick.needs import Concern, Needs, Preference
from ggbench.decisions.pick.record import Candidate
from ggbench.expect.loss import UNNOTICED_LOSS
from ggbench.gguf_file.quants import plain_quant
from ggbench.units import GIB

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


def concern_of(candidate: Candidate, needs: Needs) -> Concern:
    """Return whether people notice its loss, of unknown weights its cache's; if not, whether they do of what that stays
    below in four of five cases.
    """
    if needs.notices((candidate.loss or candidate.cache_loss).value):
        return "noticed"
    return "may" if needs.notices(candidate.cautious_loss) else "little"


def is_comfortable(candidate: Candidate, needs: Needs) -> bool | None:
    """Return whether answer and turn are as fast as the workload's comfort asks; None if unknown."""
    speed, workload = candidate.speed, needs.workload
    if speed is None:
        return None
    if speed.tok_s.value < workload.comfort_tok_s:
        return False
    return speed.turn_s is None or speed.turn_s.value <= workload.comfort_turn_s


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


def fastest(candidate: Candidate) -> tuple[bool, float, bool, int, int, tuple[str, ...]]:
    """Order by speed (unknown ones last), then quantization of the cache, context, file size and name."""
    return (
        candidate.speed is None,
        -pace(candidate),
        candidate.is_cache_quantized,
        -(candidate.max_n_ctx or 0),
        candidate.row.file_bytes or 0,
        candidate.name,
    )


def pace(candidate: Candidate) -> float:
    """Return the tokens/s of the answer, which all estimates have, unlike the time of a turn; 0 if unknown."""
    return 0.0 if candidate.speed is None else candidate.speed.tok_s.value


def is_slower(one: Candidate, other: Candidate, ratio: float) -> bool:
    """Return whether the first is over `ratio` times slower and, unless both are estimates of one kind, shares at most
    half of the wider interval.

    Such estimates share their error: both follow from the bytes to read, at a rate found elsewhere. By bytes alone an
    i-quant makes no other slower, as it takes more computation.
    """
    if one.speed is None or other.speed is None:
        return other.speed is not None
    mine, theirs = one.speed.tok_s, other.speed.tok_s
    if ratio * mine.value >= theirs.value:
        return False
    if mine.basis == theirs.basis and not mine.is_timed:
        return not (theirs.basis == "scaled" and _is_i_quant(other) and not _is_i_quant(one))
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
