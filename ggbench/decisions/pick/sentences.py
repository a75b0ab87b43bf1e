"""Say what a pick recommends and why, from its typed reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggbench.decisions.pick.needs import LITTLE_BYTES, READING_TOK_S, UNNOTICED_LOSS, Needs
from ggbench.decisions.pick.order import is_unsure
from ggbench.decisions.pick.record import BestIn, Candidate, Checked, NeedCheck, Pick, Reason
from ggbench.decisions.pick.wording import candidate_name, loss_text, tok_s_text, turn_text, wanted_text
from ggbench.engines.endings import Outcome
from ggbench.models.catalog import load_catalog
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
    cache = "/".join(dict.fromkeys(candidate.cache))
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
        return (*_why_nothing(pick), *_instead(pick), *_uncounted(pick))
    chosen, first = pick.recommended, pick.without_needs
    own, name = chosen.candidate, _named(pick, chosen.candidate)
    sentences = [_in_a_sentence(pick, own)] if pick.needs.prefer == "balanced" else []
    if first is None or first is chosen:
        if not sentences:
            best = _BEST_IN[pick.best_in or "loss"]
            best += ", by the bytes it reads alone" if "fastest" in best and is_unsure(own) else ""
            sentences.append(f"{name} {best}, and would be the pick without these needs too.")
    elif first.missed:
        sentences.append(f"{_named(pick, first.candidate)} would come first, but {_misses(first)}.")
    else:
        unknown = in_words([f"its {each.need}" for each in first.unknown])
        other = f"{_named(pick, first.candidate)} would come first, but {unknown} is not known"
        sentences.append(f"{name} meets the needs; {other}.")
    named = [first.candidate.name] if first is not None and first.missed else []
    if against := [_why_not(each, own, pick) for each in pick.reasons if each.other.candidate.name not in named]:
        sentences.append(f"{'; '.join(against)}.")
    if own.host_bytes is not None:
        sentences.append(_in_main_memory(own))
        if own.row.draft_bytes:
            sentences.append(f"Without drafting, {format_bytes(own.row.draft_bytes)} more of the GPU would be free.")
        sentences += _none_whole(pick, own)
    sentences += _little_left(own)
    if figures := _not_known(own, has_speed_sentence=pick.needs.prefer == "balanced"):
        sentences.append(f"Not known: {'; '.join(figures)}.")
    if chosen.unknown:
        is_said = pick.needs.prefer == "balanced" and own.speed is not None and own.speed.is_bound
        unsaid = [wanted_text(each) for each in chosen.unknown if not (is_said and each.need == "speed")]
        if unsaid:
            sentences.append(f"Whether it meets {in_words(unsaid)} is not known.")
    sentences += _beyond_training(own, pick.needs)
    if close := [each.need for each in chosen.checks if each.is_close]:
        sentences.append(f"The interval of its {in_words(close)} includes the limit.")
    sentences += _than_its_rival(pick)
    if pick.n_models > 1:
        sentences.append("Quality is not comparable across models, so the better answers may come from another.")
    sentences += _by_its_publisher(pick)
    return (*sentences, *_instead(pick), *_uncounted(pick))


def _uncounted(pick: Pick) -> Iterator[str]:
    """Yield which of the user's runs of quality do not count, and why."""
    if runs := pick.uncounted_runs:
        which = f"run {runs[0][0]}" if len(runs) == 1 else f"runs {in_words([str(run_id) for run_id, _ in runs])}"
        bases = in_words(list(dict.fromkeys(base or "a base of unknown quant" for _, base in runs)))
        coarse = "loses too much itself" if len({base for _, base in runs}) == 1 else "lose too much themselves"
        yield f"The quality of {which} does not count: {bases} {coarse} to be a base; use one in 16 bits or q8_0."


def _than_its_rival(pick: Pick) -> Iterator[str]:
    """Yield why it is the pick and not another model, which no sentence about the pick alone says."""
    if pick.recommended is None or pick.needs.prefer != "balanced" or pick.comfortable is False:
        return
    own = pick.recommended.candidate
    loses_little = own.least_loss is not None and not pick.needs.notices(own.least_loss.value)
    if pick.best_in == "parameters" and pick.comfortable and loses_little:
        yield "It has the most parameters of the models that are comfortable and lose little."
    rival = next((each for each in pick.alternatives if each.label in ("dense", "mixture")), None)
    if pick.best_in != "faster of dense and mixture" or rival is None:
        return
    if is_unsure(own) == is_unsure(rival.checked.candidate):
        kind = "a dense model" if rival.label == "dense" else "a mixture of experts"
        faster = "reads fewer bytes a token" if is_unsure(own) else "is faster"
        yield f"It {faster} than {_named(pick, rival.checked.candidate)}, {kind} of about the same size."


