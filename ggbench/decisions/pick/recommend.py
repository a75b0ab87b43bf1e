"""Recommend what `choose` chooses, with alternatives, the reasons, and what to mind.

Alternatives are also from the front, miss no need, and ask no more of their user than the pick. All on GPU: the best
without a part in main memory, if the pick has one there. Dense, mixture: the best of the other kind. Better: clearly
lower loss. Faster: the fastest. More context: the best of those with at least 1.5 times the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.checks import check
from ggbench.decisions.pick.choose import best_of, best_way, miss_order, surest
from ggbench.decisions.pick.dominance import pareto_front
from ggbench.decisions.pick.needs import Needs, Preference
from ggbench.decisions.pick.order import (
    FASTER,
    MORE_CONTEXT,
    concern_of,
    concessions,
    is_comfortable,
    is_slower,
    pace,
)
from ggbench.decisions.pick.reasons import reminded, why
from ggbench.decisions.pick.record import Candidate, Checked, Label, Listed, Pick, Reason
from ggbench.expect.loss import UNNOTICED_LOSS, is_clearly_above


def recommend(candidates: Sequence[Candidate], needs: Needs, *, is_here: bool = True) -> Pick:
    """Return the recommendation with its alternatives, or the nearest miss; `is_here` if it can be measured."""
    checked = tuple(check(each, needs) for each in candidates)
    front = pareto_front(candidates)
    names = {each.name for each in front}
    on_front = [each for each in checked if each.candidate.name in names]
    best = best_of(surest(on_front), needs, needs.prefer)
    if best is None:
        miss = min(checked, key=lambda each: miss_order(each, needs), default=None)
        return _explained(Pick(needs, checked, front, None, nearest_miss=miss), (), is_here=is_here)
    chosen, rules = best
    found = Pick(
        needs,
        checked,
        front,
        chosen,
        _alternatives(chosen, [each for each in on_front if each.meets is not False], needs),
        comfortable=is_comfortable(chosen.candidate, needs),
    )
    return _explained(found, rules, is_here=is_here)


def _explained(pick: Pick, rules: Iterable[str], *, is_here: bool) -> Pick:
    best = pick.best
    if best is None:
        return pick
    by_rule = (Reason(f"pick_best.{rule}", best) for rule in rules)
    pick = replace(pick, concern=concern_of(best.candidate, pick.needs), why=(*by_rule, *why(pick, best)))
    return reminded(pick, is_here=is_here)


def ranked(pick: Pick) -> tuple[Checked, ...]:
    """Return the best way to run each quant, as the rules would pick them if those before did not exist.

    Those that miss a need are last, the nearest first.
    """
    by_quant: dict[tuple[str, str], list[Checked]] = {}
    for each in pick.checked:
        by_quant.setdefault((each.candidate.model_key, each.candidate.quant), []).append(each)
    left = [
        pick.recommended if pick.recommended in group else best_way(group, pick.needs)
        for group in by_quant.values()
    ]
    found: list[Checked] = []
    while left:
        found.append(pick.recommended if pick.recommended in left else best_way(left, pick.needs))
        left.remove(found[-1])
    return tuple(found)


def _alternatives(recommended: Checked, pool: Sequence[Checked], needs: Needs) -> tuple[Listed, ...]:
    """Return at most one candidate per label, none twice."""
    own, found = recommended.candidate, list[Listed]()
    for label, among, prefer in _rivals(own, pool, needs):
        listed = [own, *(each.candidate for each in found)]
        left = [each for each in among if not any(_is_outdone(each.candidate, one) for one in listed)]
        best = best_of(left, needs, prefer)
        if best is not None:
            found.append(Listed(label, best[0]))
    return tuple(found)


def _rivals(
    own: Candidate, pool: Sequence[Checked], needs: Needs
) -> Iterator[tuple[Label, list[Checked], Preference]]:
    """Yield those with each advantage over the pick, and what is preferred of them."""
    if own.is_split:
        whole = [each for each in pool if not each.candidate.is_split]
        yield "all on GPU", [each for each in whole if each.candidate.model_key == own.model_key], needs.prefer
    asked = concessions(own, needs)[:2]
    pool = [each for each in pool if concessions(each.candidate, needs)[:2] <= asked]
    kind: Label = "dense" if own.is_mixture else "mixture"
    yield kind, _of_other_kind(pool, own), needs.prefer
    if own.cautious_loss > UNNOTICED_LOSS:
        yield "better", [each for each in pool if _is_better(each.candidate, own)], "quality"
    if needs.workload.n_depth is not None:  # else each speed is at the end of a context of its own
        faster = [each for each in pool if is_slower(own, each.candidate, FASTER)]
        yield "faster", faster, "speed"
    yield "more context", _with_more_context(pool, own), needs.prefer


def _is_outdone(one: Candidate, by: Candidate) -> bool:
    """Return whether another candidate of the model is at least as good by the values of loss, speed and context."""
    if one.name == by.name:
        return True
    return (
        one.model_key == by.model_key
        and (by.speed is not None or one.speed is None)
        and (by.offered_n_ctx or 0) >= (one.offered_n_ctx or 0)
        and by.loss is not None
        and one.loss is not None
        and by.loss.value <= one.loss.value
        and pace(by) >= pace(one) > 0
    )


def _of_other_kind(pool: Sequence[Checked], own: Candidate) -> list[Checked]:
    return [each for each in pool if each.candidate.is_mixture is not own.is_mixture]


def _is_better(one: Candidate, other: Candidate) -> bool:
    """Return whether another quant of the model loses clearly less."""
    if one.model_key != other.model_key or one.loss is None or other.loss is None:
        return False
    return is_clearly_above(other.loss, one.loss)


def _with_more_context(pool: Sequence[Checked], own: Candidate) -> list[Checked]:
    """Return the candidates with at least 1.5 times the context.

    None is partly in main memory if the pick is: what a layer more there would leave to the context was not tried.
    """
    least = MORE_CONTEXT * (own.offered_n_ctx or 1)
    found = [each for each in pool if not (own.is_split and each.candidate.is_split)]
    return [each for each in found if (each.candidate.offered_n_ctx or 0) >= least]
