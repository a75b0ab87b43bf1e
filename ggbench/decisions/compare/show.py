"""What a comparison says in one or two sentences: which run is better in what."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.decisions.compare.comparison import NO_DIFFERENCE, ComparedLine, Comparison
from ggbench.show.plot.palette import letter
from ggbench.text import in_words
from ggbench.units import format_number

_UNCLEAR = f"show {NO_DIFFERENCE}"


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
    rest = "; ".join(_rest(names, lines, both if len(names) == 2 else f"The {len(names)} runs"))
    rest = rest[:1].upper() + rest[1:] if rest.startswith("there") else rest
    sentences = [wins, rest]
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
    for line in lines:
        if line.lead is not None:
            than = "than " if line.is_exact else ""
            over = "" if len(names) == 2 else f" {than}{names[line.lead.over]}"
            gain = f" ({line.lead.text}{over})" if line.lead.text else ""
            by_run.setdefault(line.unbeaten[0], []).append(f"{line.topic}{gain}")
    parts = [
        f"{names[index]} {'' if number else f'is {word} '}in {in_words(topics)}"
        for number, (index, topics) in enumerate(by_run.items())
    ]
    return "; ".join(parts)


def _rest(names: Sequence[str], lines: Sequence[ComparedLine], who: str) -> list[str]:
    """What of the metrics has no single best run: where they are equal, where not distinguished, what is left out."""
    contested = [line for line in lines if len(line.unbeaten) > 1]
    tied = [line for line in contested if len(line.unbeaten) == len(line.compared)]
    parts: list[str] = []
    for is_exact, how in ((False, _UNCLEAR), (True, "are equal")):
        topics: dict[tuple[int, ...], list[str]] = {}
        for line in tied:
            if line.is_exact is is_exact:
                topics.setdefault(line.compared, []).append(line.topic)
        for compared, some in topics.items():
            runs = in_words([names[index] for index in compared])
            everyone = "they" if parts else who
            parts.append(f"{everyone if len(compared) == len(names) else runs} {how} in {in_words(some)}")
    for line in contested:
        if line not in tied:
            behind = in_words([names[index] for index in line.compared if index not in line.unbeaten])
            best, how = in_words([names[index] for index in line.unbeaten]), "are equal" if line.is_exact else _UNCLEAR
            parts.append(
                f"{best} {how} in {line.topic}, where {behind} fall{'s' if ' and ' not in behind else ''} behind"
            )
    if open_topics := [line.topic for line in lines if line.verdict and line.lead is None and line not in contested]:
        parts.append(f"there is no verdict on {in_words(open_topics)}")
    return parts
