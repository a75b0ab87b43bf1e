"""Choose the quant, the KV cache and the placement to run by `RULES`, and give the reasons.

Alternatives are also from the front and miss no need. Dense, mixture: the best of the other kind. Better: clearly lower
loss. Faster: the fastest with little loss.
More context: the lowest loss among those with at least 1.5 times the context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ggbench.decisions.pick.dominance import pareto_front
from ggbench.decisions.pick.needs import UNNOTICED_LOSS, Needs, Preference
from ggbench.decisions.pick.record import (
    Against,
    Alternative,
    BestIn,
    Candidate,
    Checked,
    Label,
    NeedCheck,
    Pick,
    Reason,
)
from ggbench.engines.endings import Outcome
from ggbench.stats.intervals import Z_95, Expected

_FASTER = 1.05
"""Minimum ratio of speeds for an alternative to be called faster."""
_MORE_CONTEXT = 1.5
"""Ratio of contexts above which the alternative with more context is chosen by quality."""
_WORTH = 1.2
"""How many times slower less loss may be: a q5_k_m reads 1.18 times the bytes of a q4_k_m."""
_NEARLY = 0.8
"""Share of the wanted speed from which a measured one is nearly enough."""
_SAME_SIZE = 1.5
"""Ratio of parameters up to which a dense model and a mixture of experts are rivals."""
_CACHE_BITS = {"f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0}
_FEWEST_BITS = 4.5
"""Bits of all other cache types, q4_0 and iq4_nl."""
_GOOD_CACHE_BITS = 8.0
"""Fewer may cost what people notice, if it is not known."""


class Concessions(NamedTuple):
    """What a candidate asks of its user; less of the first matters more than any of the next."""

    noticed: bool
    """People notice its loss."""
    slow: bool
    """It is certainly not comfortable."""
    split: bool
    """A part of it that could be on a GPU is in main memory."""
    cache: bool
    """Its KV cache is quantized."""


def concessions(candidate: Candidate, needs: Needs) -> Concessions:
    known = candidate.least_loss
    return Concessions(
        (known is not None and needs.notices(known.value)) or _is_coarse(candidate),
        is_comfortable(candidate, needs) is False,
        candidate.is_split,
        candidate.is_cache_quantized,
    )


def _is_coarse(candidate: Candidate) -> bool:
    """Return whether its cache has few bits and an unknown loss."""
    return candidate.loss is None and cache_bits(candidate) < _GOOD_CACHE_BITS


def is_comfortable(candidate: Candidate, needs: Needs) -> bool | None:
    """Return whether answer and turn are as fast as the workload's comfort asks; None if unknown."""
    speed, workload = candidate.speed, needs.workload
    if speed is None:
        return None
    if speed.tok_s.value < workload.comfort_tok_s:
        return False
    if speed.is_bound:
        return None
    return speed.turn_s is None or speed.turn_s.value <= workload.comfort_turn_s


def recommend(candidates: Sequence[Candidate], needs: Needs) -> Pick:
    """Return the recommendation with its alternatives, or the nearest miss if nothing is known to come as near."""
    checked = tuple(check(each, needs) for each in candidates)
    front = pareto_front(candidates)
    names = {each.name for each in front}
    open_to_choice = [each for each in checked if each.meets is not False and each.candidate.name in names]
    surest = [each for each in open_to_choice if each.meets] or open_to_choice
    best = _best([each.candidate for each in surest], needs, needs.prefer)
    by_name = {each.candidate.name: each for each in checked}
    near = None if best is None or by_name[best[0].name].meets else _nearly_enough(checked)
    if best is None or near is not None:
        found = Pick(needs, checked, front, None, nearest_miss=near or _nearest_miss(checked, needs))
        if best is None:
            return found
        return replace(found, alternatives=(Alternative("may meet", by_name[best[0].name]),))
    fitting = [each for each in front if (each.max_n_ctx or 0) >= needs.n_ctx or needs.prefer != "balanced"]
    (chosen, best_in), ideal = best, _best(fitting, needs, needs.prefer)
    first = None if ideal is None else by_name[ideal[0].name]
    recommended = by_name[chosen.name]
    alternatives = _alternatives(recommended, open_to_choice, needs)
    return Pick(
        needs,
        checked,
        front,
        recommended,
        alternatives,
        first,
        best_in=best_in,
        comfortable=is_comfortable(chosen, needs),
        reasons=tuple(_reasons(recommended, checked, needs)),
    )


