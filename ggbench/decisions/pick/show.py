"""What a pick says, for every output: its JSON, what was needed, the sentences why, and the commands that run it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ggbench.decisions.pick.record import Candidate, Checked, Loss, NeedCheck, Needs, Pick, Workload
from ggbench.decisions.pick.run_commands import RunCommands, run_commands
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.show import UNKNOWN
from ggbench.show.columns import expected_text
from ggbench.show.documents import picked, setup_document
from ggbench.show.names import kv_name
from ggbench.sizing.plan import with_cache
from ggbench.sizing.plan_record import Budget, KvCacheTypes
from ggbench.text import in_words, plain
from ggbench.units import format_bytes, format_count, format_number

RULES = (
    "Out is what misses a need or is dominated: worse or equal in loss, speed and context, and clearly worse in one.",
    "First comes what meets all needs for certain, then what may meet them.",
    "First comes a little loss, up to --max-loss or 0.05 nats; then an unknown one, larger caches first; then more.",
    "Then --prefer decides: quality takes the least loss and, of what is not clearly worse, the fastest; speed the"
    " fastest and, of what is not clearly slower, the least loss; context the longest.",
    "Between models quality does not compare: --prefer quality takes the one with the most parameters, by habit.",
)
"""How a recommendation is made, a sentence each."""


def pick_document(pick: Pick, budget: Budget, setup: LlamaConfig) -> dict[str, object]:
    """Return the fields of `ggbench.pick/1`; every key is always there, null for unknown."""
    recommended = pick.recommended
    commands = None if recommended is None else commands_of(recommended.candidate, budget, setup)
    return {
        "pick": None if recommended is None else _checked(recommended) | {"reason": " ".join(reason(pick))},
        "alternatives": [{"label": each.label, **_checked(each.checked)} for each in pick.alternatives],
        "front": [_candidate(each) for each in pick.front],
        "candidates": [_checked(each) for each in pick.checked],
        "commands": commands,
        "changes": pick.changes,
        "nearest_miss": pick.nearest_miss and _checked(pick.nearest_miss) | {"reason": " ".join(reason(pick))},
        "workload": {
            **picked(pick.needs.workload, "name n_prompt n_gen n_depth"),
            "definition": workload_text(pick.needs),
        },
        "needs": {
            **picked(pick.needs, "n_ctx max_loss prefer"),
            "min_tok_s": pick.needs.tok_s,
            "little_loss": pick.needs.little_loss,
        },
        "n_models": pick.n_models,
        "rules": RULES,
        "machine": {
            **picked(budget, "device on_gpu memory_bytes memory_source reserve_bytes reserve_source"),
            "budget_bytes": budget.usable_bytes,
            "bandwidth_bytes_per_s": budget.bandwidth and budget.bandwidth.bytes_per_s,
            "bandwidth_source": budget.bandwidth and budget.bandwidth.source,
        },
        "config": setup_document(setup),
    }


def commands_of(candidate: Candidate, budget: Budget, setup: LlamaConfig) -> RunCommands | None:
    """Return the commands that run a candidate as it was planned; None for one without a file."""
    if candidate.to_run is None:
        return None
    asked = with_cache(setup, KvCacheTypes(*candidate.cache, setup.flash_attn), candidate.n_ctx)
    return run_commands(
        candidate.to_run,
        asked,
        on_gpu=budget.on_gpu,
        n_ctx_train=candidate.row.n_ctx_train,
        mmproj=Path(budget.mmproj) if budget.mmproj else None,
    )


def candidate_name(candidate: Candidate, *, with_model: bool = False) -> str:
    """Return `q6_k, KV q8_0`, after the model where that is not clear. Printable."""
    name = kv_name(candidate.selector or candidate.row.quant, *candidate.cache)
    return plain(f"{candidate.row.model} {name}" if with_model else name)


def headline(pick: Pick) -> str:
    """Return `Run q6_k with a q8_0 KV cache and n_ctx 8,192: a turn in 14.3 ±0.7 s.`, or that nothing is to be run."""
    if pick.recommended is None:
        return "Nothing meets the needs."
    candidate = pick.recommended.candidate
    cache = "/".join(dict.fromkeys(candidate.cache))
    model = f" of {candidate.row.model}" if pick.n_models > 1 else ""
    article = "an" if cache.startswith("f") else "a"
    name = candidate.selector or candidate.row.quant
    turn = turn_text(candidate)
    seconds = "" if turn == UNKNOWN else f": a turn in {turn} s"
    return plain(
        f"Run {name}{model} with {article} {cache} KV cache and n_ctx {format_count(candidate.n_ctx)}{seconds}."
    )


def reason(pick: Pick) -> tuple[str, ...]:
    """Return the sentences why: what decided, what the next larger quant would change, and what is not known."""
    if pick.recommended is None:
        return _why_nothing(pick)
    sentences = [_what_decided(pick, pick.recommended)]
    larger, ideal = pick.next_larger, pick.without_needs
    if larger is not None and larger is not ideal:
        sentences.append(_next_larger(pick.recommended.candidate, larger))
    sentences += _not_known(pick, pick.recommended)
    return tuple(sentences)


def miss_text(check: NeedCheck, candidate: Candidate) -> str:
    """Return a need that is missed, and by how much: `a context of 16,384 tokens by 1.1 GiB (13,824 fit)`."""
    wanted = wanted_text(check)
    match check.need:
        case "memory":
            if check.value is None:
                return f"{wanted}: {candidate.row.reason}"
            missing = format_bytes(-(candidate.row.left_bytes or 0))
            fits = f"{format_count(round(check.value))} fit" if check.value else "not even 256 fit"
            return f"{wanted} by {missing} ({fits})"
        case "speed":
            at_most = "at most " if candidate.speed is not None and candidate.speed.is_bound else ""
            had = f"{at_most}{format_number(check.value)}"
            close = ", within its interval" if check.is_close else ""
            missing = format_number(check.wanted - (check.value or 0.0), 2)
            return f"{wanted} by {missing} ({had}{close})"
        case "loss":
            close = ", within its interval" if check.is_close else ""
            missing = format_number((check.value or 0.0) - check.wanted, 2)
            return f"{wanted} by {missing} ({format_number(check.value, 2)}{close})"


def loss_text(candidate: Candidate) -> str:
    """Return `0.0312 ±0.0004`, `~0.021` of what is typical, `~0.021 + ?` where what the cache loses is unknown."""
    if candidate.joint_loss is not None:
        return _loss(candidate.joint_loss)
    weights, cache = candidate.weights_loss, candidate.cache_loss
    if weights is None:
        return UNKNOWN
    if cache is None:
        return f"{_loss(weights)} + ?"
    whole = candidate.loss
    if whole is None or cache.basis == "unquantized":
        return _loss(weights)
    mark = "~" if "published typical" in (weights.basis, cache.basis) else ""
    return f"{mark}{expected_text(whole) if not mark else format_number(whole.value, 2)}"


def tok_s_text(candidate: Candidate) -> str:
    """Return `12.3 ±0.4`, `≤ 50.3` of a bound."""
    return UNKNOWN if candidate.speed is None else expected_text(candidate.speed.tok_s)


def turn_text(candidate: Candidate) -> str:
    """Return the seconds of a turn, with their interval: `14.3 ±0.7`, `≥ 9.8` where the answer's speed is a bound."""
    return UNKNOWN if candidate.speed is None else expected_text(candidate.speed.turn_s)


