"""Say what a pick recommends, what to mind and why: its typed reasons as keys and values of `words.toml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ggbench.decisions.pick.needs import LITTLE_BYTES
from ggbench.decisions.pick.record import Candidate, Checked, NeedCheck, Pick
from ggbench.engines.endings import Outcome
from ggbench.show import UNKNOWN
from ggbench.show.figure import Value
from ggbench.show.names import kv_name, model_name
from ggbench.show.plan import assumed_memory, card_order, speed_mark
from ggbench.show.words import say
from ggbench.sizing.plan_record import Budget
from ggbench.stats.intervals import Estimate
from ggbench.text import in_words, sanitize
from ggbench.units import (
    counted,
    format_bytes,
    format_interval,
    format_length,
    format_number,
)

_COMPARED = ("slower", "hardly faster", "ranks lower")
"""Kinds of reasons that are said by speed and loss."""


def candidate_name(candidate: Candidate, *, with_model: bool = False) -> str:
    """Return e.g. `q6_k, KV q8_0` or `q4_k_m -ncmoe 24`. Printable."""
    name = kv_name(" ".join([candidate.quant, *candidate.options]), *candidate.cache)
    return f"{model_name(candidate.row.subject)} {sanitize(name)}" if with_model else sanitize(name)


def headline(pick: Pick) -> str:
    """Return `Run q6_k: 31 ±2 tok/s at 8k, loses little (0.006 nats, typical 0.003–0.02).`, or what comes nearest."""
    if pick.recommended is not None:
        key, best = "run_model" if pick.has_rivals else "run", pick.recommended
    elif pick.nearest_miss is None:
        return say("pick.no_candidates")
    else:
        key, best = "nearest" if pick.nearest_miss.candidate.fits else "does_not_fit", pick.nearest_miss
    return say(
        f"pick.{key}",
        **_values(pick, best),
        speed=_speed(pick, best.candidate),
        lost=_lost(pick, best.candidate),
    )


def _speed(pick: Pick, own: Candidate) -> str:
    if own.tok_s is None:
        return say("pick.speed_unknown")
    value, interval = parted(own.tok_s)
    key = "speed" if pick.needs.n_slots == 1 else "speed_each"
    form = "{} tok/s {}" if interval.startswith("(") else "{} {} tok/s"
    tok_s = form.format(f"{speed_mark(own.tok_s)}{value}", interval).replace("  ", " ")
    at = format_length(own.n_ctx // pick.needs.n_slots)
    return say(f"pick.{key}", tok_s=tok_s, users=pick.needs.n_slots, n_ctx=at)


def _lost(pick: Pick, own: Candidate) -> str:
    loss = own.loss
    if loss is None:
        return say("pick.loss_unknown")
    if not loss.high:
        return say("pick.loss_nothing")
    value, interval = parted(loss)
    return say(
        f"pick.loss_{pick.needs.concern(loss)}",
        loss=value,
        basis=loss.basis,
        interval=interval.strip("()"),
    )


def parted(estimate: Estimate) -> tuple[str, str]:
    """Return the value, rounded to its interval's precision, and the interval: `24` and `(15–36)` or `±9`."""
    value, _, interval = format_interval(estimate.value, estimate.low, estimate.high, digits=2).partition(" ")
    return value, interval


def cache_text(candidate: Candidate) -> str:
    """Return the types of its KV cache: `q8_0`, `q8_0/f16`."""
    return "/".join(dict.fromkeys(candidate.cache))


