"""A search's questions and answers in words, for every live view."""

from __future__ import annotations

from ggbench.experiments.search_progress import ProbeFinished, ProbeStarted
from ggbench.records import Certificate, Outcome
from ggbench.units import format_count, format_number


def question(record: ProbeStarted) -> str:
    """`context 8,192; 4,096 works, 16,384 does not`."""
    return f"{_KINDS[record.kind]} {format_count(record.n_ctx)}; {_bracket(record.kind, record.passed, record.failed)}"


def answer(record: ProbeFinished) -> str:
    """`context 8,192 works in 0.31 s; 8,192 works, 16,384 does not`."""
    probe = record.probe
    ended = "works" if probe.passed else probe.outcome.value.replace("_", " ")
    if not probe.is_answer:
        ended = f"is not known ({ended})"
    asked = f"{_KINDS[probe.kind]} {format_count(probe.n_ctx)}"
    return (
        f"{asked} {ended} in {format_number(probe.seconds, 2)} s; {_bracket(probe.kind, record.passed, record.failed)}"
    )


def ending(certificate: Certificate) -> str:
    """`n_ctx 8,192, proven by a decode, after 3 contexts`, or why there is none."""
    if certificate.max_n_ctx is None:
        return f"{certificate.outcome.value.replace('_', ' ')}: {certificate.reason}"
    proven = "proven by a decode" if certificate.verified_by_decode else "not proven"
    made = certificate.n_allocations
    so_far = "" if certificate.outcome is Outcome.COMPLETED else "so far "
    largest = f"{so_far}n_ctx {format_count(certificate.max_n_ctx)}"
    return f"{largest}, {proven}, after {made} context{'' if made == 1 else 's'}"


_KINDS = {"dry": "dry context", "alloc": "context", "decode": "decode"}


def _bracket(kind: str, passed: int | None, failed: int | None) -> str:
    """Once a decode has failed, a context that was made counts for nothing until one is decoded in."""
    none = "none proven yet" if kind == "decode" else "none known to work"
    works = none if passed is None else f"{format_count(passed)} works"
    return works if failed is None else f"{works}, {format_count(failed)} does not"
