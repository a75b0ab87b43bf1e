"""Say a pick for every output: the sentences why, the commands that run it, and its JSON."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from pathlib import Path

from ggbench.decisions.pick.needs import RULES, ChatTurn, Needs, workload_text
from ggbench.decisions.pick.record import (
    Alternative,
    BestIn,
    BeyondTraining,
    Candidate,
    Checked,
    IsBest,
    Loss,
    ModelsDoNotCompare,
    NearestMisses,
    NeedCheck,
    NeedsAreClose,
    NeedsDecide,
    NextLarger,
    NothingToChoose,
    NotKnown,
    Pick,
    Reason,
    TurnSpeed,
    Unknowns,
    WhatSpeedsUp,
)
from ggbench.decisions.pick.run_commands import RunCommands, run_commands
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.show import UNKNOWN
from ggbench.show.document import Document, Field, Shape, by_name, field, many, of, within
from ggbench.show.names import kv_name
from ggbench.show.plan import MEMORY
from ggbench.show.run_documents import ENDS, ends, expected
from ggbench.show.text import expected_text
from ggbench.sizing.plan import with_cache
from ggbench.sizing.plan_record import Budget, KvCacheTypes, PlanRow
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_count, format_number

_BEST_IN: Mapping[BestIn, str] = {
    "loss": "loses least",
    "speed among the least loss": "is the fastest of those that do not clearly lose more than the best",
    "bits": "has the most bits per weight of those whose loss is unknown",
    "speed": "is the fastest of those that lose little",
    "loss among the fastest": "loses least of those that are not clearly slower than the fastest",
    "context": "has the longest context of those that lose little",
    "parameters": "has the most parameters",
}
_NOT_KNOWN: Mapping[NotKnown, str] = {
    "cache loss": "what a {cache} cache loses",
    "weights loss": "what the weights lose",
    "speed": "the speed",
    "speed but for its bound": "the speed (only its upper bound)",
}


def commands_of(candidate: Candidate, budget: Budget, setup: LlamaConfig) -> RunCommands | None:
    """Return the commands that run a candidate as it was planned; None without a file."""
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
    """Return e.g. `q6_k, KV q8_0`. Printable."""
    name = kv_name(candidate.selector or candidate.row.quant, *candidate.cache)
    return sanitize(f"{candidate.row.model} {name}" if with_model else name)


def headline(pick: Pick) -> str:
    """Return e.g. `Run q6_k with a q8_0 KV cache and n_ctx 8,192: a turn in 14.3 ±0.7 s.`"""
    if pick.recommended is None:
        return "Nothing meets the needs."
    candidate = pick.recommended.candidate
    cache = "/".join(dict.fromkeys(candidate.cache))
    model = f" of {candidate.row.model}" if pick.n_models > 1 else ""
    article = "an" if cache.startswith("f") else "a"
    name, turn = candidate.selector or candidate.row.quant, turn_text(candidate)
    seconds = "" if turn == UNKNOWN else f": a turn in {turn} s"
    n_ctx = format_count(candidate.n_ctx)
    return sanitize(f"Run {name}{model} with {article} {cache} KV cache and n_ctx {n_ctx}{seconds}.")


def reason(pick: Pick) -> tuple[str, ...]:
    """Return the sentences that say why."""
    return tuple(sentence for each in pick.reasons for sentence in _sentences(each, pick))


def _sentences(reason: Reason, pick: Pick) -> Iterator[str]:
    def name(candidate: Candidate) -> str:
        return candidate_name(candidate, with_model=pick.n_models > 1)

    match reason:
        case IsBest():
            best = _BEST_IN[reason.best_in]
            yield f"{name(reason.candidate)} {best}, and would be the pick without these needs too."
        case NeedsDecide(first=first) if first.missed:
            yield f"{name(first.candidate)} would come first, but misses {_misses(first)}."
        case NeedsDecide(first=first):
            unknown = in_words([f"its {each.need}" for each in first.unknown])
            other = f"{name(first.candidate)} would come first, but whether {unknown} does is unknown"
            yield f"{name(reason.recommended)} meets the needs; {other}."
        case NextLarger(checked=larger):
            yield f"The next larger quant, {candidate_name(larger.candidate)}, {_changes(reason)}."
        case Unknowns():
            if reason.figures:
                cache = " and ".join(dict.fromkeys(reason.candidate.cache))
                yield f"Not known: {'; '.join(_NOT_KNOWN[each].format(cache=cache) for each in reason.figures)}."
            if reason.needs:
                yield f"Whether it meets {in_words(list(map(wanted_text, reason.needs)))} is not known."
        case BeyondTraining():
            yield f"The model was trained with contexts of up to {format_count(reason.n_ctx_train)} tokens."
        case NeedsAreClose():
            needs = in_words([each.need for each in reason.needs])
            yield f"The interval of its {needs} reaches beyond what is needed."
        case ModelsDoNotCompare():
            yield "Which model answers better is not known: memory, speed and context compare, quality does not."
        case NothingToChoose():
            refused = f"llama.cpp sizes none of them: {sanitize(reason.refusal)}."
            yield refused if reason.refusal else "There is nothing to choose from."
        case NearestMisses(checked=nearest):
            yield f"The nearest, {name(nearest.candidate)}, misses {_misses(nearest)}."
        case WhatSpeedsUp(bandwidth_ratio=None):
            yield "A smaller model or a shorter context is faster, and `ggbench tune` may find faster settings."
        case WhatSpeedsUp():
            ratio = format_number(reason.bandwidth_ratio)
            yield f"No setting helps: it takes a smaller model, a shorter context, or {ratio} times the bandwidth."


def _misses(checked: Checked) -> str:
    return in_words(list(map(_miss_text, checked.missed)))


def _miss_text(check: NeedCheck) -> str:
    """Return a missed need and by how much: `a context of 16,384 tokens by 1.1 GiB (13,824 fit)`."""
    wanted, close = wanted_text(check), ", within its interval" if check.is_close else ""
    value = check.value or 0.0
    match check.need:
        case "memory":
            if check.refusal:
                return f"{wanted}: {check.refusal}"
            fits = f"{format_count(round(value))} fit" if value else "not even 256 fit"
            return f"{wanted} by {format_bytes(check.missing_bytes)} ({fits})"
        case "speed":
            had = f"{'at most ' if check.is_bound else ''}{format_number(value)}"
            return f"{wanted} by {format_number(check.wanted - value, 2)} ({had}{close})"
        case "loss":
            return f"{wanted} by {format_number(value - check.wanted, 2)} ({format_number(value, 2)}{close})"


def _changes(reason: NextLarger) -> str:
    """Return what the next larger quant misses, else what it would change."""
    if reason.checked.missed:
        return f"misses {_misses(reason.checked)}"
    changes = []
    if reason.nats is not None:
        theirs, mine = (format_number(nats, 2) for nats in reason.nats)
        changes.append(f"its weights lose {theirs} nats instead of {mine}")
    if reason.speed_ratio is not None:
        changes.append(f"it answers at {format_number(reason.speed_ratio * 100, 2)} % of the speed")
    verb = "may meet" if reason.checked.meets is None else "meets"
    return f"{verb} the needs too{': ' if changes else ''}{in_words(changes or [''])}"


def loss_text(candidate: Candidate) -> str:
    """Return e.g. `0.0312 ±0.0004`, `~0.021` if it is typical, `~0.021 + ?` if the cache's loss is unknown."""
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
    if "published typical" in (weights.basis, cache.basis):
        return f"~{format_number(whole.value, 2)}"
    return expected_text(whole)