def notes(pick: Pick, budget: Budget, of_commands: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return what changes what a person would do, the most important first."""
    best = pick.best
    if best is None:
        return ()
    assumed = assumed_memory(replace(budget, host=pick.main_memory), [best.candidate.row])
    values, here = _values(pick, best), "_here" if budget.is_here else ""
    kinds = speed_keys(pick, best, here), note_keys(pick, best), _late_keys(pick, best, here)
    speed, first, last = ([say(f"pick.{key}", **values) for key in keys] for keys in kinds)
    order = card_order(budget, best.candidate.setup)
    return (*speed, *filter(None, [assumed, order]), *_cache_notes(pick, best), *first, *of_commands, *last)


def _cache_notes(pick: Pick, best: Checked) -> Iterator[str]:
    """Yield that the cache of the pick, or of an alternative for which it asks, costs what people notice."""
    for each in (best, *(each.checked for each in pick.alternatives)):
        concern = pick.needs.concern(each.candidate.cache_loss)
        if concern == "noticed" or (concern != "little" and each is best):
            key = "cache_noticed" if concern == "noticed" else "cache_may"
            yield say(f"pick.{key}", **_values(pick, each))
            return


def note_keys(pick: Pick, best: Checked) -> Iterator[str]:
    """Yield the keys under `pick.` of what to mind, the most important first."""
    own = best.candidate
    if pick.needs.is_raised:
        yield "raised"
    if pick.needs.has_shorter_turn:
        yield "shorter_turn"
    if pick.alternatives and pick.recommended is None:
        yield "may_meet"
    if pick.needs.n_ctx_slot > (own.row.n_ctx_train or pick.needs.n_ctx_slot):
        yield "beyond_training"
    yield from _room_notes(own)
    if best.close:
        yield "close"


def _late_keys(pick: Pick, best: Checked, here: str) -> Iterator[str]:
    own = best.candidate
    if pick.has_rivals:
        of_current = "by_score" if pick.scores else "by_size"
        yield of_current if pick.n_current else "compared"
    if own.tok_s is not None and own.tok_s.is_estimate:
        yield "estimated" if own.tok_s.is_timed else f"estimated{here}"


def _room_notes(own: Candidate) -> Iterator[str]:
    """Yield that little memory stays free."""
    if own.left_bytes is not None and 0 <= own.left_bytes < LITTLE_BYTES:
        yield "little_left_experts" if own.setup.n_cpu_moe else "little_left"


def speed_keys(pick: Pick, best: Checked, here: str) -> Iterator[str]:
    """Yield the keys of what is not known of the speed, or that it is slow."""
    own = best.candidate
    if best.unknown:
        yield f"may_miss{here}"
    elif own.tok_s is None:
        yield "no_bandwidth"
    if pick.comfortable is False and own.speed is not None:
        is_slow = own.speed.tok_s.value < pick.needs.workload.comfort_tok_s
        slow = "slow" if is_slow else "slow_turn"
        yield "slow_instead" if pick.instead else slow


def reason(pick: Pick) -> tuple[str, ...]:
    """Return why it is the pick, and why others are not."""
    best = pick.best
    if best is None:
        return ()
    values = _values(pick, best)
    against = [say(f"pick_against.{key}", **_values(pick, other)) for key, other in _against(pick)]
    texts = (*(say(key, **values) for key in why_keys(pick, best)), *against)
    return tuple(text for text in texts if UNKNOWN not in text)


def why_keys(pick: Pick, best: Checked) -> Iterator[str]:
    """Yield the keys of why it is the pick, or what comes nearest."""
    own, first = best.candidate, pick.without_needs
    if pick.best_in is not None:
        yield f"pick_best.{pick.best_in}"
    if own.speed is not None:
        yield "pick.answers" if own.speed.turn_s is None else "pick.turn"
    if own.host_bytes is not None:
        yield "pick.experts" if own.setup.n_cpu_moe else "pick.layers"
    if first is not None and first is not best:
        yield "pick.first_misses" if first.missed else "pick.first_unknown"
    if best.missed:
        yield "pick.misses"


def _against(pick: Pick) -> Iterator[tuple[str, Checked]]:
    first = pick.without_needs
    for each in pick.reasons:
        if first is None or each.other.candidate.name != first.candidate.name or not first.missed:
            is_longest = pick.needs.workload.n_depth is None  # each speed is at an end of its own
            key: str = "ranks lower" if each.kind in _COMPARED else each.kind
            if key == "ranks lower" and each.other.candidate.speed is None:
                key = "loses"
            yield "holds" if is_longest and key != "misses" else key, each.other


def _values(pick: Pick, checked: Checked) -> dict[str, Value]:
    """Return what templates may say of a candidate."""
    own, first = checked.candidate, pick.without_needs
    options = " ".join([*own.options, *_cache_options(own)])
    several = pick.has_rivals
    values: dict[str, Value] = {
        "quant": own.quant,
        "n_ctx_train": own.row.n_ctx_train,
        "n_models": pick.n_models,
        "n_current": pick.n_current,
        "instead": pick.instead,
        "other": next((each.candidate.quant for each in pick.alternatives), None),
        "n_ctx_slot": pick.needs.n_ctx_slot,
        "given_n_ctx": pick.needs.given_n_ctx,
        "n_prompt": pick.needs.workload.n_prompt,
        "n_gen": pick.needs.workload.n_gen,
        "workload": pick.needs.workload.name,
        "comfort_tok_s": pick.needs.workload.comfort_tok_s,
        "comfort_turn_s": round(pick.needs.workload.comfort_turn_s),
        "name": candidate_name(own, with_model=several),
        "model": model_name(own.row.subject),
        "options": f" with {options}" if options else "",
        "cache": cache_text(own),
        "loss": own.loss,
        "answer": None,
        "turn": None,
        "offered": own.offered_n_ctx,
        "host": format_bytes(own.host_bytes),
        "left": format_bytes(own.left_bytes),
        "expert_layers": counted(own.setup.n_cpu_moe, "layer"),
        "one_more": own.setup.n_cpu_moe + 1,
        "gpu_layers": counted(own.row.n_gpu_layers or 0, "layer"),
        "unknown": _joined(
            say(f"pick_need.{each.need}", wanted=_amount(each, each.wanted)) for each in checked.unknown
        ),
        "close": _joined(each.need for each in checked.close),
        "missed": _joined(map(_miss_text, checked.missed)),
        "n_fit": len({each.candidate.model_key for each in pick.checked if each.meets is not False}),
    }
    cost = own.cache_loss
    loss, low, high = (format_number(each, 2) for each in (cost.value, cost.low, cost.high))
    values |= {"cache_loss": loss, "cache_from": f"{cost.basis} {low}–{high}"}
    if own.tok_s is not None:
        values["basis"] = own.tok_s.source
    if own.speed is not None:
        values |= {"answer": own.speed.tok_s, "turn": own.speed.turn_s}
    if first is not None:
        name = candidate_name(first.candidate, with_model=several)
        values |= {"first": name, "first_missed": _joined(map(_miss_text, first.missed))}
    return values


def _cache_options(own: Candidate) -> list[str]:
    return [f"-ct{which} {name}" for which, name in zip("kv", own.cache, strict=True) if name != "f16"]


def _joined(texts: Iterable[str]) -> str:
    """Return texts in words; nothing for none."""
    return in_words([*texts] or [""])


def _miss_text(check: NeedCheck) -> str:
    """Return how a need is missed: `lacks 1.1 GiB for 16,384 tokens`, `answers at 12.9 tok/s, not 15`."""
    key: str = check.need
    if check.refusal:
        key = "refused"
    elif check.of_main_memory:
        key = "main_memory"
    elif check.need == "memory" and not check.missing_bytes:
        key = "probed"
    return say(
        f"pick_misses.{key}",
        missing=format_bytes(check.missing_bytes),
        wanted=_amount(check, check.wanted),
        value=_amount(check, check.value or 0.0),
        refusal=check.refusal,
    )


def _amount(check: NeedCheck, value: float) -> Value:
    """Return tokens of context, tok/s or nats."""
    if check.need == "memory":
        return round(value)
    return format_number(value, 2) if check.need == "loss" else value


def is_runnable(pick: Pick) -> bool:
    """Return whether there is something to run, if only a miss that fits."""
    best = pick.best
    return (
        best is not None
        and best.candidate.row.outcome is Outcome.COMPLETED
        and best.candidate.fits is not False
    )
