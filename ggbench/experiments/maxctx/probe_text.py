"""What a search for the largest context asks and finds, in the words of its progress and of its certificate."""

from __future__ import annotations

from ggbench.engines.endings import Outcome
from ggbench.experiments.maxctx.record import Probe, Question
from ggbench.units import format_bytes, format_count, format_number


def question_text(question: Question) -> str:
    """`n_ctx 8,192: allocating; 4,096 loads, 16,384 does not`."""
    what = "decoding at its far end" if question.is_proof else "allocating"
    return f"n_ctx {format_count(question.n_ctx)}: {what}; {_ends_text(question)}"


def _ends_text(question: Question) -> str:
    """`4,096 loads, 16,384 does not`. A context that loads counts for nothing once a decode has failed."""
    ends = question.ends
    verb, none = ("works", "none proven yet") if question.is_proof else ("loads", "none known to load")
    passed = none if ends.passed is None else f"{format_count(ends.passed)} {verb}"
    return passed if ends.failed is None else f"{passed}, {format_count(ends.failed)} does not"


def answer_text(probe: Probe, program: str) -> str:
    """`n_ctx 8,192 loads but fails when decoding: out of memory (0.31 s)`; `program` runs the model."""
    cause = f": {probe.reason}" if probe.outcome is Outcome.CRASHED else ""
    seconds = format_number(probe.seconds, 2)
    return f"n_ctx {format_count(probe.n_ctx)} {outcome_text(probe, program)}{cause} ({seconds} s)"


def outcome_text(probe: Probe, program: str) -> str:
    """`loads`, `decodes at its far end`, `does not load: llama.cpp refused`, by the `program` that runs the model."""
    if probe.passed:
        return "decodes at its far end" if probe.is_proof else "loads"
    if not probe.is_answer:
        return f"is not known to {'work' if probe.is_proof else 'load'}: {probe.outcome.text}"
    fails = "loads but fails when decoding" if probe.is_proof else "does not load"
    if probe.outcome is Outcome.CRASHED:
        return f"{fails}, {program} crashed"
    why = f"{program} refused" if probe.outcome is Outcome.FAILED else probe.outcome.text
    short = "" if probe.missing_bytes is None else f", {format_bytes(probe.missing_bytes)} short"
    where = f" on {probe.device}" if probe.device else ""
    return f"{fails}: {why}{where}{short}"
