"""Recommend what `choose` chooses, with alternatives, the reasons, and what to mind.

Alternatives are of other models, if there are any, also from the front, miss no need, and ask no more of their user
than the pick. All on GPU: the best without a part in main memory, if the pick has one there. Dense, mixture: the best
of the other kind. Better: clearly lower loss. Faster: the fastest. More context: the best with 1.5 times the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.choose import best_of, miss_order, surest
from ggbench.decisions.pick.needs import Needs, Preference
from ggbench.decisions.pick.order import (
    FASTER,
    MORE_CONTEXT,
    check,
    concern_of,
    concessions,
    is_comfortable,
    is_slower,
    pareto_front,
)
from ggbench.decisions.pick.reasons import reminders, why
from ggbench.decisions.pick.record import Candidate, Label, Listed, Pick, Reason
from ggbench.expect.loss import UNNOTICED_LOSS, is_clearly_above


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
        listed = [Listed(_label(n_current, needs), best), *_alternatives(best, front, needs)]
    else:
        nearest_first = sorted(found, key=lambda each: miss_order(each, needs))
        listed = [Listed("nearest", each) for each in nearest_first[:1]]
    sized = tuple(Listed(label, check(exactly(own), needs)) for label, own in listed)
    pick = Pick(needs, sized, _rest(found, listed, front), n_current=n_current)
    return pick if pick.best is None else _explained(pick, pick.best, rules)


def _label(n_current: int, needs: Needs) -> Label:
    by_capability = n_current and needs.prefer in ("balanced", "quality")
    return "→ most capable" if by_capability else "→ pick"


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
    return pick.recommended is not None and not any(concessions(pick.recommended, pick.needs)[:2])


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
    is_fast = rival.tok_s is None or rival.tok_s.value >= needs.workload.comfort_tok_s
    return is_fast and is_clearly_above(own.loss, rival.loss)


def _is_roomier(rival: Candidate, own: Candidate) -> bool:
    """Return whether a rival has the context; of a part in main memory only one placement was tried."""
    return not rival.is_split and (rival.max_n_ctx or 0) >= MORE_CONTEXT * (own.max_n_ctx or 1)
