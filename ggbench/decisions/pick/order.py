"""Compare candidates in what they ask of their user, in loss and in speed: the orders in which the rules sort them."""

from __future__ import annotations

from typing import NamedTuple

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate
from ggbench.expect.loss import is_clearly_above
from ggbench.gguf_file.quants import plain_quant

_CACHE_BITS = {"f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0}
_FEWEST_BITS = 4.5
"""Bits of all other cache types, q4_0 and iq4_nl."""
FASTER = 1.05
"""Ratio of speeds up to which two candidates are about equally fast."""


class Concessions(NamedTuple):
    """What a candidate asks of its user; less of the first matters more than any of the next."""

    noticed: bool
    """People notice its loss, in one of five cases or more."""
    slow: bool
    """It is certainly not comfortable."""
    split: bool
    """A part of it that could be on a GPU is in main memory."""
    cache: bool
    """Its KV cache is quantized."""


def concessions(candidate: Candidate, needs: Needs) -> Concessions:
    """Return what a candidate asks of its user; of an unknown loss or speed nothing is said to be asked."""
    return Concessions(
        needs.notices(candidate.cautious_loss),
        is_comfortable(candidate, needs) is False,
        candidate.is_split,
        candidate.is_cache_quantized,
    )


def is_comfortable(candidate: Candidate, needs: Needs) -> bool | None:
    """Return whether answer and turn are as fast as the workload's comfort asks; None if unknown."""
    speed, workload = candidate.speed, needs.workload
    if speed is None:
        return None
    if speed.tok_s.value < workload.comfort_tok_s:
        return False
    return speed.turn_s is None or speed.turn_s.value <= workload.comfort_turn_s


def clearly_loses_more(one: Candidate, other: Candidate) -> bool:
    """Return whether the first certainly loses more than the second.

    Of those whose first has no better cache the weights decide; others must have disjoint intervals.
    """
    if one.joint_loss is None and other.joint_loss is None and cache_bits(one) <= cache_bits(other):
        mine, theirs = one.weights_loss, other.weights_loss
        if mine is not None and theirs is not None and mine.is_estimate and theirs.is_estimate:
            return is_clearly_above(mine, theirs)
    loss, base = one.loss, other.loss
    return loss is not None and base is not None and loss.low > base.high


def cache_bits(candidate: Candidate) -> float:
    """Return the bits per element of the coarser of both caches."""
    return min(_CACHE_BITS.get(name, _FEWEST_BITS) for name in candidate.cache)


def loss_class(candidate: Candidate, needs: Needs) -> int:
    """0 for little, 1 for unknown, 2 for more than little."""
    if needs.notices(candidate.cautious_loss):
        return 2
    return 1 if candidate.loss is None else 0


def loss_order(candidate: Candidate) -> tuple[bool, float]:
    """Order by known loss, or by bits per weight if none is known."""
    if candidate.loss is None:
        return True, -(candidate.row.bpw or 0.0)
    return False, candidate.loss.value


def last_order(candidate: Candidate) -> tuple[bool, float, bool, float, int, tuple[str, ...]]:
    """Order by speed (unknown ones last), then quantization of the cache, context, file size and name."""
    size, longest = candidate.row.file_bytes or 0, float(candidate.offered_n_ctx or 0)
    is_quantized = candidate.is_cache_quantized
    return candidate.speed is None, -pace(candidate), is_quantized, -longest, size, candidate.name


def pace(candidate: Candidate) -> float:
    """Return the tokens/s of the answer, which all estimates have, unlike the time of a turn; 0 if unknown."""
    return 0.0 if candidate.speed is None else candidate.speed.tok_s.value


def _is_i_quant(candidate: Candidate) -> bool:
    return plain_quant(candidate.row.quant).startswith("iq")


def clearly_slower(one: Candidate, other: Candidate) -> bool:
    """Return whether intervals are disjoint or, for two estimates of one kind, whether the ratio is above `FASTER`.

    Such estimates share their error: both follow from the bytes to read, at a rate found elsewhere. By bytes alone an
    i-quant makes no other slower, as it takes more computation.
    """
    if one.speed is None or other.speed is None:
        return other.speed is not None
    if one.speed.tok_s.basis == other.speed.tok_s.basis and not one.speed.tok_s.is_timed:
        is_by_bytes = one.speed.tok_s.basis == "scaled" and _is_i_quant(other) and not _is_i_quant(one)
        return not is_by_bytes and FASTER * pace(one) < pace(other)
    if one.speed.turn_s is not None and other.speed.turn_s is not None:
        return one.speed.turn_s.low > other.speed.turn_s.high
    return one.speed.tok_s.high < other.speed.tok_s.low