def tok_s_text(candidate: Candidate) -> str:
    """Return e.g. `12.3 ±0.4`, `≤ 50.3` for a bound."""
    return UNKNOWN if candidate.speed is None else expected_text(candidate.speed.tok_s)


def turn_text(candidate: Candidate) -> str:
    """Return the seconds of a turn, e.g. `14.3 ±0.7`, `≥ 9.8` if the answer's speed is a bound."""
    return UNKNOWN if candidate.speed is None else expected_text(candidate.speed.turn_s)


def loss_source(candidate: Candidate) -> str:
    """Return the runs that the loss was measured by; empty if none."""
    if candidate.joint_loss is not None:
        return f"loss by {candidate.joint_loss.source}"
    losses = {"loss": candidate.weights_loss, "cache's loss": candidate.cache_loss}
    return "; ".join(f"{name} by {each.source}" for name, each in losses.items() if each and each.basis == "measured")


def speed_source(candidate: Candidate) -> str:
    """Return where a speed comes from; empty if it is a bound or unknown."""
    speed = candidate.speed
    return "" if speed is None or speed.is_bound else f"speed {speed.basis}: {speed.source}"


def _loss(loss: Loss) -> str:
    if loss.basis == "published typical":
        return f"~{format_number(loss.nats.value, 2)}"
    return "0" if loss.nats.value == 0 else expected_text(loss.nats)


