"""Choose the quant, the KV cache and the placement to run by `RULES`.

Alternatives are also from the front and miss no need. All on GPU: the best without a part in main memory, if the pick
has one there. Dense, mixture: the best of the other kind. Better: clearly lower loss. Faster: the fastest with
little loss. More context: the lowest loss among those with at least 1.5 times the context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ggbench.decisions.pick.checks import check
from ggbench.decisions.pick.dominance import pareto_front
from ggbench.decisions.pick.needs import Needs, Preference
from ggbench.decisions.pick.order import (
    FASTER,
    cache_bits,
    clearly_loses_more,
    clearly_slower,
    concessions,
    is_comfortable,
    last_order,
    loss_class,
    loss_order,
    pace,
)
from ggbench.decisions.pick.reasons import reasons_of
from ggbench.decisions.pick.record import BestIn, Candidate, Checked, Label, Listed, Pick
from ggbench.engines.endings import Outcome
from ggbench.expect.loss import UNNOTICED_LOSS

_MORE_CONTEXT = 1.5
"""Ratio of contexts above which the alternative with more context is chosen by quality."""
_WORTH = 1.2
"""How many times slower less loss may be: a q5_k_m reads 1.18 times the bytes of a q4_k_m."""
_NEARLY = 0.8
"""Share of the wanted speed from which a measured one is nearly enough."""
_SAME_SIZE = 1.5
"""Ratio of parameters up to which a dense model and a mixture of experts are rivals."""


def recommend(candidates: Sequence[Candidate], needs: Needs) -> Pick:
    """Return the recommendation with its alternatives, or the nearest miss if nothing is known to come as near."""
    checked = tuple(check(each, needs) for each in candidates)
    front = pareto_front(candidates)
    names = {each.name for each in front}
    on_front = [each for each in checked if each.candidate.name in names]
    best = _best(_surest(on_front), needs, needs.prefer)
    if best is None:
        miss = min(checked, key=lambda each: _miss_order(each, needs), default=None)
        return Pick(needs, checked, front, None, nearest_miss=miss)
    chosen, best_in = best
    near = None if chosen.meets else _nearly_enough(checked)
    if near is not None:
        return Pick(needs, checked, front, None, (Listed("may meet", chosen),), nearest_miss=near)
    fitting = [each for each in on_front if needs.prefer != "balanced" or _holds(each.candidate, needs)]
    ideal = _best(fitting, needs, needs.prefer)
    return Pick(
        needs,
        checked,
        front,
        chosen,
        _alternatives(chosen, [each for each in on_front if each.meets is not False], needs),
        None if ideal is None else ideal[0],
        best_in=best_in,
        comfortable=is_comfortable(chosen.candidate, needs),
        reasons=tuple(reasons_of(chosen, checked, needs)),
    )


def _holds(candidate: Candidate, needs: Needs) -> bool:
    return (candidate.max_n_ctx or 0) >= candidate.row.used_of(needs.n_ctx)


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


def best_way(checked: Sequence[Checked], needs: Needs) -> Checked:
    """Return the best of some candidates, or the nearest miss if each misses a need."""
    best = _best(_surest(checked), needs, needs.prefer)
    return min(checked, key=lambda each: _miss_order(each, needs)) if best is None else best[0]


def _surest(checked: Iterable[Checked]) -> list[Checked]:
    """Return those that meet every need, else those that miss none."""
    open_to_choice = [each for each in checked if each.meets is not False]
    return [each for each in open_to_choice if each.meets] or open_to_choice


def _nearly_enough(checked: Iterable[Checked]) -> Checked | None:
    """Return the fastest that misses nothing but a speed, measured or forecast to be within 20 % of it."""
    found = [
        each
        for each in checked
        if [miss.need for miss in each.missed] == ["speed"]
        and not each.unknown
        and each.candidate.speed is not None
        and each.candidate.speed.tok_s.is_timed
        and (each.missed[0].value or 0.0) >= _NEARLY * each.missed[0].wanted
    ]
    return min(found, key=lambda each: (each.missed[0].short_by or 0.0, each.candidate.name), default=None)


def _balanced(candidates: Sequence[Candidate], needs: Needs) -> tuple[Candidate, BestIn]:
    """Return the best of one model's candidates as a friend would choose, and its advantage."""
    least = min(concessions(each, needs) for each in candidates)
    if least.noticed:
        pool = [each for each in candidates if concessions(each, needs)[:2] == least[:2]]
        return min(pool, key=lambda each: (loss_order(each), *last_order(each))), "loss"
    pool = [each for each in candidates if concessions(each, needs) == least]
    if least.split and not least.cache:
        pool = _clearly_faster([each for each in candidates if concessions(each, needs)[:3] == least[:3]], pool)
    if least.slow:
        return min(pool, key=last_order), "fastest though slow"
    return _least_loss_for_speed([each for each in pool if is_comfortable(each, needs)] or pool)


