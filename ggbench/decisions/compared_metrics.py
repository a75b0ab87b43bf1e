"""What each kind of run is compared by; presenters choose among these, or say their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.forecast.record import ForecastResult
from ggbench.experiments.speed.record import BatchLine, Case, SpeedCase, SpeedResult
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import b_text, reader, tok_s_text, w_text
from ggbench.show.metric import Metric, column_metric, derived, estimated
from ggbench.stats.decode_timing import PrefillSpeed
from ggbench.stats.intervals import Estimate, Expected, Interval
from ggbench.units import format_bytes, format_count, format_interval, format_number

_OTHER_LENGTHS = "different lengths"
_OTHER_TEXTS = "different texts or chunks"
_OTHER_BASES = "different texts, chunks or bases"


def decode_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return speed, W and B with what follows from them, memory, percentiles, and prompts that several have read."""
    lengths = [prefill.n_prompt for summary in summaries for prefill in summary.prefills if not prefill.n_depth]
    return (*_DECODE, *(_prefill(length) for length in sorted(set(lengths)) if lengths.count(length) > 1))


def speed_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return the speed of the cases that several have, and W and B of their batch sizes."""
    cases = [found.case for summary in summaries for found in summary.cases if found.tok_s_qwen2_5 is not None]
    batches = {case.n_seqs for case in cases}
    return (
        *(each for case in sorted(set(cases)) if cases.count(case) > 1 for each in (_case(case), _case_decode(case))),
        *(each for n_seqs in sorted(batches) for each in _batch_line(n_seqs)),
        MEMORY,
    )


def forecast_metrics() -> tuple[Metric, ...]:
    """Return W and B as they are expected, beside those that are measured."""
    return (
        _expected(_W, "w_tokens_per_ms"),
        _expected(_B, "b_ms"),
    )


def context_metrics() -> tuple[Metric, ...]:
    """Return the largest context and memory."""
    return (MEMORY, _MAX_N_CTX)


def quality_metrics() -> tuple[Metric, ...]:
    """Return perplexity, what compares with a base, and memory."""
    return (*_QUALITY, MEMORY)


def _memory_interval(summary: QuantSummary) -> Interval | None:
    """Exact; None for a run that ended early, and for a search, which takes all memory there is."""
    has_worked = bool((summary.decode and summary.decode.n_gen) or summary.prefills or summary.quality)
    is_whole = summary.outcome is Outcome.COMPLETED and has_worked
    n_bytes = summary.memory.total_bytes if is_whole else None
    return None if n_bytes is None else (n_bytes, n_bytes)


def _no_memory_to_compare(summary: QuantSummary) -> str:
    if summary.outcome is not Outcome.COMPLETED:
        return "not completed"
    return "measured in several contexts" if summary.cases else "searched for the largest n_ctx"


def _max_n_ctx_interval(summary: QuantSummary) -> Interval | None:
    """Exact where a decode proved it."""
    n_ctx = summary.max_n_ctx
    return None if n_ctx is None or not summary.max_n_ctx_verified else (n_ctx, n_ctx)


def decoded_lengths(summary: QuantSummary) -> object:
    """Tokens of prompt and of the decode, on which speed depends, and where its parts lie; None without a decode."""
    settings = summary.run.head.settings
    depths = settings.depths if isinstance(settings, DecodeSettings) else ()
    return summary.decode and (summary.n_gen, summary.decode.n_prompt, depths)


def scored_text(summary: QuantSummary) -> dict[str, object]:
    """What has to be the same for perplexities to compare, by what people call it; empty where nothing was scored."""
    found = summary.quality
    if found is None or found.ppl is None:
        return {}
    imported = summary.environment and summary.environment.imported
    unknown = imported.content_sha256 if imported else ""  # which is of this run alone
    return {
        "texts": found.scored.tokens_sha256 if found.scored else unknown,
        "chunk lengths": found.n_ctx,
        "numbers of chunks": found.n_chunks,
        "n_batch": summary.setup.n_batch,
    }


def scored_base(summary: QuantSummary) -> object:
    """What a model's probabilities were compared with; None without a base."""
    found = summary.quality
    if found is None or found.base is None:
        return None
    base = found.base
    return base.subject.header_sha256 or base.subject.file, base.subject.quant, base.type_k, base.type_v


def _scored_chunks(summary: QuantSummary) -> object:
    return tuple(scored_text(summary).values()) or None


def _compared_chunks(summary: QuantSummary) -> object:
    base = scored_base(summary)
    return None if base is None else (_scored_chunks(summary), base)


