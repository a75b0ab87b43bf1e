"""Texts that a model continues with and without drafts, and what their steps accepted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

from ggbench.engines.contract import PROMPT
from ggbench.engines.events import Continued, TextDrafted
from ggbench.experiments.speculate.record import AnsweredText, DraftedText, SpeculationCase
from ggbench.models.targets import Target
from ggbench.stats.intervals import geometric_mean
from ggbench.text import shorten
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


def answers_of(name: str, number: int, k: int, found: TextDrafted) -> tuple[AnsweredText, AnsweredText]:
    """Return a text that ggbench's own engine generated without drafts and with, as two answers."""
    accepted, at = found.accepted, found.first_difference
    n_steps, n_accepted = len(accepted), sum(accepted)
    plain = Continued("", found.n_tokens + 1, found.plain_ns)
    accepted_at = tuple(sum(each > position for each in accepted) for position in range(k))
    drafted = Continued("", n_steps + n_accepted + 1, found.drafted_ns, k * n_steps, n_accepted, n_steps, accepted_at)
    difference = "" if at is None else f"from token {format_count(at + 2)} of {format_count(plain.n_tokens)} on"
    return AnsweredText(name, number, k, False, plain), AnsweredText(name, number, k, True, drafted, difference)


def answered_texts(answers: Sequence[AnsweredText], cases: Sequence[SpeculationCase]) -> Iterator[DraftedText]:
    """Yield each text that was continued without drafts and with in at least two rounds.

    `cases` are those at the smallest depth; none of a server.
    """
    by_place = {(each.name, each.is_drafted, each.round): each for each in answers}
    for name in dict.fromkeys(each.name for each in answers):
        numbers = sorted(
            n for at, is_drafted, n in by_place if at == name and is_drafted and (at, False, n) in by_place
        )
        if len(numbers) < 2:
            continue
        plain, drafted = ([by_place[name, which, n] for n in numbers] for which in (False, True))
        last, found = drafted[-1], [each.answer for each in drafted]
        n_drafted, n_accepted = sum(each.n_drafted for each in found), sum(each.n_accepted for each in found)
        n_tokens = sum(each.n_tokens - 1 for each in found)
        mean_len = n_tokens / max(1, n_tokens - n_accepted)
        step = next((each.step for each in cases if each.k == last.k), None)
        accepted_at = [sum(counts) for counts in zip_longest(*(each.accepted_at for each in found), fillvalue=0)]
        yield DraftedText(
            name,
            last.k,
            plain[-1].answer.n_tokens,
            plain_tok_s=statistics.median(each.tok_s for each in plain),
            drafted_tok_s=statistics.median(each.tok_s for each in drafted),
            gain=geometric_mean([on.tok_s / off.tok_s for off, on in zip(plain, drafted, strict=True)]),
            expected_gain=None if step is None else step.speedup(mean_len).value,
            mean_len=mean_len,
            acceptance=_shares([sum(each.n_steps or 0 for each in found), *accepted_at]),
            difference=last.difference or _difference(plain[-1].answer.text, last.answer.text),
            accepted_share=n_accepted / n_drafted if n_drafted else None,
        )


def _shares(reached: Sequence[int]) -> tuple[float, ...]:
    """Return the share of steps that reached each position of those that reached the one before."""
    return tuple(after / before for before, after in pairwise(reached) if before)


def _difference(plain: str, drafted: str) -> str:
    """Return the first difference of two texts; empty for equal ones."""
    if plain == drafted:
        return ""
    differing = (at for at, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b)
    n_equal = next(differing, min(len(plain), len(drafted)))
    begin = max(plain.rfind(" ", 0, n_equal), plain.rfind("\n", 0, n_equal)) + 1
    without, with_drafts = (repr(shorten(text[begin : begin + 40], 24)) for text in (plain, drafted))
    return f"at character {n_equal + 1}: {with_drafts} instead of {without}"
