"""Why a candidate is the pick and others are not, and what to mind of it: keys of `ggbench/show/words.toml`."""

from __future__ import annotations

from collections.abc import Iterator

from ggbench.decisions.pick.choose import best_way, grouped
from ggbench.decisions.pick.needs import LITTLE_BYTES, Needs
from ggbench.decisions.pick.order import concessions, fastest, least_loss, pace
from ggbench.decisions.pick.record import Candidate, Pick, Reason
from ggbench.expect.loss import NOTICED_LOSS


def why(pick: Pick, best: Candidate) -> Iterator[Reason]:
    """Yield how it runs, or what it misses, and what speaks against its model's other quants and against other models,
    each in the best way to run it.
    """
    if best.speed is not None:
        yield Reason("pick.answers" if best.speed.turn_s is None else "pick.turn", best)
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
    """Return whether its answers are slow, or else its turns."""
    return "slow" if pace(candidate) < needs.workload.comfort_tok_s else "slow_turn"


def reminders(pick: Pick, best: Candidate) -> Iterator[Reason]:
    """Yield what to mind of the pick, the most important first."""
    yield from (Reason(f"pick.{key}", best) for key in _of_speed(pick, best))
    if best.cache_loss.value >= NOTICED_LOSS:
        yield Reason("pick.cache_noticed", best)
    elif best.is_cache_quantized:
        whole = [each for each in pick.candidates if _is_whole_cache(each, best)]
        yield from [Reason("pick.cache_trade", min(whole, key=fastest))] if whole else []
    yield from (Reason(f"pick.{key}", best) for key in _of_context(pick, best))
    if best.tok_s is not None and best.tok_s.is_estimate:
        yield Reason("pick.estimated", best)


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
    if pick.needs.turn.n_turn < pick.needs.workload.n_turn:
        yield "shorter_turn"
    if n_ctx > (best.row.n_ctx_train or n_ctx):
        yield "beyond_training"
    if best.left_bytes is not None and 0 <= best.left_bytes < LITTLE_BYTES:
        yield "little_left_experts" if best.setup.n_cpu_moe else "little_left"