def _least_loss_for_speed(pool: Sequence[Candidate]) -> tuple[Candidate, BestIn]:
    """Return the fastest that nobody can tell from the original, or else the least loss, of those that are not over
    1.2 times slower than the fastest.
    """
    most = max(map(pace, pool))
    worth = [each for each in pool if pace(each) * _WORTH >= most]
    alike = [each for each in worth if each.loss is not None and each.cautious_loss <= UNNOTICED_LOSS]
    if alike:
        return min(alike, key=last_order), "balance"
    return min(worth, key=lambda each: (loss_order(each), *last_order(each))), "least loss at this speed"


def _clearly_faster(several: list[Candidate], pool: list[Candidate]) -> list[Candidate]:
    """Return several candidates if the fastest is over 1.2 times as fast as any of the pool, else the pool."""
    fastest, rival = min(several, key=last_order), min(pool, key=last_order)
    is_comparable = (fastest.speed is None) == (rival.speed is None)
    return several if is_comparable and pace(fastest) > _WORTH * pace(rival) else pool


def _best(checked: Sequence[Checked], needs: Needs, prefer: Preference) -> tuple[Checked, BestIn] | None:
    """Return the best of each model's best candidates, and its advantage; None without candidates."""
    best = _best_candidate([each.candidate for each in checked], needs, prefer)
    return None if best is None else (next(each for each in checked if each.candidate is best[0]), best[1])


def _best_candidate(
    candidates: Sequence[Candidate], needs: Needs, prefer: Preference
) -> tuple[Candidate, BestIn] | None:
    by_model: dict[str, list[Candidate]] = {}
    for each in candidates:
        by_model.setdefault(each.model_key, []).append(each)
    chosen = _asking_least([_best_of_model(each, needs, prefer) for each in by_model.values()], needs, prefer)
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    if prefer in ("balanced", "quality"):
        return _largest([each for each, _ in chosen], prefer)
    if prefer == "context":
        return min(chosen, key=lambda each: (-(each[0].offered_n_ctx or 0), *last_order(each[0])))
    return min(chosen, key=lambda each: last_order(each[0]))


def _asking_least(
    chosen: list[tuple[Candidate, BestIn]], needs: Needs, prefer: Preference
) -> list[tuple[Candidate, BestIn]]:
    """Return the models that ask least of their user in loss and comfort, or of one class of loss."""

    def asked(candidate: Candidate) -> tuple[int, ...]:
        return concessions(candidate, needs)[:2] if prefer == "balanced" else (loss_class(candidate, needs),)

    least = min((asked(each) for each, _ in chosen), default=())
    return [(each, best_in) for each, best_in in chosen if asked(each) == least]


def _largest(candidates: Sequence[Candidate], prefer: Preference) -> tuple[Candidate, BestIn]:
    """Return the one with the most parameters, or what rule 8 prefers of it and its rival of the other kind."""
    by_size = sorted(candidates, key=lambda each: (-(each.row.n_params or 0), *last_order(each)))
    first, n_params = by_size[0], by_size[0].row.n_params or 0
    others = (each for each in by_size if each.is_mixture is not first.is_mixture)
    rival = next((each for each in others if (each.row.n_params or 0) * _SAME_SIZE >= n_params > 0), None)
    if rival is None:
        return first, "parameters"
    if prefer == "quality":
        return (rival if first.is_mixture else first), "dense"
    return min(first, rival, key=last_order), "faster of dense and mixture"


def _best_of_model(
    candidates: Sequence[Candidate], needs: Needs, prefer: Preference
) -> tuple[Candidate, BestIn]:
    if prefer == "balanced":
        return _balanced(candidates, needs)
    least = min(loss_class(each, needs) for each in candidates)
    pool = [each for each in candidates if loss_class(each, needs) == least]
    if all(each.loss is None for each in pool):  # the weights' is not known
        bits = max(map(cache_bits, pool))
        pool = [each for each in pool if cache_bits(each) == bits]
    if prefer == "context":
        longest = min(pool, key=lambda each: (-(each.offered_n_ctx or 0), loss_order(each), *last_order(each)))
        return longest, "context"
    return _best_by_speed(pool, needs) if prefer == "speed" else _best_by_loss(pool)


def _best_by_speed(pool: Sequence[Candidate], needs: Needs) -> tuple[Candidate, BestIn]:
    pool = [each for each in pool if each.speed is not None] or pool
    fastest = min(pool, key=last_order)
    best, _ = _balanced([each for each in pool if not clearly_slower(each, fastest)], needs)
    return best, "speed" if best is fastest else "balance among the fastest"