def _ppl_ratio(one: QuantSummary, other: QuantSummary) -> Interval | None:
    """Of the two perplexities, over the chunks that both scored."""
    from ggbench.experiments.quality.scores import paired_difference

    if one.quality is None or other.quality is None:
        return None
    difference = paired_difference(one.quality.chunk_nll, other.quality.chunk_nll)
    return None if difference is None else (math.exp(difference.low), math.exp(difference.high))


def _scored(key: str, path: str, **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types
    """A metric of a scored text: its interval is 1.96 standard errors to either side."""
    estimate = reader(path)

    def ends(summary: QuantSummary) -> Interval | None:
        found: Estimate | None = estimate(summary)
        return None if found is None else found.ci95

    return column_metric(key, interval=ends, **more)


def _prefill(n_prompt: int) -> Metric:
    def speed(summary: QuantSummary) -> PrefillSpeed | None:
        return next((each for each in summary.prefills if each.n_prompt == n_prompt and not each.n_depth), None)

    name = f"prefill {format_count(n_prompt)}"
    metric = Metric(
        f"prefill_{n_prompt}",
        name,
        "tok/s",
        text=lambda summary: tok_s_text(speed(summary)),
        more_is_better=True,
        value=lambda summary: found.tok_s if (found := speed(summary)) else None,
        topic=name,
        is_timed=True,
        concern="speed",
    )
    return estimated(metric, lambda summary: found.tok_s_ci95 if (found := speed(summary)) else None)


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
    return next((found for found in summary.cases if found.case == case), None)


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
        for metric, name, ends, form in ((_W, "w_tokens_per_ms", "w_ci95", w_text), (_B, "b_ms", "b_ci95", b_text))
    )


def _expected(metric: Metric, name: str) -> Metric:
    """The metric as a forecast has it."""

    def expected(summary: QuantSummary) -> Expected | None:
        found = summary.result(ForecastResult)
        return getattr(found, name) if found else None

    def text(summary: QuantSummary) -> str:
        found = expected(summary)
        return format_number(None) if found is None else format_interval(found.value, found.low, found.high)

    metric = replace(metric, text=text, value=lambda summary: found.value if (found := expected(summary)) else None)
    return estimated(
        metric,
        lambda summary: (
            (found.low, found.high if math.isfinite(found.high) else None) if (found := expected(summary)) else None
        ),
    )


_SPEED = estimated(
    column_metric(
        "tok_s",
        more_is_better=True,
        topic="speed",
        basis=decoded_lengths,
        other_basis=_OTHER_LENGTHS,
        is_timed=True,
        concern="speed",
    ),
    reader("latency.tok_s_ci95"),
)
_W = estimated(column_metric("w_tokens_per_ms", more_is_better=True, topic="W", is_timed=True), reader("fit.w_ci95"))
_B = estimated(column_metric("b_ms", more_is_better=False, topic="B", is_timed=True), reader("fit.b_ci95"))
MEMORY = Metric(
    "memory_bytes",
    header="memory",
    unit="",
    text=lambda summary: format_bytes(summary.memory.total_bytes),
    more_is_better=False,
    value=lambda summary: summary.memory.total_bytes,
    interval=_memory_interval,
    left_out=_no_memory_to_compare,
    topic="memory",
    difference=lambda n_bytes: f"{format_bytes(n_bytes)} less",
    basis=lambda summary: summary.memory.n_ctx if _memory_interval(summary) else None,
    other_basis="different n_ctx",
    concern="memory",
)
"""What all buffers take; every kind of run is compared by it."""
_DECODE = (
    _SPEED,
    _W,
    derived("w_ratio", _W, more_is_better=True),
    _B,
    derived("b_ratio", _B, inverse=True, more_is_better=True),
    derived("b_w16_ms", _B, more_is_better=False),
    MEMORY,
    *(
        column_metric(key, more_is_better=False, basis=decoded_lengths, other_basis=_OTHER_LENGTHS, is_timed=True)
        for key in ("p50_ms", "p99_ms")
    ),
)
_QUALITY = (
    _scored(
        "ppl", "quality.ppl", more_is_better=False, topic="PPL", concern="quality", paired=_ppl_ratio,
        basis=_scored_chunks, other_basis=_OTHER_TEXTS,
    ),
    _scored(
        "kld_mean", "quality.divergence.kld", more_is_better=False, topic="KLD", concern="quality",
        basis=_compared_chunks, other_basis=_OTHER_BASES,
    ),
    _scored(
        "same_top", "quality.divergence.same_top", more_is_better=True, topic="same top tokens",
        basis=_compared_chunks, other_basis=_OTHER_BASES,
    ),
)  # fmt: skip
_MAX_N_CTX = column_metric(
    "max_n_ctx",
    more_is_better=True,
    interval=_max_n_ctx_interval,
    left_out=lambda summary: "not proven",
    topic="max n_ctx",
    difference=lambda n_tokens: f"{format_count(round(n_tokens))} more",
)
