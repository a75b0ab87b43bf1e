"""Choose the model, the quant, the KV cache and the placement to run by `RULES`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.needs import (
    AGENT_TOK_S,
    FIRST_WAIT_S,
    LAST_WAIT_S,
    READING_TOK_S,
    Needs,
    Preference,
)
from ggbench.decisions.pick.order import (
    ALIKE_LOSS,
    FASTER,
    ROOM_BYTES,
    SAME_SIZE,
    SHARE_OF_SCORED,
    STRAIN,
    capability,
    concern_of,
    concessions,
    fastest,
    is_comfortable,
    is_slower,
    least_loss,
    level,
    newest,
    weighed_loss,
)
from ggbench.decisions.pick.record import Candidate
from ggbench.engines.endings import Outcome
from ggbench.expect.loss import NOTICED_LOSS, UNNOTICED_LOSS
from ggbench.expect.sessions import AGENTS_SHARE
from ggbench.units import GIB

_WORTH: dict[Preference, tuple[float, float, float]] = {
    "balanced": (3.0, 1.5, 1.2),
    "quality": (3.0, 2.0, 2.0),
    "speed": (FASTER, FASTER, FASTER),
}
"""How many times slower a loss may be that is little, that nobody can tell, and that is the least of its level."""
_WORTH_LAYERS = 1.5
"""How many times slower at most what has layers in main memory may be than what is whole on the GPUs."""

RULES = ("needs", "dominated", "concessions", "worth", "strain", "slow", "models")
"""The rules of a recommendation, in order: keys of `pick_rules` in `words.toml`."""
LIMITS: Mapping[str, float] = {
    "noticed": NOTICED_LOSS,
    "reading": READING_TOK_S,
    "agent": AGENT_TOK_S,
    "agents": AGENTS_SHARE,
    "first_wait": FIRST_WAIT_S,
    "last_wait": LAST_WAIT_S,
    "unnoticed": UNNOTICED_LOSS,
    "layers": _WORTH_LAYERS,
    **{f"{name}_{number}": worth for name in _WORTH for number, worth in enumerate(_WORTH[name])},
    "alike": ALIKE_LOSS,
    "nats": STRAIN,
    "room": ROOM_BYTES / GIB,
    "faster": FASTER,
    "same": SAME_SIZE,
    "share": SHARE_OF_SCORED,
}
"""The limits that they name."""


def best_way(candidates: Sequence[Candidate], needs: Needs) -> Candidate:
    """Return the best of some candidates, or the nearest miss if each misses a need."""
    best = best_of(surest(candidates), needs, needs.prefer)
    return min(candidates, key=lambda each: miss_order(each, needs)) if best is None else best[0]


def surest(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return those that meet every need, else those that miss none."""
    open_to_choice = [each for each in candidates if not each.missed]
    return [each for each in open_to_choice if each.meets] or open_to_choice


def grouped(candidates: Iterable[Candidate], key: Callable[[Candidate], str]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for each in candidates:
        found.setdefault(key(each), []).append(each)
    return found


def best_of(
    candidates: Iterable[Candidate], needs: Needs, prefer: Preference
) -> tuple[Candidate, list[str]] | None:
    """Return the best of each model's best candidates and the rules that chose it; None without candidates."""
    by_model = grouped(candidates, lambda each: each.model_key)
    rules = {key: _best_of_model(own, needs, prefer) for key, own in by_model.items()}
    if not rules:
        return None
    best, of_models = _best_model([each for each, _ in rules.values()], needs, prefer)
    return best, [*filter(None, [of_models]), rules[best.model_key][1]]


def _best_of_model(candidates: Sequence[Candidate], needs: Needs, prefer: Preference) -> tuple[Candidate, str]:
    """Return the best way to run a model, and the rule that chose it."""
    if prefer == "context":
        return _longest(_asking_least(candidates, needs, "noticed", "slow"), prefer), "context"
    pool = _asking_least(candidates, needs, "noticed", "untimed")
    comfortable = [each for each in pool if is_comfortable(each, needs) is not False]
    if not comfortable:
        return _least_loss(pool, min(pool, key=fastest), FASTER, prefer), "slow"
    pool, first = _worth_most(pool, comfortable, needs, prefer)
    best = _least_loss(pool, first, _WORTH[prefer][-1], prefer)
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
        has_layers_out = rival.is_split and not rival.setup.n_cpu_moe and not first.is_split
        if less and not is_slower(rival, first, min(worth, _WORTH_LAYERS if has_layers_out else math.inf)):
            pool, first = less, rival
    return pool, first


def _longest(pool: Sequence[Candidate], prefer: Preference) -> Candidate:
    return min(pool, key=lambda each: (-(each.max_n_ctx or 0), least_loss(each, prefer), *fastest(each)))


def _least_loss(pool: Sequence[Candidate], first: Candidate, ratio: float, prefer: Preference) -> Candidate:
    """Return the one that loses least of those that are not over `ratio` times slower than the first, or next to it
    and leaves most memory, unless quality is preferred.
    """
    fast = [each for each in pool if not is_slower(each, first, ratio)]
    least = min(fast, key=lambda each: (least_loss(each, prefer), -(each.left_bytes or 0), *fastest(each)))
    if prefer == "quality" or least.loss is None:
        return least
    most = weighed_loss(least, prefer) + ALIKE_LOSS
    alike = [each for each in fast if each.loss is not None and weighed_loss(each, prefer) <= most]
    return min(alike, key=lambda each: (each.cache != least.cache, -(each.left_bytes or 0), *fastest(each)))


def _asking_least(candidates: Sequence[Candidate], needs: Needs, *names: str) -> list[Candidate]:
    """Return those that ask least of their user, by the first of some concessions, then by the next."""
    asked = [tuple(getattr(concessions(each, needs), name) for name in names) for each in candidates]
    return [each for each, own in zip(candidates, asked, strict=True) if own == min(asked)]


def _best_model(candidates: Sequence[Candidate], needs: Needs, prefer: Preference) -> tuple[Candidate, str]:
    """Return the best of several models, and the rule that chose it; none for a single one."""
    if len(candidates) == 1:
        return candidates[0], ""
    pool = newest(_asking_least(candidates, needs, "noticed", "slow"))
    if prefer == "context":
        return _longest(pool, prefer), ""
    if prefer == "speed":
        return min(pool, key=fastest), ""
    kinds = ([each for each in pool if each.is_mixture is is_mixture] for is_mixture in (False, True))
    firsts = sorted((min(kind, key=capability) for kind in kinds if kind), key=lambda each: each.n_params)
    small, large = firsts[0], firsts[-1]
    if small is large or _is_ahead(large, small):
        return large, "capable"
    if prefer == "quality":
        return (large if small.is_mixture else small), "dense"
    return min(firsts, key=fastest), "faster"


def _is_ahead(large: Candidate, small: Candidate) -> bool:
    """Return whether a larger model of the other kind is clearly larger, and has no lower score."""
    return small.n_params * SAME_SIZE < large.n_params and small.score <= large.score


def miss_order(each: Candidate, needs: Needs) -> tuple[object, ...]:
    """Order by whether it fits, then by the number of missed needs, then by the worst miss, relative to the need.

    If a speed is needed, what loses little to people is before what misses fewer.
    """
    is_refused = each.row.outcome is not Outcome.COMPLETED
    is_lossy = needs.tok_s is not None and concern_of(each, replace(needs, max_loss=None)) != "little"
    worst = max((miss.short_by for miss in each.missed), default=math.inf)
    return is_refused, each.fits is False, is_lossy, len(each.missed), worst, each.name
