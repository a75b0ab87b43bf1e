"""Speculative decoding measured for real: llama-server answers texts of several kinds, without drafts and with.

Each round starts the server once for each, in the opposite order of the round before, so that a slow drift of the
machine affects both alike. Times are the server's own, of all tokens but the first, which comes with the prompt. All
answers are greedy, so a draft may not change the text; where it does, llama.cpp computed a batch otherwise than single
tokens.
"""

from __future__ import annotations

import functools
import statistics
import tomllib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.engines.contract import Continue
from ggbench.engines.endings import Completed, Ending, Failed
from ggbench.engines.events import Continued
from ggbench.errors import UsageError
from ggbench.experiments.speculate.record import AnsweredText, DraftedPair, SpeculateSettings, TextGain
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.progress import PointMeasured
from ggbench.runs.session import made_file, subject_of
from ggbench.stats.speculation import mean_ratio
from ggbench.text import shorten
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session

_N_ANSWER, _N_ROUNDS = 128, 3
_PROMPT_ROOM = 1024
"""Tokens for a prompt in its template; the texts have some 60 to 250."""
_N_WARMUP = 8
_TYPES = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "gemma4-assistant": "draft-mtp"}
"""Types of drafts by the architecture of their file; other models draft as `draft-simple`."""
_DRAFTLESS = "ngram"


@functools.cache
def prompts() -> dict[str, str]:
    """Return the texts to answer, by name."""
    return {name: text.strip() for name, text in tomllib.loads(_TEXTS_FILE.read_text(encoding="utf-8")).items()}


_TEXTS_FILE = Path(__file__).with_name("texts.toml")


def spec_type_of(asked: str, draft: ModelFile | None) -> str:
    """Return the type of drafts: as asked, or by the draft's file. Raises UsageError without either."""
    if asked.startswith(_DRAFTLESS) and draft is not None:
        raise UsageError(f"drafts of type {asked} come from the text itself", "omit --draft")
    if asked:
        return asked
    if draft is not None:
        return _TYPES.get(draft.architecture, "draft-simple")
    raise UsageError("there is nothing to draft with", "add --draft MODEL, --mtp, or --spec-type ngram-simple")


def measure_answers(session: Session) -> Generator[Progress, None, Ending]:
    """Answer all texts without drafts and with, in each round; the server is started anew each time.

    Raises UsageError without anything to draft with.
    """
    settings = session.settings(SpeculateSettings)
    draft = None if session.draft is None else (yield from made_file(session.draft, session.cancel))
    kind = spec_type_of(settings.spec_type, draft)
    n_draft = None if kind.startswith(_DRAFTLESS) else settings.n_served
    setup = session.setup.holding(_N_ANSWER + _PROMPT_ROOM)
    configs = setup.drafting(""), setup.drafting(kind, draft.paths[0] if draft else None, n_draft)
    yield from session.prepare()
    subject = subject_of(session.draft, draft, setup) if session.draft else None
    session.recorder.observe(DraftedPair(subject, spec_type=kind))
    for number in range(_N_ROUNDS):
        for is_drafted in (False, True) if number % 2 == 0 else (True, False):
            ending = yield from session.open(configs[is_drafted])
            if isinstance(ending, Completed):
                ending = yield from _answer_all(session, number, kind if is_drafted else "", settings.texts)
            if not isinstance(ending, Completed):
                return ending
    return Completed()


def _answer_all(session: Session, number: int, kind: str, texts: Sequence[str]) -> Generator[Progress, None, Ending]:
    _, ending = yield from session.ask(Continue(prompts()[texts[0]], _N_WARMUP))
    for name in texts:
        if not isinstance(ending, Completed):
            return ending
        events, ending = yield from session.ask(Continue(prompts()[name], _N_ANSWER))
        for event in events:
            if not isinstance(event, Continued):
                continue
            if event.n_tokens < 2 or not event.decode_ns:
                return Failed("decode", f"the model answered {name} with {event.n_tokens} tokens, too few to time")
            answered = AnsweredText(name, bool(kind), number, event)
            session.recorder.observe(answered)
            how = f"with drafts of type {kind}" if kind else "without drafts"
            yield PointMeasured(f"{name} {how}: {format_number(answered.tok_s)} tok/s", answered)
    return ending


def gains_of(answers: Sequence[AnsweredText]) -> tuple[TextGain, ...]:
    """Return the gain of each text that has an answer without drafts and one with in at least one round."""
    by_place = {(each.text, each.is_drafted, each.round): each for each in answers}
    names = dict.fromkeys(each.text for each in answers)
    rounds = sorted({each.round for each in answers})
    pairs = {
        name: [
            (by_place[name, False, n], by_place[name, True, n])
            for n in rounds
            if (name, False, n) in by_place and (name, True, n) in by_place
        ]
        for name in names
    }
    return tuple(_gain(name, found) for name, found in pairs.items() if found)


def _gain(name: str, pairs: Sequence[tuple[AnsweredText, AnsweredText]]) -> TextGain:
    plain, drafted = ([pair[which] for pair in pairs] for which in (0, 1))
    ratios = [with_drafts.tok_s / without.tok_s for without, with_drafts in pairs]
    gain = mean_ratio(ratios) if len(ratios) > 1 else None
    answer = drafted[-1].answer
    n_drafted, n_accepted = (
        sum(getattr(each.answer, field) for each in drafted) for field in ("n_drafted", "n_accepted")
    )
    n_tokens = sum(each.answer.n_tokens - 1 for each in drafted)
    return TextGain(
        name,
        tok_s=statistics.fmean(each.tok_s for each in plain),
        drafted_tok_s=statistics.fmean(each.tok_s for each in drafted),
        gain=gain.value if gain else ratios[0],
        gain_ci95=None if gain is None else (gain.low, gain.high),
        mean_len=n_tokens / max(1, n_tokens - n_accepted),
        acceptance=n_accepted / n_drafted if n_drafted else None,
        n_tokens=answer.n_tokens,
        n_steps=answer.n_steps,
        acceptance_at=tuple(n / answer.n_steps for n in answer.accepted_at) if answer.n_steps else (),
        difference=_difference(plain[-1].answer.text, answer.text),
    )


def _difference(plain: str, drafted: str) -> str:
    """Return the first difference of two answers; empty for equal texts."""
    if plain == drafted:
        return ""
    differing = (at for at, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b)
    n_equal = next(differing, min(len(plain), len(drafted)))
    begin = max(plain.rfind(" ", 0, n_equal), plain.rfind("\n", 0, n_equal)) + 1
    without, with_drafts = (repr(shorten(text[begin : begin + 40], 24)) for text in (plain, drafted))
    return f"at character {n_equal + 1}: {with_drafts} instead of {without}"
