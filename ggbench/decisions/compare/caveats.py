"""Why numbers of a comparison should not be trusted, or do not measure the same thing, a line for each reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from ggbench.decisions.compared_metrics import decoded_lengths, scored_base, scored_text
from ggbench.engines.endings import Outcome
from ggbench.models.subject import Subject
from ggbench.runs.summary import QuantSummary
from ggbench.show.names import model_name
from ggbench.show.plot.palette import letter
from ggbench.text import in_words, plain


def caveats(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Return runs that did not complete or were not steady, then numbers of different things."""
    return (*_reliability(summaries), *_different_things(summaries))


def vary(value: Callable[[QuantSummary], object], summaries: Sequence[QuantSummary]) -> bool:
    """Return whether what is known of a value is not the same for all."""
    return len({value(summary) for summary in summaries} - {None}) > 1


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


def _different_things(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """Numbers that do not measure the same thing."""
    lines = []
    if any(_are_other_models(*pair) for pair in combinations([summary.subject for summary in summaries], 2)):
        lines.append("different models: less memory or a lower B may only mean a smaller model")
    if vary(decoded_lengths, summaries):
        lines.append("different lengths: p50, p99 and tok/s are over different positions")
    texts = [text for text in map(scored_text, summaries) if text]
    if other := [what for what in (texts or [{}])[0] if len({text[what] for text in texts}) > 1]:
        lines.append(f"different {in_words(other)}: perplexities do not compare, nor does what follows from them")
    elif vary(scored_base, summaries):
        lines.append("different bases: KLD and same top tokens do not compare")
    if vary(lambda summary: summary.memory.n_ctx, summaries):
        lines.append("different n_ctx: memory counts KV caches of different lengths")
    return tuple(lines)


def _are_other_models(one: Subject, other: Subject) -> bool:
    """By architecture and shape, or where no header says them, by name."""
    differ = one.has_other_shape(other)
    return model_name(one) != model_name(other) if differ is None else differ