def _by_its_publisher(pick: Pick) -> Iterator[str]:
    """Yield the scores on the model cards of the pick and its alternatives, and the size of the pick's projector."""
    catalog = {model.id: model for model in load_catalog()}
    shown = (pick.recommended, *(each.checked for each in pick.alternatives))
    named = dict.fromkeys(each.candidate.row.model.removeprefix("twin:") for each in shown if each is not None)
    models = [catalog[name] for name in named if name in catalog]
    scored = [model for model in models if model.scores]
    if len(scored) > 1:
        shared = [name for name in scored[0].scores if all(name in model.scores for model in scored)]
        said = [f"{name} {', '.join(f'{model.scores[name]:g} ({model.id})' for model in scored)}" for name in shared]
        if said:
            yield f"Model cards (publishers' own scores, not verified): {'; '.join(said)}."
    stacks = () if pick.recommended is None else pick.recommended.candidate.row.stacks
    has_projector = any(part.part == "projector" for stack in stacks for part in stack.parts)
    if models and models[0].id == next(iter(named)) and models[0].mmproj_bytes and not has_projector:
        yield f"For images, add the projector ({format_bytes(models[0].mmproj_bytes)}): --mmproj auto."


def _in_a_sentence(pick: Pick, own: Candidate) -> str:
    """Return what the pick loses and how fast it is, as a person would say it."""
    loss, speed, floor = own.least_loss, own.speed, pick.needs.workload.comfort_tok_s
    nats = "" if loss is None else f" ({loss_text(own)} nats)"
    if loss is None:
        lost = "What it loses is not known"
    elif own.loss is not None and loss.value <= UNNOTICED_LOSS:
        lost = "Nobody could tell it from the original"
    else:
        lost = f"People notice what it loses{nats}" if pick.needs.notices(loss.value) else f"It loses little{nats}"
    if speed is None:
        return f"{lost}; how fast it answers is not known."
    number = format_number(floor)
    limit = f"reading speed ({number} tok/s)"
    if floor != READING_TOK_S:
        limit = f"the {number} tok/s that are comfortable"
    at = f"{'up to ' if speed.is_bound else ''}{format_number(speed.tok_s.value)} tok/s"
    whom = "" if pick.needs.n_slots == 1 else f" each of {pick.needs.n_slots} users"
    if not speed.is_steady:
        at += f" ({speed.source})"
    if speed.tok_s.value < floor:
        return f"{lost}; it answers{whom} at {at}, slower than {limit}."
    if pick.comfortable is False:
        longest = format_number(pick.needs.workload.comfort_turn_s)
        return f"{lost}; it answers{whom} at {at}, but a turn takes longer than {longest} s."
    if speed.is_bound:
        goal = f"{number} is reading speed" if floor == READING_TOK_S else f"{number} are comfortable"
        if pick.needs.tok_s is not None:
            goal = f"{format_number(pick.needs.tok_s)} are needed"
        return f"{lost}; it answers{whom} at {at}, a limit and not measured; {goal}."
    if (needed := pick.needs.tok_s) is not None:
        limit = f"the {format_number(needed)} tok/s that are needed"
    than = "slower" if needed is not None and speed.tok_s.value < needed else "faster"
    return f"{lost}, and it answers{whom} at {at}, {than} than {limit}."


def _why_not(reason: Reason, own: Candidate, pick: Pick) -> str:
    other = reason.other.candidate
    name, share = _named(pick, other), ""
    if reason.ratio is not None:
        share = f"{format_number(100 * reason.ratio, 2)} % of the speed" + (" by its bytes" if is_unsure(own) else "")
    match reason.kind:
        case "misses":
            return f"{name} {_misses(reason.other)}"
        case "noticed":
            return f"{name} loses what people notice ({loss_text(other)} nats)"
        case "slow":
            return f"{name} is slow: {tok_s_text(other)} tok/s"
        case "split":
            at = f" and has {share}" if share else ""
            return f"{name} needs {format_bytes(other.host_bytes)} of main memory{at}"
        case "cache":
            return f"{name} needs a quantized cache, whose loss depends on the model"
        case "unknown speed":
            return f"how fast {name} answers is not known"
        case "slower" | "hardly faster" | "ranks lower":
            at = f"has {share}"
            if pick.needs.workload.n_depth is None and other.offered_n_ctx:  # each speed is at an end of its own
                at = f"holds {format_count(other.offered_n_ctx)} tokens"
            elif not share:
                at = f"answers at {tok_s_text(other)} tok/s" if other.speed else "has an unknown speed"
            if reason.kind == "slower" and _is_unnoticed(other) and _is_unnoticed(own):
                return f"{name} {at}, and nobody could tell them apart"
            return f"{name} {at}" + ("" if other.least_loss is None else f" and loses {loss_text(other)} nats")


def _is_unnoticed(candidate: Candidate) -> bool:
    return candidate.loss is not None and candidate.loss.value <= UNNOTICED_LOSS


