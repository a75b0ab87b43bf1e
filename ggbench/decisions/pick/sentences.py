"""Say what a pick recommends, what to mind and why: its typed reasons as sentences of `words.toml`."""

from __future__ import annotations

from collections.abc import Iterable

from ggbench.decisions.pick.needs import FIRST_WAIT_S, LAST_WAIT_S, Needs
from ggbench.decisions.pick.record import Candidate, NeedCheck, Pick, Reason
from ggbench.engines.endings import Outcome
from ggbench.expect.loss import NOTICED_LOSS
from ggbench.models.subject import model_name
from ggbench.show.figure import Value
from ggbench.show.names import kv_name, twin_notes
from ggbench.show.plan import (
    assumed_memory,
    basis_mark,
    card_order,
    ends_only,
    gains_text,
    span_text,
    value_only,
)
from ggbench.show.words import say
from ggbench.sizing.plan_record import Budget
from ggbench.stats.intervals import Expected
from ggbench.text import in_words, sanitize
from ggbench.units import counted, format_bytes, format_length, format_number, format_span


def candidate_name(candidate: Candidate, *, with_model: bool = False) -> str:
    """Return e.g. `q6_k, KV q8_0` or `q4_k_m -ncmoe 24`. Printable."""
    name = kv_name(f"{candidate.quant} {candidate.options}".rstrip(), *candidate.cache)
    return f"{model_name(candidate.row.subject)} {sanitize(name)}" if with_model else sanitize(name)


def headline(pick: Pick) -> str:
    """Return `Run q6_k: 31 ±2 tok/s at 8k, loses little (0.006 nats).`, or what comes nearest."""
    best = pick.best
    if best is None:
        return say("pick.no_candidates")
    key = "run_model" if pick.has_rivals else "run"
    if best.missed:
        key = "nearest" if best.fits else "does_not_fit"
    return say(f"pick.{key}", **_values(pick, best), speed=_speed(pick, best), lost=_lost(pick, best.loss))


def _speed(pick: Pick, own: Candidate) -> str:
    if own.tok_s is None:
        return say("pick.speed_unknown")
    key = "speed" if pick.needs.n_slots == 1 else "speed_each"
    at = format_length(own.n_ctx // pick.needs.n_slots)
    tok_s = f"{basis_mark(own.tok_s)}{value_only(own.tok_s)} tok/s ({ends_only(own.tok_s, 2)})"
    return say(f"pick.{key}", tok_s=tok_s, users=pick.needs.n_slots, n_ctx=at)


def _lost(pick: Pick, loss: Expected | None) -> str:
    """Return what is lost, with its interval where that leaves open whether people notice it."""
    if loss is None:
        return say("pick.loss_unknown")
    if not loss.high:
        return say("pick.loss_nothing")
    found = f"{basis_mark(loss)}{value_only(loss)} nats"
    if loss.low < NOTICED_LOSS <= loss.high:
        found += f", {ends_only(loss, 2)}"
    return say(f"pick.loss_{pick.concern}", loss=found)


def cache_text(candidate: Candidate) -> str:
    """Return the types of its KV cache: `q8_0`, `q8_0/f16`."""
    return "/".join(dict.fromkeys(candidate.cache))


def notes(pick: Pick, budget: Budget, of_commands: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return what changes what a person would do, the most important first."""
    if pick.best is None:
        return ()
    found = [
        assumed_memory(budget, [pick.best.row]),
        say("pick.instead", instead=pick.instead) if pick.instead else "",
        *twin_notes([pick.best.row.subject]),
        card_order(budget, pick.best.setup),
        _drafting(pick),
        *of_commands,
        *(said(pick, each) for each in pick.mind),
    ]
    return tuple(filter(None, found))


def _drafting(pick: Pick) -> str:
    """Return what the model's MTP layers would gain, where they pay and fit."""
    if pick.drafting is None:
        return ""
    step, n_bytes = pick.drafting
    return say("pick.drafting", gains=gains_text(step), k=step.k, needed=format_bytes(n_bytes))


def said(pick: Pick, reason: Reason) -> str:
    return say(reason.key, **_values(pick, reason.about))


def _values(pick: Pick, own: Candidate) -> dict[str, Value]:
    """Return what templates may say of a candidate."""
    needs, speed, cost = pick.needs, own.speed, own.cache_loss
    cache = [f"-ct{which} {name}" for which, name in zip("kv", own.cache, strict=True) if name != "f16"]
    options = " ".join(filter(None, [own.options, *cache]))
    first_wait, last_wait = (speed.first_wait_s, speed.last_wait_s) if speed else (None, None)
    return {
        "quant": own.quant,
        "n_ctx_train": own.row.n_ctx_train,
        "n_models": pick.n_models,
        "n_current": pick.n_current,
        "n_fit": len({each.model_key for each in pick.candidates if not each.missed}),
        "workload": needs.workload.name,
        "comfort_tok_s": needs.comfort_tok_s,
        "comfort_waits": f"{format_span(FIRST_WAIT_S)} and {format_span(LAST_WAIT_S)}",
        "name": candidate_name(own, with_model=pick.has_rivals),
        "model": model_name(own.row.subject),
        "best": model_name(pick.best.row.subject) if pick.best else "",
        "options": f" with {options}" if options else "",
        "cache": cache_text(own),
        "cache_loss": format_number(cost.value, 2),
        "loss": own.loss,
        "answer": speed.tok_s if speed else None,
        "tok_s": own.tok_s,
        "first_wait": span_text(first_wait),
        "last_wait": span_text(last_wait),
        "max_n_ctx": own.max_n_ctx,
        "host": format_bytes(own.host_bytes),
        "left": format_bytes(own.left_bytes),
        "expert_layers": counted(own.setup.n_cpu_moe, "layer"),
        "one_more": own.setup.n_cpu_moe + 1,
        "gpu_layers": counted(own.row.n_gpu_layers or 0, "layer"),
        "unknown": _joined(each.need for each in own.unknown),
        "missed": _joined(_miss_text(own, each, needs) for each in own.missed),
    }


def _joined(texts: Iterable[str]) -> str:
    """Return texts in words; nothing for none."""
    return in_words([*texts] or [""])


def _miss_text(own: Candidate, check: NeedCheck, needs: Needs) -> str:
    """Return how a need is missed: `is 1.1 GiB short`, `answers at 12.9 tok/s, not 15`."""
    key, missing = str(check.need), -(own.left_bytes or 0)
    if check.need == "memory" and own.row.outcome is not Outcome.COMPLETED:
        key = "refused"
    elif check.need == "memory" and missing <= 0:
        key = "probed"
    elif check.need == "memory" and own.row.lacks_main_memory:
        key = "main_memory"
    return say(
        f"pick_misses.{key}",
        missing=format_bytes(missing),
        wanted=_amount(check, check.wanted),
        value=_amount(check, check.value or 0.0),
        refusal=own.row.reason,
        workload=needs.workload.name,
    )


def _amount(check: NeedCheck, value: float) -> Value:
    """Return tokens of context, tok/s or nats."""
    return round(value) if check.need == "memory" else value


def is_runnable(pick: Pick) -> bool:
    """Return whether there is something to run, if only a miss that fits."""
    best = pick.best
    return best is not None and best.row.outcome is Outcome.COMPLETED and best.fits is not False
