"""Speculative decoding measured with llama-server, which continues texts of several kinds without drafts and with.

Each round starts the server once for each, in the opposite order of the round before, so that a slow drift of the
machine affects both alike. Times are the server's own, of all tokens but the first, which comes with the prompt. All
answers are greedy, so a draft may not change the text; where it does, llama.cpp computed a batch otherwise than single
tokens.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.engines.contract import PROMPT, Continue, EngineConfig
from ggbench.engines.endings import Completed, Ending, EngineEnded, only, require_completed
from ggbench.engines.events import Continued
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.record import N_CTX_TEXTS, AnsweredText, DraftedPair, SpeculateSettings
from ggbench.experiments.speculate.texts import TEXTS
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import DRAFT_HEADS, role
from ggbench.runs.progress import PointMeasured
from ggbench.runs.session import made_file, subject_of
from ggbench.sizing.drafts import check_drafts, check_pair
from ggbench.stats.turns import ordered
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session

_FEWEST_TOKENS, _MOST_TOKENS, _N_ROUNDS = 16, 128, 3
_STEPS_PER_DRAFTED = 4
"""Steps for each drafted token, as the last ones of an answer draft fewer."""
_N_WARMUP = 8


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


def measure_answers(session: Session) -> Generator[Progress, None, Ending]:
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
) -> Generator[Progress, None, None]:
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
