"""Speculative decoding measured for real: llama-server answers texts of several kinds, without drafts and with, in turns.

Each round starts the server twice, in the opposite order of the round before, so that a slow drift of the machine
affects both alike. Times are the server's own, of all tokens but the first, which comes with the prompt. All answers
are greedy, so a draft may not change the text; where it does, llama.cpp computed a batch otherwise than single tokens.
"""

from __future__ import annotations

import functools
import math
import statistics
import tomllib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ggbench.engines.contract import Continue
from ggbench.engines.endings import Completed, Ending, Failed
from ggbench.engines.events import Continued
from ggbench.errors import UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.progress import PointMeasured
from ggbench.runs.session import made_file
from ggbench.stats.intervals import Expected
from ggbench.stats.samples import mean_interval
from ggbench.text import in_words, shorten
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session

TEXTS = ("prose", "code", "edit")
N_ANSWER, N_ROUNDS = 128, 3
_PROMPT_ROOM = 1024
"""Tokens for a prompt in its template; the texts have some 60 to 250."""
_N_WARMUP = 8
_TYPES = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "gemma4-assistant": "draft-mtp"}
"""Types of drafts by the architecture of their file; other models draft as `draft-simple`."""
_DRAFTLESS = "ngram"


class AnsweredText(msgspec.Struct, frozen=True):
    """One answer; an observation."""

    text: str
    """Name of the text."""
    is_drafted: bool
    round: int
    answer: Continued

    @property
    def tok_s(self) -> float:
        return (self.answer.n_tokens - 1) / self.answer.decode_ns * 1e9


class TextGain(msgspec.Struct, frozen=True):
    """What drafts gave for one text, over all rounds."""

    text: str
    tok_s: float
    """Without drafts, by the server's clock."""
    drafted_tok_s: float
    gain: float
    """Speed with drafts over speed without, the geometric mean of the rounds."""
    gain_ci95: tuple[float, float] | None
    """None for a single round."""
    mean_len: float
    """Tokens for each decode of the model, with drafted ones."""
    acceptance: float | None
    """Accepted tokens / drafted tokens; None if nothing was drafted."""
    n_tokens: int
    """Tokens of one answer with drafts."""
    n_steps: int | None = None
    """Steps of one answer that verified a draft; None if the server does not count them."""
    acceptance_at: tuple[float, ...] = ()
    """Share of these steps that accepted at least 1, 2, ... drafted tokens; empty if the server does not count them."""
    difference: str = ""
    """Where the answer differs from the one without drafts; empty for equal texts."""


@functools.cache
def prompts() -> dict[str, str]:
    """Return the texts to answer, by name."""
    return {name: text.strip() for name, text in tomllib.loads(_TEXTS_FILE.read_text(encoding="utf-8")).items()}


_TEXTS_FILE = Path(__file__).with_name("texts.toml")


def check_texts(names: Sequence[str]) -> None:
    """Raise UsageError for an unknown text, or none."""
    if not names or set(names) - set(TEXTS):
        raise UsageError(f"--texts {','.join(names)}: unknown", f"choose some of {in_words(TEXTS)}")


def spec_type_of(asked: str, draft: ModelFile | None, *, has_mtp: bool) -> str:
    """Return the type of drafts: as asked, or by the draft's file, or of the model's own MTP layers. Raises UsageError."""
    if asked.startswith(_DRAFTLESS) and draft is not None:
        raise UsageError(f"drafts of type {asked} come from the text itself", "omit --draft")
    if asked:
        return asked
    if draft is not None:
        return _TYPES.get(draft.architecture, "draft-simple")
    if has_mtp:
        return "draft-mtp"
    raise UsageError("there is nothing to draft with", "add --draft MODEL, --mtp, or --spec-type ngram-simple")


def measure_answers(
    session: Session,
    spec_type: str,
    n_draft: int | None,
    texts: Sequence[str] = TEXTS,
    *,
    has_mtp: bool = False,
    n_gen: int = N_ANSWER,
    n_rounds: int = N_ROUNDS,
) -> Generator[Progress, None, Ending]:
    """Answer all texts without drafts and with, in each round; the server is started anew each time."""
    yield from session.prepare()
    file = None if session.draft is None else (yield from made_file(session.draft, session.cancel))
    kind = spec_type_of(spec_type, file, has_mtp=has_mtp)
    setup, path = session.setup.holding(n_gen + _PROMPT_ROOM), file.paths[0] if file else None
    configs = setup.drafting(""), setup.drafting(kind, path, None if kind.startswith(_DRAFTLESS) else n_draft)
    for number in range(n_rounds):
        for is_drafted in (False, True) if number % 2 == 0 else (True, False):
            ending = yield from session.open(configs[is_drafted])
            if isinstance(ending, Completed):
                ending = yield from _answer_all(session, number, kind if is_drafted else "", texts, n_gen)
            if not isinstance(ending, Completed):
                return ending
    return Completed()


def _answer_all(
    session: Session, number: int, kind: str, texts: Sequence[str], n_gen: int
) -> Generator[Progress, None, Ending]:
    _, ending = yield from session.ask(Continue(prompts()[texts[0]], _N_WARMUP))
    for name in texts:
        if not isinstance(ending, Completed):
            return ending
        events, ending = yield from session.ask(Continue(prompts()[name], n_gen))
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
    logs = mean_interval([math.log(with_drafts.tok_s / without.tok_s) for without, with_drafts in pairs])
    gain = Expected(*map(math.exp, (logs.value, logs.low, logs.high)))
    answer = drafted[-1].answer
    n_drafted, n_accepted = (sum(getattr(each.answer, field) for each in drafted) for field in ("n_drafted", "n_accepted"))
    n_tokens = sum(each.answer.n_tokens - 1 for each in drafted)
    return TextGain(
        name,
        tok_s=statistics.fmean(each.tok_s for each in plain),
        drafted_tok_s=statistics.fmean(each.tok_s for each in drafted),
        gain=gain.value,
        gain_ci95=(gain.low, gain.high) if len(pairs) > 1 else None,
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
    at = next((at for at, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), min(len(plain), len(drafted)))
    begin = max(plain.rfind(" ", 0, at), plain.rfind("\n", 0, at)) + 1
    without, with_drafts = (repr(shorten(text[begin : begin + 40], 24)) for text in (plain, drafted))
    return f"at character {at + 1}: {with_drafts} instead of {without}"
