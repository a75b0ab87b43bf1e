"""Measured runs side by side: which is better in what and by how much, and what else differs between them.

A number from one run is an estimate. So a run is called better only where its interval lies wholly beyond the other's;
where there is no interval, the largest or the smallest is named without a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ggbench.plain import in_words, plain
from ggbench.records.outcome import Outcome
from ggbench.records.subject import Subject
from ggbench.records.summary import QuantSummary
from ggbench.report import UNKNOWN
from ggbench.report.compared_metrics import (
    NO_INTERVAL,
    Metric,
    decoded_lengths,
    metrics_of,
    scored_base,
    scored_text,
)
from ggbench.report.differences import Differences, differences_of, letters
from ggbench.report.names import model_name, unambiguous_names
from ggbench.report.plot.palette import letter
from ggbench.stats.intervals import Beats, Interval, better, leader, ratio_interval, unbeaten
from ggbench.units import format_number, format_ratio


@dataclass(frozen=True, slots=True)
class Lead:
    """How far one run is ahead of the next best."""

    over: int
    """Index of the next best."""
    ratio: float | None
    """Its value over that of the next best; None where that is zero."""
    ratio_ci95: Interval | None
    """None where the values are exact, and without a ratio."""
    text: str
    """`1.32 ±0.04 times`, `48.9 MiB less`; empty without a ratio."""


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """One metric of every run."""

    key: str
    header: str
    unit: str
    """Empty where the texts carry their own."""
    topic: str
    """What a sentence calls it; empty for what follows from another metric."""
    texts: tuple[str, ...]
    """One for each run, an em dash where it is unknown."""
    compared: tuple[int, ...]
    """Indices of the runs whose values can be compared, with or without an interval."""
    better: tuple[bool, ...]
    """Whether a run is better than another, and none is better than it."""
    unbeaten: tuple[int, ...]
    """Indices of the runs that none is better than; empty where there are no intervals."""
    is_exact: bool
    lead: Lead | None
    """Of the one run that is better than all others; None where there is none."""
    verdict: str
    """The same in words, with the runs' letters; empty where fewer than two are known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side."""

    names: tuple[str, ...]
    """The shortest form that distinguishes all of them. Printable."""
    run_ids: tuple[int | None, ...]
    lines: tuple[ComparedLine, ...]
    differences: tuple[Differences, ...]
    warnings: tuple[str, ...]
    """Why a number should not be trusted or compared, a line for each reason."""
    unsteady: tuple[int, ...]
    """Indices of the runs whose machine was not steady."""

    @property
    def is_empty(self) -> bool:
        """Whether no metric of one run can be compared with that of another."""
        return all(len(line.compared) < 2 for line in self.lines)


def compare_quants(summaries: Sequence[QuantSummary]) -> Comparison:
    """Compare two runs or more; the n-th is called by the n-th letter, as in a plot."""
    return Comparison(
        names=unambiguous_names(summaries),
        run_ids=tuple(summary.run.run_id for summary in summaries),
        lines=tuple(_compared(metric, summaries) for metric in metrics_of(summaries)),
        differences=differences_of(summaries),
        warnings=(*_reliability(summaries), *_caveats(summaries)),
        unsteady=tuple(index for index, summary in enumerate(summaries) if summary.unsteady),
    )


def _compared(metric: Metric, summaries: Sequence[QuantSummary]) -> ComparedLine:
    texts = tuple(map(metric.text, summaries))
    values = [metric.value(summary) for summary in summaries]
    has_one_basis = not _vary(metric.basis, summaries)
    intervals = [metric.interval(summary) if metric.interval and has_one_basis else None for summary in summaries]
    reasons = [
        metric.left_out(summary) if interval is None and text != UNKNOWN else ""
        for summary, interval, text in zip(summaries, intervals, texts, strict=True)
    ]
    has_intervals = any(intervals) or not {NO_INTERVAL, ""}.issuperset(reasons)
    known = (intervals if has_intervals else values) if has_one_basis else []
    compared = tuple(index for index, each in enumerate(known) if each is not None)
    more, beats = metric.more_is_better, _paired(metric, summaries)
    at_the_top = unbeaten(intervals, more_is_better=more, beats=beats)
    best = tuple(index for index, is_best in enumerate(at_the_top) if is_best)
    lead = _lead(metric, best[0], summaries, values, intervals) if len(best) == 1 < len(compared) else None
    if sum(text != UNKNOWN for text in texts) < 2:
        verdict = ""
    elif not has_one_basis:
        verdict = metric.other_basis
    elif has_intervals:
        verdict = _verdict(compared, best, lead, reasons, is_exact=metric.is_exact)
    else:
        verdict = _without_interval(values, more_is_better=metric.more_is_better)
    return ComparedLine(
        key=metric.key,
        header=metric.header,
        unit=metric.unit,
        topic=metric.topic,
        texts=texts,
        compared=compared,
        better=better(intervals, more_is_better=more, beats=beats),
        unbeaten=best,
        is_exact=metric.is_exact,
        lead=lead,
        verdict=verdict,
    )


