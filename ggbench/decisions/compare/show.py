"""What a comparison says, for every output: its JSON, and one or two sentences on which run is better in what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from ggbench.decisions.compare.comparison import NO_DIFFERENCE, Better, ComparedLine, Comparison, Tied, Versus
from ggbench.decisions.compare.limits import LimitCheck
from ggbench.runs.summary import QuantSummary
from ggbench.show import letter
from ggbench.show.depths import reach_of
from ggbench.show.documents import summary_document
from ggbench.stats.intervals import Interval
from ggbench.text import in_words
from ggbench.units import format_number

_T = TypeVar("_T")
_HOW = {False: f"show {NO_DIFFERENCE}", True: "are equal"}
"""Of a tie, by whether the values are exact."""


def sentence_of(comparison: Comparison) -> str:
    """Return the sentences, with the runs' names. Printable.

    `q4_0 is better in speed (1.32 ±0.04 times) and memory (48.9 MiB less). They show no difference in W and B.`
    """
    names = comparison.names
    if comparison.is_empty:
        return f"{in_words(names)} have nothing in common that can be compared."
    lines = comparison.stated
    wins = _wins(names, lines)
    both = "They" if wins else in_words(names)
    ties = "; ".join(_ties(names, lines, both if len(names) == 2 else f"The {len(names)} runs"))
    sentences = [wins, ties]
    if not wins and not ties:
        sentences = [f"There is no verdict on {in_words([line.topic for line in lines if line.reasons])}"]
    if unsteady := [names[index] for index in comparison.unsteady]:
        sentences.append(f"{in_words(unsteady)} {'was' if len(unsteady) == 1 else 'were'} not steady: measure again")
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def spread_sentence(comparison: Comparison) -> str:
    """Return by how much repeats differ, which verdicts include; empty where nothing was timed. Printable."""
    learned: dict[str, float] = {}
    assumed, n_repeats = 0.0, 0
    for line in comparison.stated:
        for spread in filter(None, line.spreads):
            if spread.n_repeats:
                learned[line.topic] = max(learned.get(line.topic, 0.0), spread.sigma)
                n_repeats = max(n_repeats, spread.n_repeats)
            else:
                assumed = max(assumed, spread.sigma)
    texts = [f"{format_number(sigma * 100, 2)} % in {topic}" for topic, sigma in learned.items()]
    if texts:
        known = f"repeats of a run differ by {in_words(texts)} (standard deviation, {_repeats(n_repeats)})"
    elif assumed:
        percent = format_number(assumed * 100, 2)
        known = f"repeats of a run are taken to differ by {percent} %, as none is stored: measure again to learn it"
    else:
        return ""
    return f"Verdicts include what another load of the model changes: {known}."


def _repeats(count: int) -> str:
    return "from one stored repeat" if count == 1 else f"from up to {count} stored repeats"


def versus_sentences(comparison: Comparison) -> tuple[str, ...]:
    """Return what each further run is beside the first, where there are three or more. Printable."""
    count = len(comparison.names)
    return tuple(_beside_first(comparison, index) for index in range(1, count)) if count > 2 else ()


def _beside_first(comparison: Comparison, index: int) -> str:
    """`b beside a: speed 0.71 ±0.03 times, memory 1.20 times; no difference in W and B.`"""
    apart, same = [], []
    for line in comparison.stated:
        found = line.versus[index]
        if found is None:
            continue
        if found.is_different:
            apart.append(f"{line.topic} {found.text}".rstrip() if found.text else f"{line.topic} differs")
        else:
            same.append(line.topic)
    parts = [", ".join(apart), f"{NO_DIFFERENCE} in {in_words(same)}" if same else ""]
    said = "; ".join(filter(None, parts)) or "nothing compares"
    return f"{letter(index)} beside {letter(0)}: {said}."


def _wins(names: Sequence[str], lines: Sequence[ComparedLine]) -> str:
    """`q4_0 is better in speed (1.32 ±0.04 times); q8_0 in W (1.20 ±0.02 times)`; empty where no run is better."""
    word = "better" if len(names) == 2 else "best"
    by_run: dict[int, list[str]] = {}
    for line, won in _decided(lines, Better):
        over = "" if len(names) == 2 else f" {'than ' if won.is_exact else ''}{names[won.over]}"
        gain = f" ({won.gain}{over})" if won.gain else ""
        by_run.setdefault(won.run, []).append(f"{line.topic}{gain}")
    parts = [
        f"{names[index]} {'' if number else f'is {word} '}in {in_words(topics)}"
        for number, (index, topics) in enumerate(by_run.items())
    ]
    return "; ".join(parts)


def _ties(names: Sequence[str], lines: Sequence[ComparedLine], who: str) -> list[str]:
    """Where runs are equal or not distinguished."""
    parts: list[str] = []
    ties = _decided(lines, Tied)
    for is_exact, how in _HOW.items():
        topics: dict[tuple[int, ...], list[str]] = {}
        for line, tied in ties:
            if tied.is_exact is is_exact and not tied.behind:
                topics.setdefault(tied.runs, []).append(line.topic)
        for compared, some in topics.items():
            everyone = "they" if parts else who
            parts.append(
                f"{everyone if len(compared) == len(names) else _named(names, compared)} {how} in {in_words(some)}"
            )
    for line, tied in ties:
        if tied.behind:
            fall = f"{_named(names, tied.behind)} fall{'s' if len(tied.behind) == 1 else ''} behind"
            parts.append(f"{_named(names, tied.runs)} {_HOW[tied.is_exact]} in {line.topic}, where {fall}")
    return parts


def _named(names: Sequence[str], runs: Sequence[int]) -> str:
    return in_words([names[index] for index in runs])


def _decided(lines: Sequence[ComparedLine], kind: type[_T]) -> list[tuple[ComparedLine, _T]]:
    return [(line, reason) for line in lines for reason in line.reasons if isinstance(reason, kind)]


def comparison_document(
    comparison: Comparison, summaries: Sequence[QuantSummary], checks: Sequence[LimitCheck] = ()
) -> dict[str, object]:
    """The fields of `ggbench.compare/1`; runs are called by their numbers, metrics by the names of the rows' fields.

    `versus` has each further run beside the first, in their order, by letters, as runs of files have no number.
    """
    rows = zip(comparison.names, summaries, strict=True)
    return {
        "rows": [
            {"name": name, "letter": letter(index), "kind": summary.run.head.kind} | summary_document(summary)
            for index, (name, summary) in enumerate(rows)
        ],
        "metrics": [_metric(line, comparison) for line in comparison.lines],
        "depths": [_depth(line, comparison, summaries) for line in comparison.depths],
        "differences": {each.topic: each.lines for each in comparison.differences},
        "warnings": comparison.warnings,
        "sentence": sentence_of(comparison),
        "checks": [_check(check, comparison) for check in checks],
    }


def _metric(line: ComparedLine, comparison: Comparison) -> dict[str, object]:
    run_ids, won = comparison.run_ids, next((each for each in line.reasons if isinstance(each, Better)), None)
    spreads = [each for each in line.spreads if each is not None]
    return {
        "metric": line.key,
        "compared": [run_ids[index] for index in line.compared],
        "better": [run_id for run_id, is_better in zip(run_ids, line.better, strict=True) if is_better],
        "over": won and run_ids[won.over],
        "ratio": won and won.ratio,
        "ratio_ci95": won and _finite(won.ratio_ci95),
        "verdict": line.verdict or None,
        "versus": [_versus(index, found) for index, found in enumerate(line.versus) if found is not None and index],
        "load_spread": max((each.sigma for each in spreads), default=None),
        "n_repeats": min((each.n_repeats for each in spreads), default=None),
    }


def _versus(index: int, found: Versus) -> dict[str, object]:
    return {
        "letter": letter(index),
        "ratio": found.ratio,
        "ratio_ci95": _finite(found.ratio_ci95),
        "difference": found.difference,
        "difference_ci95": _finite(found.difference_ci95),
        "is_different": found.is_different,
    }


def _depth(line: ComparedLine, comparison: Comparison, summaries: Sequence[QuantSummary]) -> dict[str, object]:
    depth = int(line.key.removeprefix("tok_s_d"))
    reaches = list(map(reach_of, summaries))
    beyond = [letter(index) for index, reach in enumerate(reaches) if reach is not None and depth >= reach]
    return {"n_depth": depth, "texts": line.texts, "extrapolated": beyond} | _metric(line, comparison)


def _check(check: LimitCheck, comparison: Comparison) -> dict[str, object]:
    return {
        "limit": check.option,
        "share": check.share,
        "letter": letter(check.run),
        "metric": check.key,
        "state": check.state,
        "worse_by": check.worse_by,
        "worse_by_ci95": _finite(check.worse_by_ci95),
        "repeats_needed": check.repeats_needed,
        "message": check.message(comparison),
    }


def _finite(ends: Interval | None) -> tuple[float | None, float | None] | None:
    """JSON has no infinity; an open end is null."""
    if ends is None:
        return None
    low, high = (end if math.isfinite(end) else None for end in ends)
    return low, high