def ranked(pick: Pick) -> tuple[Checked, ...]:
    """Return the best way to run each quant, as the rules would pick them if those before did not exist.

    Those that miss a need are last, the nearest first.
    """
    by_quant: dict[tuple[str, str], list[Checked]] = {}
    for each in pick.checked:
        by_quant.setdefault((each.candidate.model_key, _quant(each.candidate)), []).append(each)
    left = [
        pick.recommended if pick.recommended in group else best_way(group, pick.needs) for group in by_quant.values()
    ]
    found: list[Checked] = []
    while left:
        found.append(pick.recommended if pick.recommended in left else best_way(left, pick.needs))
        left.remove(found[-1])
    return tuple(found)


def best_way(checked: Sequence[Checked], needs: Needs) -> Checked:
    """Return the best of some candidates, or the nearest miss if each misses a need."""
    open_to_choice = [each for each in checked if each.meets is not False]
    surest = [each for each in open_to_choice if each.meets] or open_to_choice
    best = _best([each.candidate for each in surest], needs, needs.prefer)
    if best is None:
        return min(checked, key=lambda each: _miss_order(each, needs))
    return next(each for each in surest if each.candidate is best[0])


def _nearly_enough(checked: Iterable[Checked]) -> Checked | None:
    """Return the fastest that misses nothing but a speed, measured or forecast to be within 20 % of it."""
    found = [
        each
        for each in checked
        if [miss.need for miss in each.missed] == ["speed"]
        and not each.unknown
        and each.candidate.speed is not None
        and each.candidate.speed.basis in ("measured", "forecast")
        and (each.missed[0].value or 0.0) >= _NEARLY * each.missed[0].wanted
    ]
    return min(found, key=lambda each: (each.missed[0].short_by or 0.0, each.candidate.name), default=None)


def _balanced(candidates: Sequence[Candidate], needs: Needs) -> tuple[Candidate, BestIn]:
    """Return the best of one model's candidates as a friend would choose, and its advantage."""
    least = min(concessions(each, needs) for each in candidates)
    if least.noticed:
        pool = [each for each in candidates if concessions(each, needs)[:2] == least[:2]]
        return min(pool, key=lambda each: (_is_coarse(each), _loss_order(each), *_last_order(each))), "loss"
    pool = [each for each in candidates if concessions(each, needs) == least]
    if least.slow:
        return min(pool, key=_last_order), "fastest though slow"
    pool = [each for each in pool if is_comfortable(each, needs)] or pool
    most = max(map(_pace, pool))
    worth = [each for each in pool if _pace(each) * _WORTH >= most]
    alike = [each for each in worth if each.loss is not None and each.loss.value <= UNNOTICED_LOSS]
    if alike:
        return min(alike, key=_last_order), "balance"
    return min(worth, key=lambda each: (_loss_order(each), *_last_order(each))), "least loss at this speed"


def _reasons(chosen: Checked, checked: Sequence[Checked], needs: Needs) -> Iterable[Reason]:
    """Yield why neither the larger quant that loses just less nor the smaller that loses just more is the pick."""
    own = chosen.candidate
    by_quant: dict[str, list[Checked]] = {}
    for each in checked:
        row = each.candidate.row
        if each.candidate.model_key == own.model_key and row.weight_bytes and _quant(each.candidate) != _quant(own):
            by_quant.setdefault(_quant(each.candidate), []).append(each)
    asked = concessions(own, needs)
    best = [min(group, key=lambda each: _rank(each, needs, asked)) for group in by_quant.values()]
    size = own.row.weight_bytes or 0
    larger = [each for each in best if (each.candidate.row.weight_bytes or 0) > size]
    smaller = [each for each in best if (each.candidate.row.weight_bytes or 0) < size]
    finer = [each for each in larger if _loss_order(each.candidate) < _loss_order(own)]
    coarser = [each for each in smaller if _loss_order(each.candidate) > _loss_order(own)]
    neighbours = (
        max(finer, key=lambda each: _loss_order(each.candidate), default=None),
        min(coarser, key=lambda each: _loss_order(each.candidate), default=None),
    )
    for other in neighbours:
        if other is not None:
            mine, theirs = _pace(own), _pace(other.candidate)
            is_alike = mine > 0 and theirs > 0 and _is_unsure(own) == _is_unsure(other.candidate)
            is_larger = (other.candidate.row.weight_bytes or 0) > size
            yield Reason(
                _against(chosen, other, needs),
                other,
                "larger" if is_larger else "smaller",
                theirs / mine if is_alike else None,
            )


