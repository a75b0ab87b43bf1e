"""Name a candidate and write its figures for people: in a cell, a legend or a sentence."""

from __future__ import annotations

from ggbench.decisions.loss import Loss
from ggbench.decisions.pick.record import Candidate, NeedCheck
from ggbench.show import UNKNOWN
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import kv_name, model_name
from ggbench.show.text import expected_text
from ggbench.text import sanitize
from ggbench.units import format_count, format_number


def candidate_name(candidate: Candidate, *, with_model: bool = False) -> str:
    """Return e.g. `q6_k, KV q8_0` or `q4_k_m -ncmoe 24`. Printable."""
    name = kv_name(" ".join([candidate.quant, *candidate.options]), *candidate.cache)
    return f"{model_name(candidate.row.subject)} {sanitize(name)}" if with_model else sanitize(name)


def cache_text(candidate: Candidate) -> str:
    """Return the types of its KV cache: `q8_0`, `q8_0/f16`."""
    return "/".join(dict.fromkeys(candidate.cache))


def loss_text(candidate: Candidate) -> str:
    """Return e.g. `0.0312 ±0.0004`, `~0.021` if typical, `~0.021 + ?` if the cache's loss is unknown."""
    if candidate.joint_loss is not None:
        return nats_text(candidate.joint_loss)
    weights, cache = candidate.weights_loss, candidate.cache_loss
    if weights is None:
        return UNKNOWN
    if cache is None:
        return f"{nats_text(weights)} + ?"
    whole = candidate.loss
    if whole is None or cache.basis == "unquantized":
        return nats_text(weights)
    if "published typical" in (weights.basis, cache.basis):
        return f"~{format_number(whole.value, 2)}"
    return expected_text(whole)


def tok_s_text(candidate: Candidate) -> str:
    """Return e.g. `12.3 ±0.4`, `≤ 50.3` for a bound, `! ≤ 50.3` for one that may be too low."""
    speed = candidate.speed
    if speed is None:
        return UNKNOWN
    return f"{'' if speed.is_steady else f'{UNSTEADY} '}{expected_text(speed.tok_s)}"


def turn_text(candidate: Candidate) -> str:
    """Return the seconds of a turn, e.g. `14.3 ±0.7`, `≥ 9.8` if the answer's speed is a bound."""
    return UNKNOWN if candidate.speed is None else expected_text(candidate.speed.turn_s)


def loss_source(candidate: Candidate) -> str:
    if candidate.joint_loss is not None:
        return f"loss by {candidate.joint_loss.source}"
    losses = {"loss": candidate.weights_loss, "cache's loss": candidate.cache_loss}
    return "; ".join(
        f"{name} by {each.source}" for name, each in losses.items() if each and each.basis == "measured"
    )


def speed_source(candidate: Candidate) -> str:
    """Return the source of a speed; empty for a bound or unknown."""
    speed = candidate.speed
    return "" if speed is None or speed.is_bound else f"speed: {speed.source}"


def nats_text(loss: Loss) -> str:
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