def wanted_text(check: NeedCheck) -> str:
    """Return one need: `a context of 16,384 tokens`, `15.0 tok/s`, `a loss of 0.050 nats`."""
    match check.need:
        case "memory":
            return f"a context of {format_count(round(check.wanted))} tokens"
        case "speed":
            return f"{format_number(check.wanted)} tok/s"
        case "loss":
            return f"a loss of {format_number(check.wanted, 2)} nats"


def _row(names: str) -> tuple[Field, ...]:
    return of(PlanRow, names, lambda candidate: candidate.row)


_LOSS = Shape(
    "Loss",
    "What is lost in quality.",
    field("kld", float, get=lambda loss: loss.nats.value),
    field("kld_ci95", ENDS, get=lambda loss: ends(loss.nats)),
    of(Loss, "basis source"),
)
_QUALITY = Shape(
    "Quality",
    "Nats per token that are lost, and by what.",
    expected("kld", "", lambda candidate: candidate.loss),
    *(
        field(name, _LOSS | None, "Null is unknown.", operator.attrgetter(f"{name}_loss"))
        for name in ("weights", "cache", "joint")
    ),
)
_CANDIDATE = Shape(
    "Candidate",
    "",
    _row("model quant"),
    field("selector", str, "The QUANT argument.", lambda candidate: candidate.selector or candidate.row.quant),
    _row("type_k type_v provenance file?"),
    of(Candidate, "n_ctx max_n_ctx offered_n_ctx probed_by"),
    _row("n_ctx_train n_params bpw file_bytes weight_bytes needed_bytes left_bytes fits"),
    of(Candidate, "download_bytes"),
    expected("expected_tok_s", "", lambda candidate: candidate.speed and candidate.speed.tok_s),
    expected(
        "turn_s",
        "Seconds of prompt and answer; null if nothing is known of prompts.",
        lambda candidate: candidate.speed and candidate.speed.turn_s,
    ),
    of(TurnSpeed, "speed_basis=basis speed_source=source", lambda candidate: candidate.speed, maybe=True),
    field("quality", _QUALITY, get=lambda candidate: candidate),
    _row("outcome problem=reason? notes"),
)
_CHECK = Shape("NeedCheck", "", of(NeedCheck, "wanted value is_met is_close short_by"))
_CHECKED = Shape(
    "Checked",
    "",
    within(lambda checked: checked.candidate, _CANDIDATE.fields),
    of(Checked, "meets"),
    field(
        "checks",
        by_name(_CHECK),
        "By the need: memory, speed, loss.",
        lambda checked: {check.need: check for check in checked.checks},
    ),
)
_REASONED = Shape("Reasoned", "A candidate, and why.", _CHECKED.fields, field("reason", str))


def _reasoned(pick: Pick, checked: Checked | None) -> dict[str, object] | None:
    return None if checked is None else _REASONED.value(checked, reason=" ".join(reason(pick)))


PICK = Document(
    "pick",
    "pick [MODEL [QUANT...]]",
    "The quant and the KV cache to run.",
    field(
        "pick",
        _REASONED | None,
        "What to run; null if nothing meets the needs.",
        lambda pick: _reasoned(pick, pick.recommended),
    ),
    field(
        "alternatives",
        many(Shape("Alternative", "", of(Alternative, "label"), within(lambda each: each.checked, _CHECKED.fields))),
    ),
    field("front", many(_CANDIDATE), "Candidates that no other dominates."),
    field("candidates", many(_CHECKED), get=lambda pick: pick.checked),
    field("commands", RunCommands | None),
    of(Pick, "changes"),
    field(
        "nearest_miss",
        _REASONED | None,
        "What misses the needs by least, if nothing meets them.",
        lambda pick: _reasoned(pick, pick.nearest_miss),
    ),
    field(
        "workload",
        Shape(
            "ChatTurn",
            "",
            of(ChatTurn, "name n_prompt n_gen n_depth", lambda needs: needs.workload),
            field("definition", str, get=workload_text),
        ),
        get=lambda pick: pick.needs,
    ),
    field("needs", Shape("Needs", "", of(Needs, "n_ctx max_loss prefer min_tok_s=tok_s little_loss"))),
    of(Pick, "n_models"),
    field("rules", list[str], "How the pick is made, a sentence each.", lambda pick: RULES),
    field("machine", MEMORY),
    field("config", EngineConfig, "How the model is to be loaded, by its engine's own names."),
)
