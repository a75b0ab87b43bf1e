"""Why a candidate is the pick and others are not, and what to mind of it: keys of `ggbench/show/words.toml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.choose import best_way
from ggbench.decisions.pick.needs import LITTLE_BYTES, Needs
from ggbench.decisions.pick.order import SAME_SIZE, Concessions, concessions, fastest, least_loss, pace
from ggbench.decisions.pick.record import Candidate, Checked, Pick, Reason

SPEED_KEYS = ("may_miss", "may_miss_here", "no_bandwidth", "slow", "slow_turn", "slow_instead", "lossy_instead")
"""What is said first: that a speed is slow, or that it is not known."""


def why(pick: Pick, best: Checked) -> Iterator[Reason]:
    """Yield how it runs, or what it misses, and what speaks against the quants that lose just less and just more, and
    against the other models.
    """
    own = best.candidate
    if own.speed is not None:
        yield Reason("pick.answers" if own.speed.turn_s is None else "pick.turn", best)
    if own.host_bytes is not None:
        yield Reason("pick.experts" if own.setup.n_cpu_moe else "pick.layers", best)
    if best.missed:
        yield Reason("pick.misses", best)
    if pick.recommended is None:
        return
    for other in (*_beside(best, pick.checked, pick.needs), *_other_models(best, pick.checked, pick.needs)):
        key = _against(own, other, pick.needs)
        if key:
            yield Reason(f"pick_against.{key}", other)


def _beside(chosen: Checked, checked: Sequence[Checked], needs: Needs) -> Iterator[Checked]:
    """Yield the best way to run the larger quant that loses just less, and the smaller one that loses just more."""
    own = chosen.candidate
    others = (each for each in checked if each.candidate.model_key == own.model_key and _bytes(each.candidate))
    best = _best_by("quant", (each for each in others if each.candidate.quant != own.quant), needs)
    size, loss = _bytes(own), _loss(own)
    finer = [each for each in best if _bytes(each.candidate) > size and _loss(each.candidate) < loss]
    coarser = [each for each in best if _bytes(each.candidate) < size and _loss(each.candidate) > loss]
    if finer:
        yield max(finer, key=lambda each: _loss(each.candidate))
    if coarser:
        yield min(coarser, key=lambda each: _loss(each.candidate))


def _other_models(chosen: Checked, checked: Sequence[Checked], needs: Needs) -> list[Checked]:
    own = chosen.candidate.model_key
    return _best_by("model_key", (each for each in checked if each.candidate.model_key != own), needs)


def _best_by(name: str, checked: Iterable[Checked], needs: Needs) -> list[Checked]:
    """Return the best way to run each quant, or each model."""
    groups: dict[str, list[Checked]] = {}
    for each in checked:
        groups.setdefault(getattr(each.candidate, name), []).append(each)
    return [best_way(group, needs) for group in groups.values()]


def _bytes(candidate: Candidate) -> int:
    return candidate.row.weight_bytes or 0


def _loss(candidate: Candidate) -> tuple[bool, float, float]:
    return least_loss(candidate, "quality")


def _against(own: Candidate, other: Checked, needs: Needs) -> str:
    """Return the key of the first rule that puts another candidate after the pick; empty if nothing can be said."""
    rival = other.candidate
    if other.meets is False:
        return "misses"
    mine, theirs = concessions(own, needs), concessions(rival, needs)
    if theirs > mine:
        return _asked_more(mine, theirs, rival, needs)
    if rival.model_key != own.model_key:
        return _of_models(own, rival)
    if needs.prefer == "context":
        return "holds"
    if rival.loss is None:
        return ""
    if rival.speed is None:
        return "loses_only"
    if _loss(rival) > _loss(own):
        return "loses"
    if rival.is_split and not own.is_split:
        return "part"
    return "slower" if pace(rival) < pace(own) else "cramped"


def _asked_more(mine: Concessions, theirs: Concessions, rival: Candidate, needs: Needs) -> str:
    """Return the first concession that another candidate asks beyond those of the pick."""
    if theirs.noticed > mine.noticed:
        return "noticed"
    if theirs.slow > mine.slow:
        return _slow(rival, needs)
    return "untimed" if theirs.untimed > mine.untimed else "split"


def _slow(candidate: Candidate, needs: Needs) -> str:
    """Return whether its answers are slow, or else its turns."""
    return "slow" if pace(candidate) < needs.workload.comfort_tok_s else "slow_turn"


def _of_models(own: Candidate, rival: Candidate) -> str:
    """Return why another model is not the pick, though it asks no more."""
    if own.model_key in rival.superseded_by:
        return "superseded"
    mine, theirs = own.n_params, rival.n_params
    if own.is_mixture is not rival.is_mixture and theirs * SAME_SIZE >= mine:
        return "kind"
    return "smaller" if theirs < mine else "model"


def reminded(pick: Pick, *, is_here: bool) -> Pick:
    """Return the pick with what to mind of it, the most important first; `is_here` if it can be measured."""
    return (
        pick if pick.best is None else replace(pick, mind=tuple(_reminders(pick, pick.best, is_here=is_here)))
    )


def _reminders(pick: Pick, best: Checked, *, is_here: bool) -> Iterator[Reason]:
    yield from _of_cache(pick, best)
    yield from (Reason(f"pick.{key}", best) for key in _keys(pick, best, "_here" if is_here else ""))


def _of_cache(pick: Pick, best: Checked) -> Iterator[Reason]:
    """Yield that the cache of the pick, or of an alternative, costs what people notice; else what a quantized one is
    instead of.
    """
    for each in (best, *(each.checked for each in pick.alternatives)):
        loss, needs = each.candidate.cache_loss, pick.needs
        if needs.notices(loss.value):
            yield Reason("pick.cache_noticed", each)
            return
    own = best.candidate
    whole = [
        each for each in pick.checked if each.meets is not False and _is_same_but_cache(each.candidate, own)
    ]
    if own.is_cache_quantized and whole:
        yield Reason("pick.cache_trade", min(whole, key=lambda each: fastest(each.candidate)))


def _is_same_but_cache(one: Candidate, other: Candidate) -> bool:
    is_same = (one.model_key, one.quant) == (other.model_key, other.quant)
    return is_same and not one.is_cache_quantized and one.speed is not None and one.loss is not None


def _keys(pick: Pick, best: Checked, here: str) -> Iterator[str]:
    own, needs = best.candidate, pick.needs
    if needs.is_raised:
        yield "raised"
    if needs.has_shorter_turn:
        yield "shorter_turn"
    yield from _of_speed(pick, best, here)
    if needs.n_ctx_slot > (own.row.n_ctx_train or needs.n_ctx_slot):
        yield "beyond_training"
    if own.left_bytes is not None and 0 <= own.left_bytes < LITTLE_BYTES:
        yield "little_left_experts" if own.setup.n_cpu_moe else "little_left"
    if best.close:
        yield "close"
    yield from _of_estimates(pick, own, here)


def _of_speed(pick: Pick, best: Checked, here: str) -> Iterator[str]:
    own = best.candidate
    if best.unknown:
        yield f"may_miss{here}"
    elif own.tok_s is None:
        yield "no_bandwidth"
    if pick.comfortable is False and own.speed is not None:
        yield "slow_instead" if pick.instead else _slow(own, pick.needs)
    elif pick.instead:
        yield "lossy_instead"


def _of_estimates(pick: Pick, own: Candidate, here: str) -> Iterator[str]:
    if own.tok_s is not None and own.tok_s.is_estimate:
        yield "estimated" if own.tok_s.is_timed else f"estimated{here}"
    if pick.has_rivals:
        of_current = "by_score" if pick.scores else "by_size"
        yield of_current if pick.n_current else "compared"
