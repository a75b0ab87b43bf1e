"""Say what a pick recommends and why, from its typed reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggbench.decisions.loss import UNNOTICED_LOSS
from ggbench.decisions.pick.needs import LITTLE_BYTES, Needs
from ggbench.decisions.pick.order import is_unsure
from ggbench.decisions.pick.record import BestIn, Candidate, Checked, NeedCheck, Pick, Reason
from ggbench.decisions.pick.wording import (
    cache_text,
    candidate_name,
    loss_text,
    tok_s_text,
    turn_text,
    wanted_text,
)
from ggbench.engines.endings import Outcome
from ggbench.show import UNKNOWN
from ggbench.show.names import model_name
from ggbench.show.text import slots_text
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_count, format_number

_BEST_IN: Mapping[BestIn, str] = {
    "balance": "is the fastest that nobody could tell from the original",
    "least loss at this speed": "loses least of those that are about as fast",
    "fastest though slow": "is the fastest of those with little loss",
    "loss": "loses least",
    "speed among the least loss": "is the fastest of those whose loss is not clearly above the lowest",
    "bits": "has the most bits per weight; no loss is known",
    "speed": "is the fastest of those with little loss",
    "balance among the fastest": "is the best balance of those not clearly slower than the fastest",
    "context": "has the longest context of those with little loss",
    "parameters": "has the most parameters",
    "dense": "is dense: it uses all its parameters for each token, unlike the mixture of about the same size",
    "faster of dense and mixture": "is the faster of a dense model and a mixture of about the same size",
}


def headline(pick: Pick) -> str:
    """Return e.g. `Run q6_k with a q8_0 KV cache and n_ctx 8,192: a turn in 14.3 ±0.7 s.`"""
    if pick.recommended is None:
        return _nothing(pick)
    candidate = pick.recommended.candidate
    cache = cache_text(candidate)
    model = f" of {model_name(candidate.row.subject)}" if pick.n_models > 1 else ""
    article = "an" if cache.startswith(("f", "i")) else "a"
    name, turn = " ".join([candidate.quant, *candidate.options]), turn_text(candidate)
    seconds = "" if turn == UNKNOWN else f": a turn in {turn} s"
    may = "; it may meet the needs" if pick.recommended.meets is None else ""
    slow = "; it is slow" if pick.comfortable is False else ""
    n_ctx = format_count(candidate.n_ctx) + slots_text(candidate.setup, candidate.n_ctx)
    return sanitize(f"Run {name}{model} with {article} {cache} KV cache and n_ctx {n_ctx}{seconds}{may}{slow}.")


def _nothing(pick: Pick) -> str:
    nearest = pick.nearest_miss
    if nearest is None or not pick.misses_speed_alone:
        return "No candidate meets the needs."
    name, wanted = _named(pick, nearest.candidate), wanted_text(nearest.missed[0])
    return sanitize(f"Nothing meets {wanted}; nearest: {name}, {tok_s_text(nearest.candidate)}.")


def reason(pick: Pick) -> tuple[str, ...]:
    if pick.recommended is None:
        return tuple(_why_nothing(pick))
    own = pick.recommended.candidate
    return (
        *_why_this(pick, pick.recommended),
        *_why_not_others(pick),
        *_in_main_memory(own),
        *_little_left(own),
        *_what_is_open(pick.recommended),
        *_beyond_training(own, pick.needs),
        *_across_models(pick, own),
    )


def _why_this(pick: Pick, chosen: Checked) -> Iterator[str]:
    """Yield what the pick loses and how fast it is, or in what it is best, and what would come first but for a need."""
    own, first = chosen.candidate, pick.without_needs
    is_balanced = pick.needs.prefer == "balanced"
    if is_balanced:
        yield _in_a_sentence(pick, own)
    if first is None or first is chosen:
        if not is_balanced:
            yield f"{_named(pick, own)} {_best_text(pick, own)}, and would be the pick without these needs too."
    elif first.missed:
        yield f"{_named(pick, first.candidate)} would come first, but {_misses(first)}."
    else:
        unknown = in_words([f"its {each.need}" for each in first.unknown])
        would = f"{_named(pick, first.candidate)} would come first, but {unknown} is not known"
        yield f"{_named(pick, own)} meets the needs; {would}."


def _best_text(pick: Pick, own: Candidate) -> str:
    best = _BEST_IN[pick.best_in or "loss"]
    return f"{best}, by the bytes it reads alone" if "fast" in best and is_unsure(own) else best


def _why_not_others(pick: Pick) -> Iterator[str]:
    first = pick.without_needs
    named = first.candidate.name if first is not None and first.missed else None
    against = [_why_not(each, pick) for each in pick.reasons if each.other.candidate.name != named]
    if against:
        yield f"{'; '.join(against)}."


def _what_is_open(chosen: Checked) -> Iterator[str]:
    """Yield the needs that it may miss."""
    if chosen.unknown:
        yield f"Whether it meets {in_words(list(map(wanted_text, chosen.unknown)))} is not known."
    if close := [each.need for each in chosen.checks if each.is_close]:
        yield f"The interval of its {in_words(close)} includes the limit."


def _across_models(pick: Pick, own: Candidate) -> Iterator[str]:
    """Yield why it is the pick and not another model."""
    if pick.n_models == 1:
        return
    if pick.needs.prefer == "balanced" and pick.best_in in ("parameters", "faster of dense and mixture"):
        yield f"It {_best_text(pick, own)}."
    yield "Quality is not comparable across models, so the better answers may come from another."


def _in_a_sentence(pick: Pick, own: Candidate) -> str:
    """Return what the pick loses and how fast it is, as a person would say it."""
    speed, needs, lost = own.speed, pick.needs, _lost_text(own, pick.needs)
    if speed is None:
        return f"{lost}; how fast it answers is not known."
    whom = "" if needs.n_slots == 1 else f" each of {needs.n_slots} users"
    at = f"it answers{whom} at {'up to ' if speed.is_bound else ''}{format_number(speed.tok_s.value)} tok/s"
    floor = needs.workload.comfort_tok_s
    if speed.tok_s.value < floor:
        return f"{lost}; {at}, slower than the {format_number(floor)} tok/s that are comfortable."
    if pick.comfortable is False:
        return f"{lost}; {at}, but a turn takes longer than {format_number(needs.workload.comfort_turn_s)} s."
    if speed.is_bound:
        return f"{lost}; {at}, a limit and not measured."
    return f"{lost}, and {at}, faster than the {format_number(floor)} tok/s that are comfortable."


def _lost_text(own: Candidate, needs: Needs) -> str:
    loss = own.least_loss
    if loss is None:
        return "What it loses is not known"
    if own.loss is not None and loss.value <= UNNOTICED_LOSS:
        return "Nobody could tell it from the original"
    lost = "People notice what it loses" if needs.notices(loss.value) else "It loses little"
    return f"{lost} ({loss_text(own)} nats)"


def _why_not(reason: Reason, pick: Pick) -> str:
    other = reason.other.candidate
    name = _named(pick, other)
    match reason.kind:
        case "misses":
            return f"{name} {_misses(reason.other)}"
        case "noticed":
            return f"{name} loses what people notice ({loss_text(other)} nats)"
        case "slow":
            return f"{name} is slow: {tok_s_text(other)} tok/s"
        case "split":
            return f"{name} needs {format_bytes(other.host_bytes)} of main memory"
        case "cache":
            return f"{name} needs a quantized cache, whose loss depends on the model"
        case "unknown speed":
            return f"how fast {name} answers is not known"
        case "slower" | "hardly faster" | "ranks lower":
            lost = "" if other.least_loss is None else f" and loses {loss_text(other)} nats"
            return f"{name} {_its_speed(other, pick.needs)}{lost}"


def _its_speed(other: Candidate, needs: Needs) -> str:
    if needs.workload.n_depth is None and other.offered_n_ctx:  # each speed is at an end of its own
        return f"holds {format_count(other.offered_n_ctx)} tokens"
    return f"answers at {tok_s_text(other)} tok/s" if other.speed else "has an unknown speed"


def _in_main_memory(candidate: Candidate) -> Iterator[str]:
    setup, n_bytes = candidate.setup, format_bytes(candidate.host_bytes)
    if candidate.host_bytes is None:
        return
    if setup.n_cpu_moe:
        yield f"The experts of {setup.n_cpu_moe} layers stay in main memory, which takes {n_bytes} of it."
    else:
        on_gpu = format_count(candidate.row.n_gpu_layers)
        yield f"{on_gpu} layers are on the GPU; the rest takes {n_bytes} of main memory."


def _little_left(candidate: Candidate) -> Iterator[str]:
    """Yield how little is left, and what may take it."""
    left_bytes = candidate.row.left_bytes
    if left_bytes is not None and 0 <= left_bytes < LITTLE_BYTES:
        what = "a desktop or a browser on the GPU" if candidate.row.n_gpu_layers else "a browser"
        only = f"Only {format_bytes(left_bytes)} stay free beside the reserve"
        n_cpu_moe = candidate.setup.n_cpu_moe
        more = f" or -ncmoe {n_cpu_moe + 1}" if n_cpu_moe else ""
        yield f"{only}, and {what} may take more: a larger --reserve{more} leaves room."


def _named(pick: Pick, candidate: Candidate) -> str:
    return candidate_name(candidate, with_model=pick.n_models > 1)


def _why_nothing(pick: Pick) -> Iterator[str]:
    nearest = pick.nearest_miss
    if nearest is None:
        yield "There are no candidates."
    elif nearest.candidate.row.outcome is not Outcome.COMPLETED:
        yield f"llama.cpp could not size any: {sanitize(nearest.candidate.row.reason)}."
    else:
        yield f"The nearest, {_named(pick, nearest.candidate)}, {_misses(nearest)}."
        if pick.alternatives:
            other = pick.alternatives[0].checked.candidate
            yield f"{_named(pick, other)} may be fast enough: its speed ({tok_s_text(other)}) is not measured."
        yield from _beyond_training(nearest.candidate, pick.needs)


def _beyond_training(candidate: Candidate, needs: Needs) -> list[str]:
    trained, needed = candidate.row.n_ctx_train, needs.n_ctx_slot
    if not trained or trained >= needed:
        return []
    most = f"contexts of up to {format_count(trained)} tokens, fewer than {format_count(needed)}"
    return [f"The model was trained with {most}; llama-server gives a slot no more."]


def _misses(checked: Checked) -> str:
    """Return e.g. `misses 15.0 tok/s by 2.1 (12.9)`, `needs 4.40 GiB more main memory`."""
    lacking = [each.missing_bytes for each in checked.missed if each.of_main_memory]
    texts = [f"needs {format_bytes(n_bytes)} more main memory" for n_bytes in lacking]
    others = [_miss_text(each) for each in checked.missed if not each.of_main_memory]
    return in_words([*texts, *([f"misses {in_words(others)}"] if others else [])])


def _miss_text(check: NeedCheck) -> str:
    """Return a missed need and by how much: `a context of 16,384 tokens by 1.1 GiB (13,824 fit)`."""
    wanted, value = wanted_text(check), check.value or 0.0
    match check.need:
        case "memory":
            if check.refusal:
                return f"{wanted}: {check.refusal}"
            fits = f"{format_count(round(value))} fit" if value else "not even 256 fit"
            return f"{wanted} by {format_bytes(check.missing_bytes)} ({fits})"
        case "speed":
            had = f"{'at most ' if check.is_bound else ''}{format_number(value)}"
            return f"{wanted} by {format_number(check.wanted - value, 2)} ({had})"
        case "loss":
            return f"{wanted} by {format_number(value - check.wanted, 2)} ({format_number(value, 2)})"
