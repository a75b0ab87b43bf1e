"""What a comparison says in one or two sentences: which run is better in what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ggbench.decisions.compare.comparison import NO_DIFFERENCE, Better, ComparedLine, Comparison, Tied
from ggbench.show import letter
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
