"""Choose the quant, the KV cache and the placement to run by `RULES`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ggbench.decisions.pick.needs import READING_TOK_S, Needs, Preference
from ggbench.decisions.pick.order import (
    FASTER,
    SAME_SIZE,
    concern_of,
    concessions,
    fastest,
    is_comfortable,
    is_slower,
    least_loss,
    level,
    newest,
)
from ggbench.decisions.pick.record import Candidate, Checked
from ggbench.engines.endings import Outcome
from ggbench.expect.loss import NOTICED_LOSS, UNNOTICED_LOSS
from ggbench.units import format_number

_WORTH: dict[Preference, tuple[float, float, float]] = {
    "balanced": (3.0, 1.5, 1.2),
    "quality": (3.0, 2.0, 2.0),
    "speed": (FASTER, FASTER, FASTER),
}
"""How many times slower a loss may be that is little, that nobody can tell, and that is the least of its level."""
_WORTH_LAYERS = 1.5
"""How many times slower at most what has layers in main memory may be than what is whole on the GPUs."""

RULES = (
    "Drop what misses a need. What certainly meets all comes before what may.",
    "Drop what another beats clearly in loss, speed or context and trails in none.",
    f"Take no loss that people notice ({NOTICED_LOSS} nats, or --max-loss), and no uncomfortable speed, if there is"
    f" another. Comfortable: an answer at {format_number(READING_TOK_S)} tok/s (coding, agent: 20), its prompt read"
    " in 10 s (coding, agent, documents: 60 s). An unknown speed comes after a known one.",
    "From the fastest on, less loss is worth speed: one that is little in four of five cases up to 3 times (1.5 with"
    f" layers in main memory instead of none), one that nobody can tell ({UNNOTICED_LOSS} nats) up to 1.5 times, the"
    " least of such up to 1.2 times, or while intervals share more than half. --prefer quality: 3, 2 and 2 times;"
    " speed: 1.1; context: the longest instead.",
    "A part in main memory beside a GPU counts as 0.02 nats more, and so does leaving no memory; 1 GiB is enough."
    " Neither with --prefer quality.",
    "If nothing is comfortable, take the fastest, or up to 1.1 times slower what loses less.",
    "Between models quality is not comparable: take the newer of one shape, then the most parameters (--prefer speed,"
    " context: the fastest, the longest); of a dense model and a mixture of up to 1.5 times its size the faster"
    " (quality: the dense).",
)
"""The rules of a recommendation, in order."""


def best_way(checked: Sequence[Checked], needs: Needs) -> Checked:
    """Return the best of some candidates, or the nearest miss if each misses a need."""
    best = best_of(surest(checked), needs, needs.prefer)
    return min(checked, key=lambda each: miss_order(each, needs)) if best is None else best[0]


def surest(checked: Iterable[Checked]) -> list[Checked]:
    """Return those that meet every need, else those that miss none."""
    open_to_choice = [each for each in checked if each.meets is not False]
    return [each for each in open_to_choice if each.meets] or open_to_choice


def best_of(checked: Sequence[Checked], needs: Needs, prefer: Preference) -> tuple[Checked, list[str]] | None:
    """Return the best of each model's best candidates and the rules that chose it; None without candidates."""
    by_model: dict[str, list[Candidate]] = {}
    for each in checked:
        by_model.setdefault(each.candidate.model_key, []).append(each.candidate)
    chosen = [_best_of_model(each, needs, prefer) for each in by_model.values()]
    if not chosen:
        return None
    best, rule = _best_model([each for each, _ in chosen], needs, prefer)
    rules = [rule] if rule else []
    rules += [by for each, by in chosen if each is best]
    return next(each for each in checked if each.candidate is best), rules


def _best_of_model(candidates: Sequence[Candidate], needs: Needs, prefer: Preference) -> tuple[Candidate, str]:
    """Return the best way to run a model, and the rule that chose it."""
    if prefer == "context":
        return _longest(_asking_least(candidates, needs, ("noticed", "slow")), prefer), "context"
    pool = _asking_least(candidates, needs, ("noticed", "untimed", "split"))
    comfortable = [each for each in pool if is_comfortable(each, needs) is not False]
    if not comfortable:
        return _least_loss(pool, min(pool, key=fastest), FASTER, prefer), "slow"
    pool, first = _worth_most(pool, comfortable, needs, prefer)
    alike = _WORTH[prefer][-1]
    best = _least_loss(pool, first, alike, prefer)
    best = _least_loss([each for each in pool if each.quant == best.quant], best, FASTER, prefer)
    return best, "bits" if best.loss is None else "loss"