def loss_source(candidate: Candidate) -> str:
    """Return the runs that the loss is from, in words; empty where none is measured."""
    if candidate.joint_loss is not None:
        return f"loss by {candidate.joint_loss.source}"
    losses = {"loss": candidate.weights_loss, "cache's loss": candidate.cache_loss}
    return "; ".join(f"{name} by {each.source}" for name, each in losses.items() if each and each.basis == "measured")


def speed_source(candidate: Candidate) -> str:
    """Return where a speed comes from that is not a bound, in words; empty where it is one, or unknown."""
    speed = candidate.speed
    return "" if speed is None or speed.is_bound else f"speed {speed.basis}: {speed.source}"


def _what_decided(pick: Pick, recommended: Checked) -> str:
    own, ideal, needs = recommended.candidate, pick.without_needs, pick.needs
    several = pick.n_models > 1
    name = candidate_name(own, with_model=several)
    best = "has the most parameters" if several and needs.prefer == "quality" else _best_text(pick, recommended)
    if ideal is None or ideal.candidate.name == own.name:
        return f"{name} {best}, and would be the pick without these needs too."
    other = candidate_name(ideal.candidate, with_model=several)
    if ideal.missed:
        decided = {"memory": "memory", "speed": "speed", "loss": "--max-loss"}
        limits = in_words([decided[check.need] for check in ideal.missed])
        misses = in_words([miss_text(check, ideal.candidate) for check in ideal.missed])
        verb = "decide" if len(ideal.missed) > 1 else "decides"
        return f"{limits[:1].upper()}{limits[1:]} {verb}: {other} would come first, but misses {misses}."
    unknown = in_words([f"its {check.need}" for check in ideal.unknown])
    return f"{name} meets the needs; {other} would come first, but whether {unknown} does is unknown."


