"""A comparison in one or two sentences: which run is better in what, by how much, and where none is."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.report.comparison import ComparedLine, Comparison

_UNCLEAR = "cannot be distinguished"


def sentence_of(comparison: Comparison) -> str:
    """Return the sentences, with the runs' names. Printable.

    `q4_0 is better in speed (1.32 ±0.04 times) and memory (48.9 MiB less). They cannot be distinguished in W and B.`
    """
    names = comparison.names
    if comparison.is_empty:
        return f"{in_words(names)} have nothing in common that can be compared."
    lines = [line for line in comparison.lines if line.topic]
    wins = _wins(names, lines)
    both = "They" if wins else in_words(names)
    rest = "; ".join(_rest(names, lines, both if len(names) == 2 else f"The {len(names)} runs"))
    rest = rest[:1].upper() + rest[1:] if rest.startswith("there") else rest
    sentences = [wins, rest]
    if unsteady := [names[index] for index in comparison.unsteady]:
        sentences.append(f"{in_words(unsteady)} {'was' if len(unsteady) == 1 else 'were'} not steady: measure again")
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def in_words(parts: Sequence[str]) -> str:
    """Return a list in words: `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


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
            everyone = "they" if parts and len(names) == 2 else who
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