def _worth_most(
    pool: list[Candidate], comfortable: list[Candidate], needs: Needs, prefer: Preference
) -> tuple[list[Candidate], Candidate]:
    """Return those of the level of loss that is worth its speed, and the fastest of them."""
    first = min(comfortable, key=fastest)
    if any(level(each, needs, prefer) < 2 for each in comfortable):
        pool = comfortable
    for at_most, worth in zip((1, 0), _WORTH[prefer][:2], strict=True):
        less = [each for each in pool if level(each, needs, prefer) <= at_most]
        rival = min(less, key=fastest, default=first)
        if less and not is_slower(rival, first, min(worth, _most_worth(rival, first))):
            pool, first = less, rival
    return pool, first


def _most_worth(one: Candidate, whole: Candidate) -> float:
    """Return how many times slower than what is whole on the GPUs layers in main memory may be; a prompt is too."""
    has_layers_out = one.is_split and not one.setup.n_cpu_moe and not whole.is_split
    return _WORTH_LAYERS if has_layers_out else math.inf


def _longest(pool: Sequence[Candidate], prefer: Preference) -> Candidate:
    return min(pool, key=lambda each: (-(each.offered_n_ctx or 0), least_loss(each, prefer), *fastest(each)))


def _least_loss(pool: Sequence[Candidate], first: Candidate, ratio: float, prefer: Preference) -> Candidate:
    """Return the one that loses least of those that are not over `ratio` times slower than the first."""
    alike = [each for each in pool if not is_slower(each, first, ratio)]
    return min(alike, key=lambda each: (least_loss(each, prefer), -(each.left_bytes or 0), *fastest(each)))


def _asking_least(candidates: Sequence[Candidate], needs: Needs, names: Sequence[str]) -> list[Candidate]:
    """Return those that ask least of their user, by the first of some concessions, then by the next."""
    asked = [tuple(getattr(concessions(each, needs), name) for name in names) for each in candidates]
    return [each for each, own in zip(candidates, asked, strict=True) if own == min(asked)]


def _best_model(candidates: Sequence[Candidate], needs: Needs, prefer: Preference) -> tuple[Candidate, str]:
    """Return the best of several models, and the rule that chose it; none for a single one."""
    if len(candidates) == 1:
        return candidates[0], ""
    pool = newest(_asking_least(candidates, needs, ("noticed", "slow")))
    if prefer == "context":
        return _longest(pool, prefer), ""
    if prefer == "speed":
        return min(pool, key=fastest), ""
    by_size = sorted(pool, key=lambda each: (-each.n_params, *fastest(each)))
    first = by_size[0]
    others = (each for each in by_size if each.is_mixture is not first.is_mixture)
    rival = next((each for each in others if each.n_params * SAME_SIZE >= first.n_params > 0), None)
    if rival is None:
        return first, "parameters"
    if prefer == "quality":
        return (rival if first.is_mixture else first), "dense"
    return min(first, rival, key=fastest), "faster"


def miss_order(each: Checked, needs: Needs) -> tuple[object, ...]:
    """Order by the number of missed needs, then by the worst miss, relative to the need.

    If a speed is needed, what loses little is first; of those that miss only the speed, what is measured. What misses
    more than the whole memory is last.
    """
    speed = each.candidate.speed
    is_estimated = speed is not None and not speed.tok_s.is_timed
    misses_speed = {miss.need for miss in each.missed} == {"speed"}
    is_lossy = concern_of(each.candidate, needs) != "little"
    worst = max(
        (math.inf if miss.short_by is None else miss.short_by for miss in each.missed), default=math.inf
    )
    is_refused = each.candidate.row.outcome is not Outcome.COMPLETED
    is_worse = is_lossy and needs.tok_s is not None, worst >= 1, misses_speed and is_estimated
    return is_refused, len(each.missed), *is_worse, worst, each.candidate.name
