"""One line of text for each question and answer of a search."""

from __future__ import annotations

from ggbench.records.context import BracketEnds, Probe, ProbeKind, Question
from ggbench.units import format_count, format_number

_KINDS = {"dry": "dry context", "alloc": "context", "decode": "decode"}


def question_text(question: Question) -> str:
    """`context 8,192; 4,096 works, 16,384 does not`."""
    ends = _ends_text(question.kind, question.ends)
    return f"{_KINDS[question.kind]} {format_count(question.n_ctx)}; {ends}"


def answer_text(probe: Probe, ends: BracketEnds) -> str:
    """`context 8,192 works in 0.31 s; 8,192 works, 16,384 does not`."""
    ended = "works" if probe.passed else probe.outcome.text
    if not probe.is_answer:
        ended = f"is not known ({ended})"
    asked = f"{_KINDS[probe.kind]} {format_count(probe.n_ctx)}"
    return f"{asked} {ended} in {format_number(probe.seconds, 2)} s; {_ends_text(probe.kind, ends)}"


def _ends_text(kind: ProbeKind, ends: BracketEnds) -> str:
    """Once a decode has failed, a context that was made counts for nothing until one is decoded in."""
    none = {"decode": "none proven yet"}.get(kind, "none known to work")
    works = none if ends.passed is None else f"{format_count(ends.passed)} works"
    return works if ends.failed is None else f"{works}, {format_count(ends.failed)} does not"