def _quant(candidate: Candidate) -> str:
    return candidate.selector or candidate.row.quant


def _rank(each: Checked, needs: Needs, asked: Concessions) -> tuple[object, ...]:
    """Order by needs met, by what it asks beyond what the pick asks, then by speed.

    Of those that miss needs, what is too large for the GPUs is last.
    """
    met = {True: 0, None: 1, False: 2}[each.meets]
    met += any(miss.need == "memory" and not miss.of_main_memory for miss in each.missed)
    theirs = concessions(each.candidate, needs)
    return met, tuple(more and not less for more, less in zip(theirs, asked, strict=True)), *_last_order(each.candidate)


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
    if not _is_unsure(chosen.candidate) and _is_unsure(other.candidate):
        return "unknown speed"
    return "slower" if _pace(other.candidate) < _pace(chosen.candidate) else "hardly faster"


def clearly_loses_more(one: Candidate, other: Candidate) -> bool:
    """Return whether the first certainly loses more than the second.

    Typical losses are paired by published model: in each the difference must exceed its error. Other losses must have
    disjoint intervals.
    """
    if one.joint_loss is None and other.joint_loss is None and one.cache == other.cache:
        mine, theirs = one.weights_loss, other.weights_loss
        if mine is not None and theirs is not None and mine.published and theirs.published:
            known = {each.of: each for each in theirs.published}
            pairs = [(each, known[each.of]) for each in mine.published if each.of in known]
            return bool(pairs) and all(a.nats - b.nats > Z_95 * math.hypot(a.error, b.error) for a, b in pairs)
    loss, base = one.least_loss, other.least_loss
    return loss is not None and base is not None and loss.low > base.high


def _best(candidates: Sequence[Candidate], needs: Needs, prefer: Preference) -> tuple[Candidate, BestIn] | None:
    """Return the best of each model's best candidates, and its advantage; None without candidates."""
    by_model: dict[str, list[Candidate]] = {}
    for each in candidates:
        by_model.setdefault(each.model_key, []).append(each)
    chosen = [_best_of_model(each, needs, prefer) for each in by_model.values()]
    if prefer == "balanced":
        least_asked = min((concessions(each, needs)[:2] for each, _ in chosen), default=())
        chosen = [(each, best_in) for each, best_in in chosen if concessions(each, needs)[:2] == least_asked]
    else:
        least = min((_loss_class(each, needs) for each, _ in chosen), default=0)
        chosen = [(each, best_in) for each, best_in in chosen if _loss_class(each, needs) == least]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    if prefer in ("balanced", "quality"):
        return _largest([each for each, _ in chosen], prefer)
    if prefer == "context":
        return min(chosen, key=lambda each: (-(each[0].offered_n_ctx or 0), *_last_order(each[0])))
    return min(chosen, key=lambda each: _last_order(each[0]))


def _largest(candidates: Sequence[Candidate], prefer: Preference) -> tuple[Candidate, BestIn]:
    """Return the one with the most parameters, or what rule 8 prefers of it and its rival of the other kind."""
    by_size = sorted(candidates, key=lambda each: (-(each.row.n_params or 0), *_last_order(each)))
    first, n_params = by_size[0], by_size[0].row.n_params or 0
    others = (each for each in by_size if each.is_mixture is not first.is_mixture)
    rival = next((each for each in others if (each.row.n_params or 0) * _SAME_SIZE >= n_params > 0), None)
    if rival is None:
        return first, "parameters"
    if prefer == "quality":
        return (rival if first.is_mixture else first), "dense"
    return min(first, rival, key=_last_order), "faster of dense and mixture"