def _best_by_loss(pool: Sequence[Candidate]) -> tuple[Candidate, BestIn]:
    known = [each for each in pool if each.loss is not None]
    if not known:
        return min(pool, key=lambda each: (-(each.row.bpw or 0.0), *last_order(each))), "bits"
    best = min(known, key=lambda each: (loss_order(each), *last_order(each)))
    fastest = min((each for each in known if not clearly_loses_more(each, best)), key=last_order)
    return fastest, "loss" if fastest is best else "speed among the least loss"


def _alternatives(recommended: Checked, pool: Sequence[Checked], needs: Needs) -> tuple[Listed, ...]:
    """Return at most one candidate per label, none twice."""
    own, found = recommended.candidate, list[Listed]()
    for label, among, prefer in _rivals(own, pool, needs):
        listed = [own, *(each.checked.candidate for each in found)]
        left = [each for each in among if not any(_is_outdone(each.candidate, one) for one in listed)]
        best = _best(left, needs, prefer)
        if best is not None:
            found.append(Listed(label, best[0]))
    return tuple(found)


def _rivals(
    own: Candidate, pool: Sequence[Checked], needs: Needs
) -> Iterator[tuple[Label, Sequence[Checked], Preference]]:
    """Yield those with each advantage over the pick, and what is preferred of them."""
    is_lossy = concessions(own, needs).noticed
    acceptable = [each for each in pool if is_lossy or not concessions(each.candidate, needs).noticed]
    if own.is_split:
        yield "all on GPU", [each for each in _of_model(own, pool) if not each.candidate.is_split], needs.prefer
    by_quality: Preference = "quality"
    if needs.prefer == "balanced":
        by_quality, pool = "balanced", acceptable
    yield "dense" if own.is_mixture else "mixture", _of_other_kind(own, pool, needs), needs.prefer
    yield "better", [each for each in _of_model(own, pool) if _is_better(each.candidate, own)], by_quality
    if needs.workload.n_depth is not None:  # else each speed is at the end of a context of its own
        yield "faster", [each for each in acceptable if _is_faster(each.candidate, own)], "speed"
    yield "more context", _with_more_context(pool, own), by_quality


def _of_other_kind(own: Candidate, pool: Iterable[Checked], needs: Needs) -> list[Checked]:
    """Return the mixtures for a dense model and the reverse, without those that are not comfortable."""
    others = (each for each in pool if each.candidate.is_mixture is not own.is_mixture)
    return [each for each in others if is_comfortable(each.candidate, needs) is not False]


def _of_model(own: Candidate, pool: Iterable[Checked]) -> list[Checked]:
    return [each for each in pool if each.candidate.model_key == own.model_key]


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


def _is_better(one: Candidate, other: Candidate) -> bool:
    is_known = one.loss is not None and other.loss is not None
    return is_known and loss_order(one) < loss_order(other) and clearly_loses_more(other, one)


def _is_faster(one: Candidate, other: Candidate) -> bool:
    is_comparable = one.speed is not None or other.speed is None
    return is_comparable and pace(one) > FASTER * pace(other) > 0 and clearly_slower(other, one)


def _with_more_context(pool: Sequence[Checked], own: Candidate) -> list[Checked]:
    """Return the candidates with at least 1.5 times the context or, if there are none, with over 5 % more.

    None is partly in main memory if the pick is: what a layer more there would leave to the context was not tried.
    """
    pool = [each for each in pool if not (own.is_split and each.candidate.is_split)]
    gains = [(each, (each.candidate.offered_n_ctx or 0) / (own.offered_n_ctx or 1)) for each in pool]
    return [each for each, gain in gains if gain >= _MORE_CONTEXT] or [
        each for each, gain in gains if gain > FASTER
    ]


def _miss_order(each: Checked, needs: Needs) -> tuple[object, ...]:
    """Order by the number of missed needs, then by the worst miss, relative to the need.

    If a speed is needed, what loses little is first; of those that miss only the speed, what is measured. What misses
    more than the whole memory is last.
    """
    speed = each.candidate.speed
    is_estimated = speed is not None and not speed.tok_s.is_timed
    misses_speed = {miss.need for miss in each.missed} == {"speed"}
    is_lossy = concessions(each.candidate, needs).noticed
    worst = max(
        (math.inf if miss.short_by is None else miss.short_by for miss in each.missed), default=math.inf
    )
    is_refused = each.candidate.row.outcome is not Outcome.COMPLETED
    is_worse = is_lossy and needs.tok_s is not None, worst >= 1, misses_speed and is_estimated
    return is_refused, len(each.missed), *is_worse, worst, each.candidate.name
