"""Why a pick is neither the larger quant that loses just less nor the smaller one that loses just more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import Concessions, concessions, last_order, loss_order, pace
from ggbench.decisions.pick.record import Against, Candidate, Checked, Reason


def reasons_of(chosen: Checked, checked: Sequence[Checked], needs: Needs) -> Iterator[Reason]:
    """Yield at most one reason for each of both."""
    best = _best_of_others(chosen.candidate, checked, needs)
    size, loss = _size(chosen), loss_order(chosen.candidate)
    finer = [each for each in best if _size(each) > size and loss_order(each.candidate) < loss]
    coarser = [each for each in best if _size(each) < size and loss_order(each.candidate) > loss]
    if finer:
        other = max(finer, key=lambda each: loss_order(each.candidate))
        yield Reason(_against(chosen, other, needs), other, "larger")
    if coarser:
        other = min(coarser, key=lambda each: loss_order(each.candidate))
        yield Reason(_against(chosen, other, needs), other, "smaller")


def _best_of_others(own: Candidate, checked: Sequence[Checked], needs: Needs) -> list[Checked]:
    """Return the best way to run each other quant of the model."""
    by_quant: dict[str, list[Checked]] = {}
    for each in checked:
        if each.candidate.model_key == own.model_key and _size(each) and each.candidate.quant != own.quant:
            by_quant.setdefault(each.candidate.quant, []).append(each)
    asked = concessions(own, needs)
    return [min(group, key=lambda each: _rank(each, needs, asked)) for group in by_quant.values()]


def _size(checked: Checked) -> int:
    return checked.candidate.row.weight_bytes or 0


def _rank(each: Checked, needs: Needs, asked: Concessions) -> tuple[object, ...]:
    """Order by needs met, by what it asks beyond what the pick asks, then by speed.

    Of those that miss needs, what is too large for the GPUs is last.
    """
    met = {True: 0, None: 1, False: 2}[each.meets]
    met += any(miss.need == "memory" and not miss.of_main_memory for miss in each.missed)
    theirs = concessions(each.candidate, needs)
    return (
        met,
        tuple(more and not less for more, less in zip(theirs, asked, strict=True)),
        *last_order(each.candidate),
    )


def _against(chosen: Checked, other: Checked, needs: Needs) -> Against:
    """Return the first rule that puts the other after the pick."""
    if other.meets is False:
        return "misses"
    if needs.prefer != "balanced":
        return "ranks lower"
    mine, theirs = concessions(chosen.candidate, needs), concessions(other.candidate, needs)
    kinds: tuple[Against, ...] = ("noticed", "slow", "split", "cache")
    for kind, own, rival in zip(kinds, mine, theirs, strict=True):
        if own != rival:
            return kind if rival else "ranks lower"
    if chosen.candidate.speed is not None and other.candidate.speed is None:
        return "unknown speed"
    return "slower" if pace(other.candidate) < pace(chosen.candidate) else "hardly faster"
