"""Texts that a model continues with and without its draft, and what their steps accepted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from ggbench.engines.contract import PROMPT
from ggbench.experiments.speculate.record import DraftedText, SpeculationCase, TextRound
from ggbench.models.targets import Target
from ggbench.stats.intervals import geometric_mean
from ggbench.units import format_count

_LIST = "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune. "
TEXTS = {
    "prose": PROMPT,
    "code": (
        "def median(values):\n"
        '    """Return the middle of the sorted values, or the mean of the two in the middle."""\n'
        "    ordered = sorted(values)\n"
        "    middle = len(ordered) // 2\n"
        "    if len(ordered) % 2:\n"
        "        return ordered[middle]\n"
        "    return (ordered[middle - 1] + ordered[middle]) / 2\n"
        "\n\ndef variance(values):\n"
    ),
    "repetition": f"The planets in order: {_LIST}The planets in order: {_LIST}The planets in order:",
}
"""Beginnings by kind of text: a draft meets a different share of each."""


def is_trained(target: Target) -> bool:
    """Return whether it is a file with trained weights on this disk, also one in the Hub's cache."""
    return target.provenance in ("file", "hub") and not target.download_bytes


def drafted_texts(rounds: Sequence[TextRound], cases: Sequence[SpeculationCase]) -> Iterator[DraftedText]:
    """Yield each text that was generated in at least two rounds; `cases` are those at the smallest depth."""
    for name in dict.fromkeys(each.name for each in rounds):
        found = [each for each in rounds if each.name == name]
        if len(found) < 2:
            continue
        last, accepted = found[-1], found[-1].drafted.accepted
        mean_len = statistics.fmean(accepted) + 1
        step = next((each.step for each in cases if each.k == last.k), None)
        n_drafted = sum(accepted) + len(accepted)
        yield DraftedText(
            name,
            last.k,
            last.drafted.n_tokens,
            plain_tok_s=last.drafted.n_tokens / statistics.median(each.drafted.plain_ns for each in found) * 1e9,
            drafted_tok_s=n_drafted / statistics.median(each.drafted.drafted_ns for each in found) * 1e9,
            gain=geometric_mean([each.gain for each in found]),
            expected_gain=None if step is None else step.speedup(mean_len).value,
            mean_len=mean_len,
            acceptance=tuple(_acceptance(accepted, last.k)),
            difference=_difference(last.drafted.first_difference, last.drafted.n_tokens),
        )


def _difference(at: int | None, n_tokens: int) -> str:
    return "" if at is None else f"from token {format_count(at + 1)} of {format_count(n_tokens)} on"


def _acceptance(accepted: Sequence[int], k: int) -> Iterator[float]:
    for position in range(k):
        n_tried = sum(each >= position for each in accepted)
        if not n_tried:
            return
        yield sum(each > position for each in accepted) / n_tried
