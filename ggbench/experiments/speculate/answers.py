"""Texts of several kinds that a model continues without drafts and with: what is counted, and llama-server's turns.

Each round starts the server once without drafts and once with, in the opposite order of the round before, so that a
slow drift affects both alike. Times are the server's own, of all tokens but the first, which comes with the prompt. All
answers are greedy, so a draft may not change the text; where it does, llama.cpp computed a batch otherwise than single
tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.engines.contract import PROMPT, Continue, EngineConfig
from ggbench.engines.endings import Completed, Ending, EngineEnded, only, require_completed
from ggbench.engines.events import Continued
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.record import (
    N_CTX_TEXTS,
    AnsweredText,
    DraftedPair,
    DraftedText,
    SpeculateSettings,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import DRAFT_HEADS, role
from ggbench.runs.progress import Measuring, PointMeasured
from ggbench.runs.session import made_file, subject_of
from ggbench.sizing.drafts import check_drafts, check_pair
from ggbench.stats.intervals import geometric_mean
from ggbench.stats.turns import ordered
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.session import Session

_FEWEST_TOKENS, _MOST_TOKENS, _N_ROUNDS = 16, 128, 3
_STEPS_PER_DRAFTED = 4
"""Steps for each drafted token, as the last ones of an answer draft fewer."""
_N_WARMUP = 8


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


def spec_type_of(asked: str, draft: ModelFile | None, *, has_own_layers: bool) -> str:
    """Return the type of drafts: as asked, or by the draft's file. Raises UsageError without either."""
    if asked.startswith("ngram") and draft is not None:
        raise UsageError(f"drafts of type {asked} come from the text itself", "omit --draft")
    if asked:
        return asked
    if draft is not None:
        is_head = role(draft.name, draft.metadata, draft.tensors) == "draft"
        return DRAFT_HEADS.get(draft.architecture, "draft-mtp" if is_head else "draft-simple")
    if has_own_layers:
        return "draft-mtp"
    raise UsageError("there is nothing to draft with", "add --draft MODEL, --mtp, or --spec-type ngram-simple")


def measure_answers(session: Session) -> Measuring[Ending]:
    """Continue all texts in each round, once without drafts and once with them, by a new server each time.

    Raises, before anything is loaded, UsageError or BadFile without anything suitable to draft with, and Unsupported
    for a twin.
    """
    target, draft = session.target.header(), None if session.draft is None else session.draft.header()
    settings = session.settings(SpeculateSettings)
    kind = spec_type_of(settings.spec_type, draft, has_own_layers=LlamaConfig.of(session.setup).mtp)
    if kind == "draft-simple" and draft is not None:
        check_pair(target, draft)
    elif kind == "draft-mtp" and draft is None:
        check_drafts(None, target)
    if "twin" in (session.target.provenance, session.draft and session.draft.provenance):
        raise Unsupported(
            "a twin's random text does not show what a draft gains with llama-server",
            "download the models first (ggbench pull), or omit --engine to time the steps of twins",
        )
    setup, path, subject = session.setup.holding(N_CTX_TEXTS), None, None
    if session.draft is not None:
        made = yield from made_file(session.draft, session.cancel)
        path, subject = made.paths[0], subject_of(session.draft, made, setup)
    yield from session.prepare_file()
    session.recorder.observe(DraftedPair(subject, spec_type=kind))
    servers = (setup.drafting(""), None), (setup.drafting(kind, settings.n_served), path)
    try:
        yield from _rounds(session, servers, settings.n_served)
    except EngineEnded as ended:
        return ended.ending
    return Completed()


def _rounds(
    session: Session, servers: Sequence[tuple[EngineConfig, Path | None]], k: int | None
) -> Measuring[None]:
    """Continue every text without drafts and with, in each round; `servers` are those two. Raises EngineEnded."""
    n_gen = 0
    for number in range(_N_ROUNDS):
        for is_drafted in ordered((True, False), number):  # first what a server may refuse
            setup, draft = servers[is_drafted]
            require_completed((yield from session.open(setup, draft=draft)))
            warm = only(Continued, *(yield from session.ask(Continue(PROMPT, _N_WARMUP))))
            n_gen = n_gen or _tokens_of_text(session, warm, k)
            for name, text in TEXTS.items():
                found = only(Continued, *(yield from session.ask(Continue(text, n_gen))))
                answered = AnsweredText(name, number, k, is_drafted, found)
                session.recorder.observe(answered)
                how = "with" if is_drafted else "without"
                yield PointMeasured(f"{name} {how} drafts: {format_number(answered.tok_s)} tok/s", answered)


def _tokens_of_text(session: Session, warm: Continued, k: int | None) -> int:
    """Return the tokens of each text that there is time for, given the time of a first answer."""
    token_s = warm.decode_ns / 1e9 / max(1, warm.n_tokens - 1)
    n_gen = int(session.settings(SpeculateSettings).within_s / (2 * _N_ROUNDS * len(TEXTS) * token_s))
    return min(_MOST_TOKENS, max(_FEWEST_TOKENS, _STEPS_PER_DRAFTED * (k or 0), n_gen))


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