def _best_of_model(candidates: Sequence[Candidate], needs: Needs, prefer: Preference) -> tuple[Candidate, BestIn]:
    if prefer == "balanced":
        return _balanced(candidates, needs)
    least = min(_loss_class(each, needs) for each in candidates)
    pool = [each for each in candidates if _loss_class(each, needs) == least]
    if least == 1:
        bits = max(map(cache_bits, pool))
        pool = [each for each in pool if cache_bits(each) == bits]
    if prefer == "context":
        longest = min(pool, key=lambda each: (-(each.offered_n_ctx or 0), _loss_order(each), *_last_order(each)))
        return longest, "context"
    if prefer == "speed":
        pool = [each for each in pool if not _is_unsure(each)] or pool
        fastest = min(pool, key=_last_order)
        near = [each for each in pool if not _clearly_slower(each, fastest)]
        best = min(near, key=lambda each: (_loss_order(each), *_last_order(each)))
        return best, "speed" if best is fastest else "loss among the fastest"
    known = [each for each in pool if each.least_loss is not None and each.weights_loss is not None]
    if not known:
        return min(pool, key=lambda each: (-(each.row.bpw or 0.0), *_last_order(each))), "bits"
    best = min(known, key=lambda each: (_loss_order(each), *_last_order(each)))
    fastest = min((each for each in known if not clearly_loses_more(each, best)), key=_last_order)
    return fastest, "loss" if fastest is best else "speed among the least loss"


def cache_bits(candidate: Candidate) -> float:
    """Return the bits per element of the coarser of both caches."""
    return min(_CACHE_BITS.get(name, _FEWEST_BITS) for name in candidate.cache)


def _loss_class(candidate: Candidate, needs: Needs) -> int:
    """0 for little, 1 for unknown, 2 for more than little."""
    known = candidate.least_loss
    if known is not None and needs.notices(known.value):
        return 2
    return 1 if candidate.loss is None else 0


def _loss_order(candidate: Candidate) -> tuple[bool, float]:
    """Order by known loss, or by bits per weight if none is known."""
    if candidate.weights_loss is None and candidate.joint_loss is None:
        return True, -(candidate.row.bpw or 0.0)
    return False, (candidate.least_loss or Expected(0, 0, 0)).value


def _last_order(candidate: Candidate) -> tuple[bool, float, float, int, tuple[str, ...]]:
    """Order by speed (bounds after known speeds), then context, file size and name."""
    size, longest = candidate.row.file_bytes or 0, float(candidate.offered_n_ctx or 0)
    return _is_unsure(candidate), -_pace(candidate), -longest, size, candidate.name


def _is_unsure(candidate: Candidate) -> bool:
    """Return whether the candidate's speed is unknown or only bounded."""
    return candidate.speed is None or candidate.speed.is_bound


def _pace(candidate: Candidate) -> float:
    """Return the tokens/s of the answer, which all estimates have, unlike the time of a turn; 0 if unknown."""
    return 0.0 if candidate.speed is None else candidate.speed.tok_s.value


def _clearly_slower(one: Candidate, other: Candidate) -> bool:
    """Return whether intervals are disjoint; two bounds compare by value, since both follow from bytes to read."""
    if one.speed is None or other.speed is None:
        return other.speed is not None
    if one.speed.is_bound and other.speed.is_bound:
        return _pace(one) < _pace(other)
    if one.speed.turn_s is not None and other.speed.turn_s is not None:
        return one.speed.turn_s.low > other.speed.turn_s.high
    return one.speed.tok_s.high < other.speed.tok_s.low


def _alternatives(recommended: Checked, pool: Sequence[Checked], needs: Needs) -> tuple[Alternative, ...]:
    """Return at most one candidate per label, none twice."""
    own = recommended.candidate
    if needs.prefer == "balanced" and not concessions(own, needs).noticed:
        pool = [each for each in pool if not concessions(each.candidate, needs).noticed]
    balanced: Preference | None = "balanced" if needs.prefer == "balanced" else None
    same_model = [each for each in pool if each.candidate.model_key == own.model_key]
    other_kind = [
        each
        for each in pool
        if each.candidate.is_mixture is not own.is_mixture and is_comfortable(each.candidate, needs) is not False
    ]
    wanted: tuple[tuple[Label, Sequence[Checked], Preference], ...] = (
        ("dense" if own.is_mixture else "mixture", other_kind, needs.prefer),
        ("better", [each for each in same_model if _is_better(each.candidate, own)], balanced or "quality"),
        ("faster", [each for each in pool if _is_faster(each.candidate, own)], balanced or "speed"),
        ("more context", _with_more_context(pool, own), balanced or "quality"),
    )
    found: list[Alternative] = []
    for label, among, prefer in wanted:
        taken = {own.name, *(each.checked.candidate.name for each in found)}
        left = {each.candidate.name: each for each in among if each.candidate.name not in taken}
        best = _best([each.candidate for each in left.values()], needs, prefer)
        if best is not None:
            found.append(Alternative(label, left[best[0].name]))
    return tuple(found)