def _best_text(pick: Pick, recommended: Checked) -> str:
    """In what the pick is the best, or that another is better by less than the intervals."""
    own, prefer = recommended.candidate, pick.needs.prefer
    if prefer == "context":
        return "has the longest context of those that lose little"
    rivals = [each.candidate for each in pick.checked if each.meets is recommended.meets]
    if prefer == "speed":
        rivals = [each for each in rivals if each.loss and each.loss.value <= pick.needs.little_loss]
        if any(_is_faster(each, own) for each in rivals):
            return "loses least of those that are not clearly slower than the fastest"
        return "is the fastest of those that lose little"
    rivals = [each for each in rivals if (each.loss is None) is (own.loss is None) and each.cache == own.cache]
    if any(_loses_less(each, own) for each in rivals):
        return "is the fastest of those that do not clearly lose more than the best"
    return "loses least"


def _is_faster(one: Candidate, other: Candidate) -> bool:
    """By a speed that is known of both."""
    mine, theirs = one.speed, other.speed
    if mine is None or theirs is None or mine.is_bound or theirs.is_bound:
        return False
    if mine.turn_s is not None and theirs.turn_s is not None:
        return mine.turn_s.value < theirs.turn_s.value
    return mine.tok_s.value > theirs.tok_s.value


def _loses_less(one: Candidate, other: Candidate) -> bool:
    mine, theirs = one.least_loss, other.least_loss
    return mine is not None and theirs is not None and mine.value < theirs.value


def _next_larger(own: Candidate, larger: Checked) -> str:
    name = candidate_name(larger.candidate)
    if larger.missed:
        misses = in_words([miss_text(check, larger.candidate) for check in larger.missed])
        return f"The next larger quant, {name}, misses {misses}."
    changes = []
    if larger.candidate.weights_loss is not None and own.weights_loss is not None:
        theirs, mine = larger.candidate.weights_loss.nats.value, own.weights_loss.nats.value
        changes.append(f"its weights lose {format_number(theirs, 2)} nats instead of {format_number(mine, 2)}")
    if larger.candidate.speed is not None and own.speed is not None:
        ratio = larger.candidate.speed.tok_s.value / own.speed.tok_s.value
        changes.append(f"it answers at {format_number(ratio * 100, 2)} % of the speed")
    verb = "may meet" if larger.meets is None else "meets"
    return f"The next larger quant, {name}, {verb} the needs too{': ' if changes else ''}{in_words(changes or [''])}."


