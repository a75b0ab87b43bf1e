"""Texts that a model continues with and without drafts, and what their steps accepted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from ggbench.engines.contract import PROMPT
from ggbench.engines.events import Continued, TextDrafted
from ggbench.experiments.speculate.record import AnsweredText, DraftedText
from ggbench.models.targets import Target
from ggbench.stats.intervals import geometric_mean

_NOTES = (
    "The library of the town stood beside the river for a hundred and twenty years. In the spring of the flood the "
    "water rose to the second shelf of the ground floor, and the volunteers carried four thousand books up the "
    "stairs in one night. The council then asked two engineers what a new building would cost, and one of them said "
    "that the old one could be raised: its walls stand on oak piles, and forty jacks would lift it by the height of "
    "a person within three weeks. The other wanted to build on the hill, where no flood comes, but also no bus. The "
    "readers were asked; of every ten, seven wanted to stay by the river. So the house was lifted in the autumn, "
    "four centimetres a day, while the reading room stayed open, and nobody noticed more than that the doors were "
    "stiff. The work cost a third of what a new building would have cost, and the cellar, which had always been "
    "wet, is now a hall for concerts. Two years later the river rose again, and the water passed below the floor.\n\n"
)
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
    "tool call": (
        "Answer with one call as JSON.\n"
        'Tool: {"name": "find_trains", "parameters": {"from": "string", "to": "string", "date": "YYYY-MM-DD", '
        '"passengers": "integer"}}\n\n'
        "User: Two of us go from Bern to Basel on 3 May 2027.\n"
        'Call: {"name": "find_trains", "arguments": {"from": "Bern", "to": "Basel", "date": "2027-05-03", '
        '"passengers": 2}}\n\n'
        "User: I need a train from Geneva to Lausanne on 9 May 2027, and then four of us go on to Zurich.\n"
        'Call: {"name": "find_trains", "arguments":'
    ),
    "summary": f"{_NOTES}The same story in three sentences:",
}
"""Beginnings by kind of text: a draft meets a different share of each."""


def is_trained(target: Target) -> bool:
    """Return whether it is a file with trained weights on this disk, also one in the Hub's cache."""
    return target.provenance in ("file", "hub") and not target.download_bytes


def answers_of(name: str, number: int, k: int, found: TextDrafted) -> tuple[AnsweredText, AnsweredText]:
    """Return a text that ggbench's own engine generated without drafts and with, as two answers."""
    n_steps, n_accepted = len(found.accepted), sum(found.accepted)
    plain = Continued(found.n_tokens + 1, found.plain_ns)
    drafted = Continued(n_steps + n_accepted + 1, found.drafted_ns, k * n_steps, n_accepted)
    return AnsweredText(name, number, k, False, plain), AnsweredText(name, number, k, True, drafted)


def answered_texts(answers: Sequence[AnsweredText]) -> Iterator[DraftedText]:
    """Yield each text that was continued without drafts and with in at least two rounds."""
    for name in dict.fromkeys(each.name for each in answers):
        of_name = [each for each in answers if each.name == name]
        plain = {each.round: each for each in of_name if not each.is_drafted}
        drafted = {each.round: each for each in of_name if each.is_drafted}
        numbers = sorted(plain.keys() & drafted.keys())
        if len(numbers) > 1:
            yield _drafted_text([plain[n] for n in numbers], [drafted[n] for n in numbers])


def _drafted_text(plain: Sequence[AnsweredText], drafted: Sequence[AnsweredText]) -> DraftedText:
    """Return a text of several rounds, in their order."""
    last, found = drafted[-1], [each.answer for each in drafted]
    n_drafted, n_accepted = sum(each.n_drafted for each in found), sum(each.n_accepted for each in found)
    n_tokens = sum(each.n_tokens - 1 for each in found)
    return DraftedText(
        last.name,
        last.k,
        plain[-1].answer.n_tokens,
        plain_tok_s=statistics.median(each.tok_s for each in plain),
        drafted_tok_s=statistics.median(each.tok_s for each in drafted),
        gain=geometric_mean([on.tok_s / off.tok_s for off, on in zip(plain, drafted, strict=True)]),
        mean_len=n_tokens / max(1, n_tokens - n_accepted),
        accepted_share=n_accepted / n_drafted if n_drafted else None,
    )