def _paired(metric: Metric, summaries: Sequence[QuantSummary]) -> Beats | None:
    """Whether the ratio of two values excludes 1, where they are paired; None where they are independent."""
    ratio_of = metric.paired
    if ratio_of is None:
        return None

    def beats(one: int, other: int) -> bool:
        found = ratio_of(summaries[one], summaries[other])
        return found is not None and (found[0] > 1 if metric.more_is_better else found[1] < 1)

    return beats


def _lead(
    metric: Metric,
    index: int,
    summaries: Sequence[QuantSummary],
    values: Sequence[float | None],
    intervals: Sequence[Interval | None],
) -> Lead | None:
    known = [
        (value, other)
        for other, (value, interval) in enumerate(zip(values, intervals, strict=True))
        if value is not None and interval is not None and other != index
    ]
    value, interval = values[index], intervals[index]
    if value is None or interval is None or not known:
        return None
    next_value, over = (max if metric.more_is_better else min)(known)
    next_interval = intervals[over]
    ratio = value / next_value if next_value else None
    if metric.difference is not None:
        return Lead(over, ratio, None, metric.difference(abs(value - next_value)))
    if ratio is None or ratio <= 0 or next_interval is None:
        return Lead(over, None, None, "")
    paired = None if metric.paired is None else metric.paired(summaries[index], summaries[over])
    low, high = paired or ratio_interval(value, interval, next_value, next_interval)
    return Lead(over, ratio, (low, high), f"{format_ratio(ratio, low, high)} times")


def _verdict(
    compared: Sequence[int], best: Sequence[int], lead: Lead | None, left_out: Sequence[str], *, is_exact: bool
) -> str:
    """In words; a run that is left out though it shows a value is named with its reason."""
    parts, tied = [], "the same" if is_exact else "cannot be distinguished"
    behind = [index for index in compared if index not in best]
    if lead is not None:
        word, over = ("better", "") if len(compared) == 2 else ("best", f" {letter(lead.over)}")
        gain = f": {lead.text}{f' than{over}' if is_exact and over else over}" if lead.text else ""
        parts.append(f"{letter(best[0])} is {word}{gain}")
    elif behind:
        parts.append(f"{letters(best)} {tied}; {letters(behind)} {'is' if len(behind) == 1 else 'are'} worse")
    elif len(compared) > 1:
        parts.append(tied)
    indices = {reason: [index for index, each in enumerate(left_out) if each == reason] for reason in left_out}
    parts.extend(f"{letters(indices[reason])} {reason}" for reason in indices if reason)
    return "; ".join(parts)


def _without_interval(values: Sequence[float | None], *, more_is_better: bool) -> str:
    lead = leader(values, more_is_better=more_is_better)
    if lead is None:
        return ""
    if not lead.share:
        return "the same"
    direction = "higher" if more_is_better else "lower"
    return f"{letter(lead.index)} is {format_number(lead.share * 100, 2)} % {direction}; no interval"


def _reliability(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Runs that did not complete, or whose machine was not steady."""
    lines = []
    for index, summary in enumerate(summaries):
        if summary.outcome is not Outcome.COMPLETED:
            reason = plain(summary.run.reason)
            lines.append(f"{letter(index)} did not complete: {reason or summary.outcome.text}")
        elif summary.unsteady:
            lines.append(f"{letter(index)} was not steady: {plain(summary.unsteady)}")
    return tuple(lines)


def _caveats(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Numbers that do not measure the same thing."""
    lines = []
    if any(_are_other_models(*pair) for pair in combinations([summary.subject for summary in summaries], 2)):
        lines.append("different models: less memory or a lower B may only mean a smaller model")
    if _vary(decoded_lengths, summaries):
        lines.append("different lengths: p50, p99 and tok/s are over different positions")
    texts = [text for text in map(scored_text, summaries) if text]
    if other := [what for what in (texts or [{}])[0] if len({text[what] for text in texts}) > 1]:
        lines.append(f"different {in_words(other)}: perplexities do not compare, nor does what follows from them")
    elif _vary(scored_base, summaries):
        lines.append("different bases: KLD and same top tokens do not compare")
    if _vary(lambda summary: summary.memory.n_ctx, summaries):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return tuple(lines)


def _are_other_models(one: Subject, other: Subject) -> bool:
    """By architecture and shape, or where no header says them, by name."""
    differ = one.has_other_shape(other)
    return model_name(one) != model_name(other) if differ is None else differ


def _vary(value: Callable[[QuantSummary], object], summaries: Sequence[QuantSummary]) -> bool:
    return len({value(summary) for summary in summaries} - {None}) > 1
