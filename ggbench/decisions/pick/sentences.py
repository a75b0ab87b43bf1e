"""Say what a pick recommends, what to mind and why: its typed reasons as sentences of `words.toml`."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ggbench.decisions.pick.reasons import SPEED_KEYS
from ggbench.decisions.pick.record import Candidate, Checked, NeedCheck, Pick, Reason
from ggbench.engines.endings import Outcome
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
        f"pick.loss_{pick.concern}",
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
    if pick.best is None:
        return ()
    assumed = assumed_memory(replace(budget, host=pick.main_memory or budget.host), [pick.best.candidate.row])
    order = card_order(budget, pick.best.candidate.setup)
    speed, others = (
        [say(each.key, **_values(pick, each.about)) for each in kind] for kind in _kinds(pick.mind)
    )
    return (*speed, *filter(None, [assumed, order]), *of_commands, *others)


def _kinds(mind: Iterable[Reason]) -> tuple[list[Reason], list[Reason]]:
    """Return what to mind of the speed, which is more than what it rests on, and of all else."""
    found: tuple[list[Reason], list[Reason]] = [], []
    for each in mind:
        found[each.key.removeprefix("pick.") not in SPEED_KEYS].append(each)
    return found


def reason(pick: Pick) -> tuple[str, ...]:
    """Return why it is the pick, and why others are not."""
    return tuple(say(each.key, **_values(pick, each.about)) for each in pick.why)


def _values(pick: Pick, checked: Checked) -> dict[str, Value]:
    """Return what templates may say of a candidate."""
    own = checked.candidate
    options = " ".join([*own.options, *_cache_options(own)])
    several = pick.has_rivals
    values: dict[str, Value] = {
        "quant": own.quant,
        "n_ctx_train": own.row.n_ctx_train,
        "n_models": pick.n_models,
        "n_current": pick.n_current,
        "instead": pick.instead,
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
    if pick.best is not None:
        values["best"] = model_name(pick.best.candidate.row.subject)
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