def _is_better(one: Candidate, other: Candidate) -> bool:
    is_known = one.loss is not None and other.least_loss is not None
    return is_known and _loss_order(one) < _loss_order(other) and clearly_loses_more(other, one)


def _is_faster(one: Candidate, other: Candidate) -> bool:
    is_comparable = not _is_unsure(one) or _is_unsure(other)
    return is_comparable and _pace(one) > _FASTER * _pace(other) > 0


def _with_more_context(pool: Sequence[Checked], own: Candidate) -> list[Checked]:
    """Return the candidates with at least 1.5 times the context or, if there are none, with over 5 % more."""
    gains = [(each, (each.candidate.offered_n_ctx or 0) / (own.offered_n_ctx or 1)) for each in pool]
    return [each for each, gain in gains if gain >= _MORE_CONTEXT] or [each for each, gain in gains if gain > _FASTER]


def _nearest_miss(checked: Sequence[Checked], needs: Needs) -> Checked | None:
    return min(checked, key=lambda each: _miss_order(each, needs), default=None)


def _miss_order(each: Checked, needs: Needs) -> tuple[object, ...]:
    """Order by the number of missed needs, then by the worst miss, relative to the need.

    Of those that miss only the speed, what loses little and is measured is first.
    """
    speed = each.candidate.speed
    is_estimated = speed is not None and speed.basis not in ("measured", "forecast")
    misses_speed = {miss.need for miss in each.missed} == {"speed"}
    is_lossy = concessions(each.candidate, needs).noticed
    worst = max((math.inf if miss.short_by is None else miss.short_by for miss in each.missed), default=math.inf)
    is_refused = each.candidate.row.outcome is not Outcome.COMPLETED
    is_worse = misses_speed and is_lossy, misses_speed and is_estimated
    return is_refused, len(each.missed), *is_worse, worst, each.candidate.name


def check(candidate: Candidate, needs: Needs) -> Checked:
    """Check a candidate against every need; memory is always one."""
    checks = [_memory(candidate, needs)]
    if needs.tok_s is not None:
        checks.append(_speed(candidate, needs.tok_s))
    if needs.max_loss is not None:
        checks.append(_loss(candidate, needs.max_loss))
    return Checked(candidate, tuple(checks))


def _memory(candidate: Candidate, needs: Needs) -> NeedCheck:
    row, n_ctx = candidate.row, candidate.max_n_ctx
    if row.outcome is not Outcome.COMPLETED:
        return NeedCheck("memory", needs.n_ctx, None, False, short_by=math.inf, refusal=row.reason)
    if n_ctx is None:
        return NeedCheck("memory", needs.n_ctx, None, None)
    if n_ctx >= needs.n_ctx:
        return NeedCheck("memory", needs.n_ctx, n_ctx, True)
    missing, budget = -(row.left_bytes or 0), row.budget_bytes
    short_by = missing / budget if budget else math.inf
    return NeedCheck(
        "memory",
        needs.n_ctx,
        n_ctx,
        False,
        short_by=short_by,
        missing_bytes=missing,
        of_main_memory=row.lacks_main_memory,
    )


def _speed(candidate: Candidate, wanted: float) -> NeedCheck:
    speed = candidate.speed
    if speed is None:
        return NeedCheck("speed", wanted, None, None)
    value = speed.tok_s.value
    if value < wanted:
        is_close = not speed.is_bound and speed.tok_s.high >= wanted
        return NeedCheck("speed", wanted, value, False, is_close, 1 - value / wanted, is_bound=speed.is_bound)
    is_close = speed.tok_s.low < wanted
    if speed.is_bound or (is_close and speed.basis not in ("measured", "forecast")):
        return NeedCheck("speed", wanted, value, None, is_close and not speed.is_bound, is_bound=speed.is_bound)
    return NeedCheck("speed", wanted, value, True, is_close)


def _loss(candidate: Candidate, wanted: float) -> NeedCheck:
    known = candidate.least_loss
    if known is not None and known.value > wanted:
        short_by = known.value / wanted - 1 if wanted else math.inf
        return NeedCheck("loss", wanted, known.value, False, known.low <= wanted, short_by)
    if known is None or candidate.loss is None:  # a part of the loss can only prove a miss
        return NeedCheck("loss", wanted, None, None)
    return NeedCheck("loss", wanted, known.value, True, known.high > wanted)
