"""What is needed of a pick, in words."""

from __future__ import annotations

from ggbench.decisions.pick.record import NeedCheck, Needs, Workload
from ggbench.engines.llama.config import whole_steps
from ggbench.units import format_count, format_number


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
