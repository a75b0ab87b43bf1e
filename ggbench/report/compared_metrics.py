"""What runs are compared by: the value of each metric, its interval, which way is better, and when it is not compared.

A bound is no interval: two values that are both below 20 may be any distance apart, so bounds are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ggbench.records.decode import DecodeSettings
from ggbench.records.outcome import Outcome
from ggbench.records.quality import Estimate
from ggbench.records.speed import PrefillSpeed
from ggbench.records.speed_cases import Case
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS, reader, tok_s_text
from ggbench.stats.intervals import Interval
from ggbench.units import format_bytes, format_count, format_number

NO_INTERVAL = "without an interval"
_BOUND = "only a bound"
_OTHER_LENGTHS = "different lengths"
_OTHER_TEXTS = "different texts or chunks"
_OTHER_BASES = "different texts, chunks or bases"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is compared, and which way is better."""

    key: str
    header: str
    unit: str
    text: Callable[[QuantSummary], str]
    more_is_better: bool
    value: Callable[[QuantSummary], float | None]
    interval: Callable[[QuantSummary], Interval | None] | None = None
    """None where a run gives a value without an interval."""
    left_out: Callable[[QuantSummary], str] = lambda summary: NO_INTERVAL
    """Why a run that shows a value but has no interval is not compared."""
    topic: str = ""
    """What a sentence calls it; empty for what follows from another metric."""
    difference: Callable[[float], str] | None = None
    """The text of a difference, where the values are exact; None for an estimate, which has a ratio."""
    basis: Callable[[QuantSummary], object] = lambda summary: None
    """What has to be the same in all runs for their values to mean the same."""
    other_basis: str = ""
    """The verdict where it differs."""
    paired: Callable[[QuantSummary, QuantSummary], Interval | None] | None = None
    """The interval of the ratio of two runs' values that vary together; None where runs are independent, and from it
    where the two cannot be paired.
    """

    @property
    def is_exact(self) -> bool:
        """Whether its intervals are single values."""
        return self.difference is not None


def metrics_of(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return what these runs are compared by, with the prompts and cases that several have and any largest context."""
    lengths = [prefill.n_prompt for summary in summaries for prefill in summary.prefills if not prefill.n_depth]
    cases = [found.case for summary in summaries for found in summary.cases if found.tok_s_qwen2_5 is not None]
    searched = any(summary.max_n_ctx is not None for summary in summaries)
    return (
        *_METRICS,
        *(_prefill(length) for length in sorted(set(lengths)) if lengths.count(length) > 1),
        *(_case(case) for case in sorted(set(cases)) if cases.count(case) > 1),
        *((_MAX_N_CTX,) if searched else ()),
        *(_QUALITY if any(summary.quality is not None for summary in summaries) else ()),
    )


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
    return summary.decode and (summary.decode.n_gen, summary.decode.n_prompt, depths)


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
        "n_batch": summary.llama and summary.llama.n_batch,
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
    from ggbench.stats.quality import paired_difference

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

    return _column(key, interval=ends, **more)


def _column(key: str, **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types
    column = COLUMNS[key]

    def value(summary: QuantSummary) -> float | None:
        known = column.value(summary)
        return known if isinstance(known, int | float) else None

    return Metric(key, column.header, column.unit, column.text, value=value, **more)


def _estimate(metric: Metric, ends: Callable[[QuantSummary], tuple[float, float | None] | None]) -> Metric:
    """The metric with its interval; what has no upper end, or no value, is only a bound."""

    def interval(summary: QuantSummary) -> Interval | None:
        found = ends(summary)
        if metric.value(summary) is None or found is None or found[1] is None:
            return None
        return found[0], found[1]

    return replace(metric, interval=interval, left_out=lambda summary: _BOUND if ends(summary) else NO_INTERVAL)


def _derived(key: str, base: Metric, *, inverse: bool = False, more_is_better: bool) -> Metric:
    """A metric proportional to another, or to its inverse, whose interval follows."""
    column = _column(key, more_is_better=more_is_better)

    def interval(summary: QuantSummary) -> Interval | None:
        ends, of, value = base.interval and base.interval(summary), base.value(summary), column.value(summary)
        if not ends or not of or value is None:
            return None
        if inverse:
            low, high = (value * of / end if end else math.inf for end in reversed(ends))
        else:
            low, high = (value * end / of for end in ends)
        return low, high

    return replace(column, interval=interval)


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
    )
    return _estimate(metric, lambda summary: found.tok_s_ci95 if (found := speed(summary)) else None)


def _case(case: Case) -> Metric:
    """Tokens/s of one input length and batch size; the prefill is timed once, so it has no interval."""

    def tok_s(summary: QuantSummary) -> float | None:
        return next((found.tok_s_qwen2_5 for found in summary.cases if found.case == case), None)

    name = case.name
    return Metric(
        f"tok_s_i{case.n_input}_b{case.n_seqs}",
        name,
        "tok/s",
        text=lambda summary: format_number(tok_s(summary)),
        more_is_better=True,
        value=tok_s,
        topic=name,
    )


_SPEED = _estimate(
    _column("tok_s", more_is_better=True, topic="speed", basis=decoded_lengths, other_basis=_OTHER_LENGTHS),
    reader("latency.tok_s_ci95"),
)
_W = _estimate(_column("w_tokens_per_ms", more_is_better=True, topic="W"), reader("fit.w_ci95"))
_B = _estimate(_column("b_ms", more_is_better=False, topic="B"), reader("fit.b_ci95"))
_MEMORY = Metric(
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
)
_METRICS = (
    _SPEED,
    _W,
    _derived("w_ratio", _W, more_is_better=True),
    _B,
    _derived("b_ratio", _B, inverse=True, more_is_better=True),
    _derived("b_w16_ms", _B, more_is_better=False),
    _MEMORY,
    *(
        _column(key, more_is_better=False, basis=decoded_lengths, other_basis=_OTHER_LENGTHS)
        for key in ("p50_ms", "p99_ms")
    ),
)
_QUALITY = (
    _scored(
        "ppl", "quality.ppl", more_is_better=False, topic="PPL", paired=_ppl_ratio, basis=_scored_chunks,
        other_basis=_OTHER_TEXTS,
    ),
    _scored(
        "kld_mean", "quality.divergence.kld", more_is_better=False, topic="KLD", basis=_compared_chunks,
        other_basis=_OTHER_BASES,
    ),
    _scored(
        "same_top", "quality.divergence.same_top", more_is_better=True, topic="same top tokens",
        basis=_compared_chunks, other_basis=_OTHER_BASES,
    ),
)  # fmt: skip
_MAX_N_CTX = _column(
    "max_n_ctx",
    more_is_better=True,
    interval=_max_n_ctx_interval,
    left_out=lambda summary: "not proven",
    topic="max n_ctx",
    difference=lambda n_tokens: f"{format_count(round(n_tokens))} more",
)