def _not_known(pick: Pick, recommended: Checked) -> list[str]:
    own, unknown = recommended.candidate, []
    if own.joint_loss is None and own.cache_loss is None:
        unknown.append(f"what a {' and '.join(dict.fromkeys(own.cache))} cache loses")
    if own.joint_loss is None and own.weights_loss is None:
        unknown.append("what the weights lose")
    if own.speed is None:
        unknown.append("the speed")
    elif own.speed.is_bound:
        unknown.append("the speed, but for the best that the bandwidth allows")
    sentences = [f"Not known: {'; '.join(unknown)}."] if unknown else []
    if recommended.unknown:
        sentences.append(f"Whether it meets {in_words(list(map(wanted_text, recommended.unknown)))} is not known.")
    sentences += _beyond_training(own)
    close = [check.need for check in recommended.checks if check.is_close]
    if close:
        sentences.append(f"The interval of its {in_words(close)} reaches beyond what is needed.")
    if pick.n_models > 1:
        sentences.append(
            "Which model answers better is not known: memory, speed and context compare, quality does not."
        )
    return sentences


def _why_nothing(pick: Pick) -> tuple[str, ...]:
    nearest = pick.nearest_miss
    if nearest is None:
        return ("There is nothing to choose from.",)
    name = candidate_name(nearest.candidate, with_model=pick.n_models > 1)
    if nearest.candidate.row.outcome is not Outcome.COMPLETED:
        return (f"llama.cpp sizes none of them: {plain(nearest.candidate.row.reason)}.",)
    misses = in_words([miss_text(check, nearest.candidate) for check in nearest.missed])
    helps = _what_speeds_up(nearest.missed, nearest.candidate)
    return (f"The nearest, {name}, misses {misses}.", *helps, *_beyond_training(nearest.candidate))


def _what_speeds_up(missed: Sequence[NeedCheck], candidate: Candidate) -> list[str]:
    """A sentence on what would help where speed alone is missed; a bound is in proportion to the bandwidth."""
    if [check.need for check in missed] != ["speed"]:
        return []
    if candidate.speed is not None and candidate.speed.is_bound and missed[0].value:
        ratio = format_number(missed[0].wanted / missed[0].value)
        return [f"No setting helps: it takes a smaller model, a shorter context, or {ratio} times the bandwidth."]
    return ["A smaller model or a shorter context is faster, and `ggbench tune` may find faster settings."]


def _beyond_training(candidate: Candidate) -> list[str]:
    """A sentence where the context that is needed is longer than the model was trained with."""
    trained = candidate.row.n_ctx_train
    if not trained or candidate.n_ctx <= trained:
        return []
    return [f"The model was trained with contexts of up to {format_count(trained)} tokens."]


def _checked(checked: Checked) -> dict[str, object]:
    checks = {
        check.need: {
            **picked(check, "wanted value is_met is_close"),
            "short_by": check.short_by if check.short_by is None or math.isfinite(check.short_by) else None,
        }
        for check in checked.checks
    }
    return {**_candidate(checked.candidate), "meets": checked.meets, "checks": checks}


def _candidate(candidate: Candidate) -> dict[str, object]:
    row, speed = candidate.row, candidate.speed
    return {
        **picked(row, "model quant"),
        "selector": candidate.selector or row.quant,
        **picked(row, "type_k type_v provenance"),
        "file": row.file or None,
        **picked(candidate, "n_ctx max_n_ctx offered_n_ctx probed_by"),
        **picked(row, "n_ctx_train n_params bpw file_bytes weight_bytes needed_bytes left_bytes fits"),
        "download_bytes": candidate.download_bytes,
        "expected_tok_s": speed and speed.tok_s.value,
        "expected_tok_s_ci95": speed and (speed.tok_s.low, speed.tok_s.high),
        "turn_s": speed and speed.turn_s and speed.turn_s.value,
        "turn_s_ci95": speed and speed.turn_s and (speed.turn_s.low, speed.turn_s.high),
        "speed_basis": speed and speed.basis,
        "speed_source": speed and speed.source,
        "quality": {
            "kld": candidate.loss and candidate.loss.value,
            "kld_ci95": candidate.loss and (candidate.loss.low, candidate.loss.high),
            "weights": _loss_document(candidate.weights_loss),
            "cache": _loss_document(candidate.cache_loss),
            "joint": _loss_document(candidate.joint_loss),
        },
        "outcome": row.outcome,
        "problem": row.reason or None,
        "notes": row.notes,
    }