def _in_main_memory(candidate: Candidate) -> str:
    setup, n_bytes = candidate.setup, format_bytes(candidate.host_bytes)
    if setup.n_cpu_moe:
        return f"The experts of {setup.n_cpu_moe} layers stay in main memory, which takes {n_bytes} of it."
    on_gpu = candidate.row.n_gpu_layers
    return f"{format_count(on_gpu)} layers are on the GPU; the rest takes {n_bytes} of main memory."


def _none_whole(pick: Pick, own: Candidate) -> Iterator[str]:
    """Yield what the nearest quant lacks to fit whole, if the pick keeps experts in main memory and none fits."""
    of_model = (each.candidate for each in pick.checked if each.candidate.model_key == own.model_key)
    whole = [each for each in of_model if not each.is_split and each.row.left_bytes is not None]
    if own.keeps_experts and whole and not any(each.row.fits for each in whole):
        nearest = max(whole, key=lambda each: each.row.left_bytes or 0)
        lacks = format_bytes(-(nearest.row.left_bytes or 0))
        yield f"No quant fits whole on the GPU: the nearest, {_named(pick, nearest)}, lacks {lacks}."


def _little_left(candidate: Candidate) -> Iterator[str]:
    """Yield how little is left, and what may take it."""
    left_bytes = candidate.row.left_bytes
    if left_bytes is not None and 0 <= left_bytes < LITTLE_BYTES:
        what = "a desktop or a browser on the GPU" if candidate.row.n_gpu_layers else "a browser"
        only = f"Only {format_bytes(left_bytes)} stay free beside the reserve"
        n_cpu_moe = candidate.setup.n_cpu_moe
        more = f" or -ncmoe {n_cpu_moe + 1}" if n_cpu_moe else ""
        yield f"{only}, and {what} may take more: a larger --reserve{more} leaves room."


_INSTEADS = {
    "smaller model": "a smaller model, {0.name} {0.quant}",
    "mixture of experts": "a mixture of experts, {0.name} {0.quant}",
    "GPU": "{0.quant} on an {0.name}",
}


def _instead(pick: Pick) -> list[str]:
    """Return what would be comfortable; nothing if the pick is."""
    if pick.recommended is not None and pick.comfortable is not False:
        return []
    floor = format_number(max(pick.needs.workload.comfort_tok_s, pick.needs.tok_s or 0.0))
    found = []
    for each in pick.instead:
        about = "up to " if each.is_bound else "~"
        found.append(f"{_INSTEADS[each.kind].format(each)} ({about}{format_number(each.tok_s)} tok/s)")
    if not found:
        return []
    nothing = f"No quant of this model with little loss answers at {floor} tok/s here. " if pick.recommended else ""
    return [f"{nothing}What may: {'; '.join(found)}."]


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
        miss = nearest.missed[0]
        if pick.alternatives:
            other = pick.alternatives[0].checked.candidate
            yield f"{_named(pick, other)} may be fast enough: its speed ({tok_s_text(other)}) is not measured."
        elif pick.misses_speed_alone and not pick.instead:
            if miss.is_bound and miss.value:
                ratio = format_number(miss.wanted / miss.value)
                yield f"No setting helps: use a smaller model, a shorter context, or {ratio} times the bandwidth."
            else:
                yield "A smaller model or a shorter context is faster, and `ggbench tune` may find faster settings."
        yield from _beyond_training(nearest.candidate, pick.needs)


def _beyond_training(candidate: Candidate, needs: Needs) -> list[str]:
    trained, needed = candidate.row.n_ctx_train, needs.n_ctx_slot
    if not trained or trained >= needed:
        return []
    most = f"contexts of up to {format_count(trained)} tokens, fewer than {format_count(needed)}"
    return [f"The model was trained with {most}; llama-server gives a slot no more."]


def _not_known(candidate: Candidate, *, has_speed_sentence: bool) -> list[str]:
    figures = []
    if candidate.joint_loss is None and candidate.cache_loss is None:
        figures.append(f"what a {' and '.join(dict.fromkeys(candidate.cache))} cache loses")
    if candidate.joint_loss is None and candidate.weights_loss is None:
        figures.append("what the weights lose")
    if not has_speed_sentence and (candidate.speed is None or candidate.speed.is_bound):
        figures.append("the speed" if candidate.speed is None else "the speed (only its upper bound)")
    return figures


def _misses(checked: Checked) -> str:
    """Return e.g. `misses 15.0 tok/s by 2.1 (12.9)`, `needs 4.40 GiB more main memory`."""
    lacking = [each.missing_bytes for each in checked.missed if each.of_main_memory]
    texts = [f"needs {format_bytes(n_bytes)} more main memory" for n_bytes in lacking]
    others = [_miss_text(each) for each in checked.missed if not each.of_main_memory]
    return in_words([*texts, *([f"misses {in_words(others)}"] if others else [])])


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
