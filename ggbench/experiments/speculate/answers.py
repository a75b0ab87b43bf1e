"""Speculative decoding measured with llama-server, which continues texts of several kinds without drafts and with.

Each round starts the server once for each, in the opposite order of the round before, so that a slow drift of the
machine affects both alike. Times are the server's own, of all tokens but the first, which comes with the prompt. All
answers are greedy, so a draft may not change the text; where it does, llama.cpp computed a batch otherwise than single
tokens. A twin's text says nothing of what would be accepted, so with a twin the server rejects every draft: each step
yields one token, and its time over that of a token without drafts is the mean length from which drafts pay.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.engines.contract import PROMPT, Continue, EngineConfig
from ggbench.engines.endings import Completed, Ending, EngineEnded
from ggbench.engines.events import Continued
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import DRAFT_TOKENS
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.record import N_CTX_TEXTS, AnsweredText, DraftedPair, SpeculateSettings
from ggbench.experiments.speculate.texts import TEXTS
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.layer_twins import MeasuringCost, announced, weights_bytes_per_s
from ggbench.runs.progress import PointMeasured
from ggbench.runs.session import made_file, subject_of
from ggbench.sizing.drafts import DRAFT_HEADS, check_drafts, check_pair
from ggbench.sizing.layer_sample import made_seconds
from ggbench.stats.turns import ordered
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session

_FEWEST_TOKENS, _MOST_TOKENS, _N_ROUNDS = 16, 128, 3
_STEPS_PER_DRAFTED = 4
"""Steps for each drafted token, as the last ones of an answer draft fewer."""
_N_WARMUP = 8
_DRAFTLESS = "ngram"


def spec_type_of(asked: str, draft: ModelFile | None, *, has_own_layers: bool) -> str:
    """Return the type of drafts: as asked, or by the draft's file. Raises UsageError without either."""
    if asked.startswith(_DRAFTLESS) and draft is not None:
        raise UsageError(f"drafts of type {asked} come from the text itself", "omit --draft")
    if asked:
        return asked
    if draft is not None:
        return DRAFT_HEADS.get(draft.architecture, "draft-simple")
    if has_own_layers:
        return "draft-mtp"
    raise UsageError("there is nothing to draft with", "add --draft MODEL, --mtp, or --spec-type ngram-simple")


def measure_answers(session: Session) -> Generator[Progress, None, Ending]:
    """Continue all texts in each round, once without drafts and once with them, by a new server each time.

    Raises UsageError or BadFile without anything suitable to draft with, and Unsupported for n-grams of a twin, before
    anything is written, and DoesNotFit if the disk has no room for a twin.
    """
    target, draft = session.target.header(), None if session.draft is None else session.draft.header()
    asked = session.settings(SpeculateSettings).spec_type
    kind = spec_type_of(asked, draft, has_own_layers=LlamaConfig.of(session.setup).mtp)
    if kind == "draft-simple" and draft is not None:
        check_pair(target, draft)
    elif kind == "draft-mtp" and draft is None:
        check_drafts(None, target)
    is_of_twin = session.target.provenance == "twin"
    rejects_all = is_of_twin or (session.draft is not None and session.draft.provenance == "twin")
    k = _most_drafted(session, kind, rejects_all=rejects_all)
    yield announced(_cost(session, target, draft, k))
    setup, path, subject = session.setup.holding(N_CTX_TEXTS), None, None
    if session.draft is not None:
        made = yield from made_file(session.draft, session.cancel)
        path, subject = made.paths[0], subject_of(session.draft, made, setup)
    yield from session.prepare_file()
    has_random_router = is_of_twin and bool(target.n_expert)
    session.recorder.observe(
        DraftedPair(subject, (), has_random_router, spec_type=kind, rejects_all=rejects_all)
    )
    servers = (setup.drafting(""), None), (setup.drafting(kind, k, rejects_all=rejects_all), path)
    try:
        yield from _rounds(session, servers, k)
    except EngineEnded as ended:
        return ended.ending
    return Completed()


def _most_drafted(session: Session, kind: str, *, rejects_all: bool) -> int | None:
    """Return the tokens that a step drafts at most; None for the server's default, and for n-grams."""
    if not kind.startswith(_DRAFTLESS):
        k = session.settings(SpeculateSettings).n_served
        return k or DRAFT_TOKENS if rejects_all else k
    if rejects_all:
        what = "n-grams draft what a text repeats, which a twin's random text does not"
        raise Unsupported(what, "download the model first: ggbench pull")
    return None


def _cost(session: Session, target: ModelFile, draft: ModelFile | None, k: int | None) -> MeasuringCost:
    kept_bytes = target.file_bytes if session.target.path is None else 0
    kept_bytes += draft.file_bytes if draft and session.draft and session.draft.path is None else 0
    token_s = (target.active_weight_bytes or 0) / weights_bytes_per_s(session.context)
    fewest_s = 2 * _N_ROUNDS * len(TEXTS) * _fewest_tokens(k) * token_s
    measured_s = max(session.settings(SpeculateSettings).within_s, fewest_s)
    return MeasuringCost(made_seconds(2 * _N_ROUNDS, kept_bytes) + measured_s, kept_bytes=kept_bytes)


def _fewest_tokens(k: int | None) -> int:
    return max(_FEWEST_TOKENS, _STEPS_PER_DRAFTED * (k or 0))


def _rounds(
    session: Session, servers: Sequence[tuple[EngineConfig, Path | None]], k: int | None
) -> Generator[Progress, None, None]:
    """Continue every text without drafts and with, in each round; `servers` are those two. Raises EngineEnded."""
    n_gen = 0
    for number in range(_N_ROUNDS):
        for is_drafted in ordered((True, False), number):  # first what a server may refuse
            setup, draft = servers[is_drafted]
            ending = yield from session.open(setup, draft=draft)
            if not isinstance(ending, Completed):
                raise EngineEnded(ending)
            warm = yield from _continued(session, PROMPT, _N_WARMUP)
            n_gen = n_gen or _tokens_of_text(session, warm, k)
            for name, text in TEXTS.items():
                found = yield from _continued(session, text, n_gen)
                answered = AnsweredText(name, number, k, is_drafted, found)
                session.recorder.observe(answered)
                how = "with" if is_drafted else "without"
                yield PointMeasured(f"{name} {how} drafts: {format_number(answered.tok_s)} tok/s", answered)


def _continued(session: Session, text: str, n_gen: int) -> Generator[Progress, None, Continued]:
    """Raises EngineEnded."""
    events, ending = yield from session.ask(Continue(text, n_gen))
    if not isinstance(ending, Completed):
        raise EngineEnded(ending)
    return next(event for event in events if isinstance(event, Continued))


def _tokens_of_text(session: Session, warm: Continued, k: int | None) -> int:
    """Return the tokens of each text that there is time for, given the time of a first answer."""
    token_s = warm.decode_ns / 1e9 / max(1, warm.n_tokens - 1)
    n_gen = int(session.settings(SpeculateSettings).within_s / (2 * _N_ROUNDS * len(TEXTS) * token_s))
    return min(_MOST_TOKENS, max(_fewest_tokens(k), n_gen))
