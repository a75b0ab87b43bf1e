"""Recommend what `choose` chooses, with alternatives, the reasons, and what to mind.

Alternatives are of other models, if there are any, also from the front, miss no need, and ask no more of their user
than the pick. All on GPU: the best without a part in main memory, if the pick has one there. Dense, mixture: the best
of the other kind. Better: clearly lower loss. Faster: the fastest. More context: the best with 1.5 times the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.choose import best_of, best_way, grouped, miss_order, surest
from ggbench.decisions.pick.needs import LITTLE_BYTES, Needs, Preference
from ggbench.decisions.pick.order import (
    FASTER,
    MORE_CONTEXT,
    asks_nothing,
    check,
    concern_of,
    concessions,
    fastest,
    is_comfortable,
    is_slower,
    least_loss,
    pace,
    pareto_front,
)
from ggbench.decisions.pick.record import Candidate, Label, Listed, Pick, Reason
from ggbench.expect.loss import NOTICED_LOSS, UNNOTICED_LOSS, is_clearly_above


def recommend(
    candidates: Sequence[Candidate],
    needs: Needs,
    *,
    n_current: int = 0,
    exactly: Callable[[Candidate], Candidate] = lambda each: each,
) -> Pick:
    """Return the recommendation with its alternatives, or the nearest miss.

    `n_current` models of the catalog competed; `exactly` sizes what is listed.
    """
    found = [check(each, needs) for each in candidates]
    front = pareto_front(found)
    rules: Sequence[str] = ()
    if chosen := best_of(surest(front), needs, needs.prefer):
        best, rules = chosen
        others = _alternatives(best, front, needs)
        listed = [Listed(_label(best, others, n_current), best), *others]
    else:
        nearest_first = sorted(found, key=lambda each: miss_order(each, needs))
        listed = [Listed("nearest", each) for each in nearest_first[:1]]
    sized = tuple(Listed(label, check(exactly(own), needs)) for label, own in listed)
    pick = Pick(needs, sized, _rest(found, listed, front), n_current=n_current)
    return pick if pick.best is None else _explained(pick, pick.best, rules)


def _label(best: Candidate, others: Sequence[Listed], n_current: int) -> Label:
    """Return whether it is the most capable of current models: none beside it has a higher score."""
    is_best = n_current and all(each.candidate.score <= best.score for each in others)
    return "→ most capable" if is_best else "→ pick"


def _rest(
    found: Sequence[Candidate], listed: Sequence[Listed], front: Sequence[Candidate]
) -> tuple[Listed, ...]:
    """Return what is not listed, in its order."""
    names, on_front = {each.candidate.name for each in listed}, {each.name for each in front}
    others = (each for each in found if each.name not in names)
    return tuple(Listed("" if each.name in on_front else "dominated", each) for each in others)


def _explained(pick: Pick, chosen: Candidate, rules: Sequence[str]) -> Pick:
    """Return a pick with why it is made, and what to mind of it."""
    needs = pick.needs
    pick = replace(
        pick,
        comfortable=is_comfortable(chosen, needs) if pick.recommended else None,
        concern=concern_of(chosen, replace(needs, max_loss=None)),
        why=(*(Reason(f"pick_best.{rule}", chosen) for rule in rules), *why(pick, chosen)),
    )
    return replace(pick, mind=tuple(reminders(pick, chosen)))


def is_good(pick: Pick) -> bool:
    """Return whether something meets the needs, is comfortable as far as is known, and loses little."""
    return pick.recommended is not None and asks_nothing(pick.recommended, pick.needs)


def _alternatives(own: Candidate, front: Sequence[Candidate], needs: Needs) -> list[Listed]:
    """Return at most one candidate per label, none twice, each other model once."""
    able = [each for each in front if not each.missed]
    others = [each for each in able if each.model_key != own.model_key]
    found = list[Listed]()
    for label, among, prefer in _rivals(own, others or able, needs):
        names = {own.name, *(each.candidate.name for each in found)}
        models = {each.candidate.model_key for each in found} - {own.model_key}
        left = [each for each in among if each.name not in names and each.model_key not in models]
        best = best_of(left, needs, prefer)
        if best is not None:
            found.append(Listed(label, best[0]))
    return found


def _rivals(
    own: Candidate, pool: Sequence[Candidate], needs: Needs
) -> Iterator[tuple[Label, list[Candidate], Preference]]:
    """Yield those with each advantage over the pick, and what is preferred of them."""
    same = [each for each in pool if each.model_key == own.model_key]
    if own.is_split:
        yield "all on GPU", [each for each in same if not each.is_split], needs.prefer
    asked = concessions(own, needs)[:2]
    pool = [each for each in pool if concessions(each, needs)[:2] <= asked]
    kind: Label = "dense" if own.is_mixture else "mixture"
    yield kind, [each for each in pool if each.is_mixture is not own.is_mixture], needs.prefer
    if same:
        yield "better", [each for each in pool if _is_better(each, own, needs)], "quality"
    yield "faster", [each for each in pool if is_slower(own, each, FASTER)], "speed"
    yield "more context", [each for each in pool if _is_roomier(each, own)], needs.prefer


def _is_better(rival: Candidate, own: Candidate, needs: Needs) -> bool:
    """Return whether a rival clearly loses less, at a speed that is comfortable or unknown."""
    if own.cautious_loss <= UNNOTICED_LOSS or own.loss is None or not rival.loss:
        return False
    is_fast = rival.tok_s is None or rival.tok_s.value >= needs.comfort_tok_s
    return is_fast and is_clearly_above(own.loss, rival.loss)


def _is_roomier(rival: Candidate, own: Candidate) -> bool:
    """Return whether a rival has the context; of a part in main memory only one placement was tried."""
    return not rival.is_split and (rival.max_n_ctx or 0) >= MORE_CONTEXT * (own.max_n_ctx or 1)


def why(pick: Pick, best: Candidate) -> Iterator[Reason]:
    """Yield how it runs, or what it misses, and what speaks against its model's other quants and against other models,
    each in the best way to run it.
    """
    if best.speed is not None:
        yield Reason("pick.answers" if best.speed.total_s is None else "pick.comfort", best)
    if pick.has_rivals:
        yield Reason("pick.of_current" if pick.n_current else "pick.compared", best)
    if best.host_bytes is not None:
        yield Reason("pick.experts" if best.setup.n_cpu_moe else "pick.layers", best)
    if best.missed:
        yield Reason("pick.misses", best)
        return
    of_model = grouped(pick.candidates, lambda each: each.model_key)
    of_quant = grouped(of_model.pop(best.model_key), lambda each: each.quant)
    del of_quant[best.quant]
    for group in (*of_quant.values(), *of_model.values()):
        rival = best_way(group, pick.needs)
        key = _against(best, rival, pick.needs)
        if key:
            yield Reason(f"pick_against.{key}", rival)


def _against(own: Candidate, rival: Candidate, needs: Needs) -> str:
    """Return the key of the first rule that puts another candidate after the pick; empty if nothing can be said."""
    if rival.missed:
        return "misses"
    if conceded := _conceded(own, rival, needs):
        return conceded
    if own.model_key in rival.superseded_by:
        return "superseded"
    if rival.model_key != own.model_key:
        return "smaller" if rival.n_params < own.n_params else "model"
    if rival.loss is None or rival.speed is None:
        return ""
    if needs.prefer == "context":
        return "holds"
    return "loses" if least_loss(rival, "quality") > least_loss(own, "quality") else "slower"


def _conceded(own: Candidate, rival: Candidate, needs: Needs) -> str:
    """Return the first concession by which a rival asks more of its user; empty if it does not."""
    mine, theirs = concessions(own, needs), concessions(rival, needs)
    if theirs <= mine:
        return ""
    name = next(name for name in theirs._fields if getattr(theirs, name) > getattr(mine, name))
    return _slow(rival, needs) if name == "slow" else name


def _slow(candidate: Candidate, needs: Needs) -> str:
    """Return whether its answers are slow, or else its waits long."""
    return "slow" if pace(candidate) < needs.comfort_tok_s else "long_wait"


def reminders(pick: Pick, best: Candidate) -> Iterator[Reason]:
    """Yield what to mind of the pick, the most important first."""
    yield from (Reason(f"pick.{key}", best) for key in _of_speed(pick, best))
    if best.cache_loss.value >= NOTICED_LOSS:
        yield Reason("pick.cache_noticed", best)
    elif best.is_cache_quantized:
        whole = [each for each in pick.candidates if _is_whole_cache(each, best)]
        yield from [Reason("pick.cache_trade", min(whole, key=fastest))] if whole else []
    yield from (Reason(f"pick.{key}", best) for key in _of_context(pick, best))


def _of_speed(pick: Pick, best: Candidate) -> Iterator[str]:
    """Yield that the speed is slow, or not known."""
    if best.unknown:
        yield "may_miss"
    elif best.tok_s is None:
        yield "no_bandwidth"
    if pick.comfortable is False:
        yield _slow(best, pick.needs)


def _is_whole_cache(one: Candidate, other: Candidate) -> bool:
    """Return whether a candidate is the same file with an unquantized cache, and can be run."""
    is_same = (one.model_key, one.quant) == (other.model_key, other.quant)
    is_known = one.speed is not None and one.loss is not None
    return is_same and is_known and not one.missed and not one.is_cache_quantized


def _of_context(pick: Pick, best: Candidate) -> Iterator[str]:
    n_ctx = pick.needs.n_ctx_slot
    if n_ctx > (best.row.n_ctx_train or n_ctx):
        yield "beyond_training"
    if best.left_bytes is not None and 0 <= best.left_bytes < LITTLE_BYTES:
        yield "little_left_experts" if best.setup.n_cpu_moe else "little_left"
