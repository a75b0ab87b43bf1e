"""What speed runs are compared by: the cases that several have, and W and B of their batch sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.experiments.speed.record import BatchLine, Case, SpeedCase, SpeedResult
from ggbench.runs.summary import QuantSummary
from ggbench.show.metric import MEMORY, B, Metric, W, estimated
from ggbench.show.text import b_text, w_text
from ggbench.units import format_interval, format_number


def cases_of(summary: QuantSummary) -> tuple[SpeedCase, ...]:
    """Return the cases that ended, by input length and batch size."""
    found = summary.result(SpeedResult)
    return found.cases if found else ()


def speed_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return the speed of the cases that several have, and W and B of their batch sizes."""
    cases = [found.case for summary in summaries for found in cases_of(summary) if found.tok_s_qwen2_5 is not None]
    batches = {case.n_seqs for case in cases}
    return (
        *(each for case in sorted(set(cases)) if cases.count(case) > 1 for each in (_case(case), _case_decode(case))),
        *(each for n_seqs in sorted(batches) for each in _batch_line(n_seqs)),
        MEMORY,
    )


def _case(case: Case) -> Metric:
    """Tokens/s of one input length and batch size; the prefill is timed once, so it has no interval of its own."""

    def tok_s(summary: QuantSummary) -> float | None:
        found = _found_case(summary, case)
        return None if found is None else found.tok_s_qwen2_5

    return Metric(
        f"tok_s_i{case.n_input}_b{case.n_seqs}",
        case.name,
        "tok/s",
        text=lambda summary: format_number(tok_s(summary)),
        more_is_better=True,
        value=tok_s,
        topic=case.name,
        is_timed=True,
        concern="speed",
    )


def _case_decode(case: Case) -> Metric:
    """Tokens/s of the decode alone, over all sequences; its steps say how far it is known."""

    def tok_s(summary: QuantSummary) -> float | None:
        found = _found_case(summary, case)
        return None if found is None else found.decode_tok_s

    def ends(summary: QuantSummary) -> tuple[float, float | None] | None:
        found = _found_case(summary, case)
        if found is None or found.latency is None or found.latency.tok_s_ci95 is None:
            return None
        low, high = found.latency.tok_s_ci95
        return low * case.n_seqs, None if high is None else high * case.n_seqs

    def text(summary: QuantSummary) -> str:
        value, found = tok_s(summary), ends(summary)
        return format_number(value) if value is None or not found or not found[1] else _interval(value, *found)

    name = f"decode after {case.name}"
    metric = Metric(
        f"decode_tok_s_i{case.n_input}_b{case.n_seqs}",
        name,
        "tok/s",
        text=text,
        more_is_better=True,
        value=tok_s,
        topic=name,
        is_timed=True,
        concern="speed",
    )
    return estimated(metric, ends)


def _interval(value: float, low: float, high: float | None) -> str:
    return format_interval(value, low, math.inf if high is None else high)


def _found_case(summary: QuantSummary, case: Case) -> SpeedCase | None:
    return next((found for found in cases_of(summary) if found.case == case), None)


def _batch_line(n_seqs: int) -> tuple[Metric, ...]:
    """W and B of one batch size; those of one sequence are a decode's."""

    def line(summary: QuantSummary) -> BatchLine | None:
        found = summary.result(SpeedResult)
        return next((each for each in found.lines if each.n_seqs == n_seqs), None) if found else None

    def fit(name: str) -> Callable[[QuantSummary], Any]:
        return lambda summary: getattr(found.fit, name) if (found := line(summary)) and found.fit else None

    more = "" if n_seqs == 1 else f", batch {n_seqs}"
    key = "" if n_seqs == 1 else f"_b{n_seqs}"
    return tuple(
        estimated(
            replace(
                metric,
                key=f"{metric.key}{key}",
                header=f"{metric.header}{more}",
                topic=f"{metric.topic}{more}",
                value=fit(name),
                text=lambda summary, form=form: form(found.fit if (found := line(summary)) else None),
            ),
            fit(ends),
        )
        for metric, name, ends, form in ((W, "w_tokens_per_ms", "w_ci95", w_text), (B, "b_ms", "b_ci95", b_text))
    )