def _loss_document(loss: Loss | None) -> dict[str, object] | None:
    if loss is None:
        return None
    nats = loss.nats
    return {"kld": nats.value, "kld_ci95": (nats.low, nats.high), **picked(loss, "basis source")}


def _loss(loss: Loss) -> str:
    if loss.basis == "published typical":
        return f"~{format_number(loss.nats.value, 2)}"
    return "0" if loss.nats.value == 0 else expected_text(loss.nats)


def shown_candidates(pick: Pick) -> Sequence[tuple[str, Checked]]:
    """Return what a short table shows, each once: the pick, alternatives, the next larger quant, the nearest miss."""
    named: list[tuple[str, Checked | None]] = [
        ("→ pick", pick.recommended),
        *((each.label, each.checked) for each in pick.alternatives),
        ("next larger", pick.next_larger),
        ("no needs", pick.without_needs),
        ("nearest miss", pick.nearest_miss),
    ]
    found: dict[tuple[str, ...], tuple[str, Checked]] = {}
    for label, checked in named:
        if checked is not None:
            found.setdefault(checked.candidate.name, (label, checked))
    return tuple(found.values())


def workload_text(needs: Needs) -> str:
    """Return the definition of the workload: `chat: 512 tokens in and 300 out after 4,096, in a context of 8,192`."""
    workload = needs.workload
    turn = f"{format_count(workload.n_prompt)} tokens in and {format_count(workload.n_gen)} out"
    if workload.n_depth is None:
        speed = format_number(needs.tok_s)
        return f"{workload.name}: all the context that is answered at {speed} tok/s; {turn} at its end"
    after = f" after {format_count(workload.n_depth)}" if workload.n_depth else ""
    return f"{workload.name}: {turn}{after}, in a context of {format_count(needs.n_ctx)}"


def needs_text(needs: Needs) -> str:
    """Return what is needed: `a context of 8,192, 15.0 tok/s after 4,608; prefers quality`."""
    return f"{', '.join([_context_text(needs), *limit_texts(needs)])}; prefers {needs.prefer}"


def limit_texts(needs: Needs) -> list[str]:
    """Return the limits besides the context: `15.0 tok/s after 4,608`, `a loss of 0.050 nats at most`."""
    texts = []
    if needs.tok_s is not None:
        texts.append(f"{format_number(needs.tok_s)} tok/s {position_text(needs.workload)}")
    if needs.max_loss is not None:
        texts.append(f"a loss of {format_number(needs.max_loss, 2)} nats at most")
    return texts


def _context_text(needs: Needs) -> str:
    """`a context of 31,232 (8,192 do not hold the turn)`."""
    text, given = f"a context of {format_count(needs.n_ctx)}", needs.given_n_ctx
    if given is None or given == needs.n_ctx:
        return text
    is_short = whole_steps(given) < needs.n_ctx
    why = "do not hold the turn" if is_short else f"in whole steps of {format_count(whole_steps(1))}"
    return f"{text} ({format_count(given)} {why})"


def position_text(workload: Workload) -> str:
    """Return where the answer is timed: `after 4,608`; `at the end` of a context of any length."""
    return "at the end" if workload.n_depth is None else f"after {format_count(workload.n_depth + workload.n_prompt)}"


def wanted_text(check: NeedCheck) -> str:
    """Return one need: `a context of 16,384 tokens`, `15.0 tok/s`, `0.050 nats`."""
    match check.need:
        case "memory":
            return f"a context of {format_count(round(check.wanted))} tokens"
        case "speed":
            return f"{format_number(check.wanted)} tok/s"
        case "loss":
            return f"{format_number(check.wanted, 2)} nats"
