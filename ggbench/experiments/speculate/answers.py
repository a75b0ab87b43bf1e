"""Speculative decoding measured for real: llama-server continues texts of several kinds, without drafts and with.

Each round starts the server once for each, in the opposite order of the round before, so that a slow drift of the
machine affects both alike. Times are the server's own, of all tokens but the first, which comes with the prompt. All
answers are greedy, so a draft may not change the text; where it does, llama.cpp computed a batch otherwise than single
tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from ggbench.engines.contract import PROMPT, Continue
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Continued
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.record import (
    N_CTX_TEXTS,
    AnsweredText,
    DraftedPair,
    DraftedText,
    SpeculateSettings,
)
from ggbench.experiments.speculate.texts import TEXTS, is_trained
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.progress import PointMeasured
from ggbench.runs.session import made_file, subject_of
from ggbench.sizing.drafts import DRAFT_HEADS, check_drafts, check_pair
from ggbench.stats.intervals import geometric_mean
from ggbench.text import sanitize, shorten
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session

_FEWEST_TOKENS, _MOST_TOKENS, _N_ROUNDS = 16, 128, 3
_N_WARMUP = 8
_DRAFTLESS = "ngram"


def spec_type_of(asked: str, draft: ModelFile | None) -> str:
    """Return the type of drafts: as asked, or by the draft's file. Raises UsageError without either."""
    if asked.startswith(_DRAFTLESS) and draft is not None:
        raise UsageError(f"drafts of type {asked} come from the text itself", "omit --draft")
    if asked:
        return asked
    if draft is not None:
        return DRAFT_HEADS.get(draft.architecture, "draft-simple")
    raise UsageError("there is nothing to draft with", "add --draft MODEL, --mtp, or --spec-type ngram-simple")


def measure_answers(session: Session) -> Generator[Progress, None, Ending]:
    """Continue all texts in each round, once without drafts and once with them; each time, start the server anew.

    Raises UsageError or BadFile without anything suitable to draft with, and Unsupported for twins, before anything is
    written.
    """
    settings = session.settings(SpeculateSettings)
    draft = None if session.draft is None else session.draft.header()
    kind, target = spec_type_of(settings.spec_type, draft), session.target.header()
    if kind == "draft-simple" and draft is not None:
        check_pair(target, draft)
    elif kind == "draft-mtp" and draft is None:
        check_drafts(None, target)
    for each in filter(None, (session.target, session.draft)):
        if not is_trained(each):
            name = sanitize(" ".join(each.words))
            what = f"{name} has no trained weights here, so that no draft would be accepted"
            raise Unsupported(what, "download the model first: ggbench pull; or omit --engine to time its steps")
    draft = None if session.draft is None else (yield from made_file(session.draft, session.cancel))
    yield from session.prepare_file()
    k = None if kind.startswith(_DRAFTLESS) else settings.n_served
    setup = session.setup.holding(N_CTX_TEXTS)
    configs, drafts = (setup.drafting(""), setup.drafting(kind, k)), (None, draft.paths[0] if draft else None)
    subject = subject_of(session.draft, draft, setup) if session.draft else None
    session.recorder.observe(DraftedPair(subject, spec_type=kind))
    n_gen = 0
    for number in range(_N_ROUNDS):
        for is_drafted in (False, True) if number % 2 == 0 else (True, False):
            ending = yield from session.open(configs[is_drafted], draft=drafts[is_drafted])
            if isinstance(ending, Completed):
                n_gen, ending = yield from _continue_all(session, number, k, n_gen, is_drafted=is_drafted)
            if not isinstance(ending, Completed):
                return ending
    return Completed()


def _continue_all(
    session: Session, number: int, k: int | None, n_gen: int, *, is_drafted: bool
) -> Generator[Progress, None, tuple[int, Ending]]:
    """Return also the tokens of each text; `n_gen` is 0 as long as the first answer has not shown how many there is
    time for.
    """
    events, ending = yield from session.ask(Continue(PROMPT, _N_WARMUP))
    for event in events if not n_gen else ():
        if isinstance(event, Continued):
            token_s = event.decode_ns / 1e9 / max(1, event.n_tokens - 1)
            n_gen = int(session.settings(SpeculateSettings).within_s / (2 * _N_ROUNDS * len(TEXTS) * token_s))
            n_gen = min(_MOST_TOKENS, max(_FEWEST_TOKENS, n_gen))
    for name, text in TEXTS.items():
        if not isinstance(ending, Completed):
            break
        events, ending = yield from session.ask(Continue(text, n_gen))
        for event in events:
            if isinstance(event, Continued):
                answered = AnsweredText(name, number, k, is_drafted, event)
                session.recorder.observe(answered)
                how = "with" if is_drafted else "without"
                yield PointMeasured(f"{name} {how} drafts: {format_number(answered.tok_s)} tok/s", answered)
    return n_gen, ending


def answered_texts(answers: Sequence[AnsweredText]) -> Iterator[DraftedText]:
    """Yield each text that was continued without drafts and with in at least two rounds."""
    by_place = {(each.name, each.is_drafted, each.round): each for each in answers}
    for name in dict.fromkeys(each.name for each in answers):
        numbers = [n for n in range(_N_ROUNDS) if (name, False, n) in by_place and (name, True, n) in by_place]
        if len(numbers) > 1:
            plain, drafted = ([by_place[name, which, n] for n in numbers] for which in (False, True))
            yield _drafted_text(name, plain, drafted)


def _drafted_text(name: str, plain: Sequence[AnsweredText], drafted: Sequence[AnsweredText]) -> DraftedText:
    last, answers = drafted[-1], [each.answer for each in drafted]
    n_drafted, n_accepted = sum(each.n_drafted for each in answers), sum(each.n_accepted for each in answers)
    n_tokens = sum(each.n_tokens - 1 for each in answers)
    accepted_at = [sum(found) for found in zip_longest(*(each.accepted_at for each in answers), fillvalue=0)]
    tried = (sum(each.n_steps or 0 for each in answers), *accepted_at)
    return DraftedText(
        name,
        last.k,
        last.answer.n_tokens,
        plain_tok_s=statistics.median(each.tok_s for each in plain),
        drafted_tok_s=statistics.median(each.tok_s for each in drafted),
        gain=geometric_mean([on.tok_s / off.tok_s for off, on in zip(plain, drafted, strict=True)]),
        expected_gain=None,
        mean_len=n_tokens / max(1, n_tokens - n_accepted),
        acceptance=tuple(after / before for before, after in pairwise(tried) if before),
        difference=_difference(plain[-1].answer.text, last.answer.text),
        accepted_share=n_accepted / n_drafted if n_drafted else None,
    )


def _difference(plain: str, drafted: str) -> str:
    """Return the first difference of two texts; empty for equal ones."""
    if plain == drafted:
        return ""
    differing = (at for at, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b)
    n_equal = next(differing, min(len(plain), len(drafted)))
    begin = max(plain.rfind(" ", 0, n_equal), plain.rfind("\n", 0, n_equal)) + 1
    without, with_drafts = (repr(shorten(text[begin : begin + 40], 24)) for text in (plain, drafted))
    return f"at character {n_equal + 1}: {with_drafts} instead of {without}"
