"""The scoring of `quality.measure`: one model alone, or compared with the log-probabilities of a base."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ggbench.engines.contract import Tokenize
from ggbench.engines.endings import Completed, EngineEnded, only, require_completed
from ggbench.engines.events import Scored, Tokenized
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, UnknownName, UsageError
from ggbench.experiments.quality.base_rows import Rows, Scoring, open_rows, require_trained, scoring_setup
from ggbench.experiments.quality.record import ChunkScores, QualitySettings, ScoredBase, ScoredText
from ggbench.experiments.quality.scores import floats, perplexity
from ggbench.experiments.quality.texts import read_text
from ggbench.machine.host import describe_ram
from ggbench.runs.experiment import Conclusion
from ggbench.runs.progress import Measuring, PointMeasured, Working
from ggbench.runs.recording import Recording
from ggbench.runs.session import Session
from ggbench.runs.store.runs import RUNNING
from ggbench.runs.stored import read_recording
from ggbench.show.figure import bounded_text
from ggbench.units import counted, format_count


def score_text(session: Session) -> Measuring[Conclusion]:
    """Score the text. Raises like `QualityExperiment.measure`."""
    settings = session.settings(QualitySettings)
    given = LlamaConfig.of(session.setup)
    text = read_text(settings.text)
    file = yield from session.prepare_file()
    require_trained(file)
    available_bytes = describe_ram().available_bytes
    setup = scoring_setup(settings, given, file.n_vocab)
    with contextlib.ExitStack() as stack:
        try:
            require_completed((yield from session.open(setup)))
            tokenized = only(Tokenized, *(yield from session.ask(Tokenize(text))))
            scored = _scored_text(settings, tokenized)
            session.recorder.observe(scored)
            n_chunks = min(scored.n_chunks, settings.n_chunks or scored.n_chunks)
            scoring = Scoring(session, setup, text, tokenized, n_chunks)
            rows = yield from open_rows(scoring, available_bytes, stack)
            return (yield from _score(scoring, rows))
        except EngineEnded as ended:
            return ended.ending


def _score(scoring: Scoring, rows: Rows) -> Measuring[Completed]:
    """Score a few chunks at a time until the text is used up."""
    session, settings, n_chunks = scoring.session, scoring.settings, scoring.n_chunks
    run_id, earlier = earlier_scores(session, n_chunks)
    for each in earlier:
        session.recorder.observe(each)
    n_before = sum(each.n_chunks for each in earlier)
    if earlier:
        yield PointMeasured(f"continues run {run_id}, which has scored {counted(n_before, 'chunk')}", run_id)
    chunks_of = f"{counted(n_chunks, 'chunk')} of {format_count(settings.n_ctx)} tokens"
    yield Working("score", n_before, n_chunks, chunks_of)
    for first in scoring.firsts(n_before):
        n_now, parts = scoring.count(first), []
        for request in scoring.requests(first):
            asked = replace(request, rows=rows(request, first))
            parts.append(only(Scored, *(yield from session.ask(asked))))
        scores = _chunk_scores(parts, n_now)
        session.recorder.observe(scores)
        session.recorder.keep_readings()
        yield PointMeasured("", scores)
        nll = floats(b"".join(each.nll for each in session.recorder.recording.of(ChunkScores)))
        ppl = bounded_text(perplexity(nll, settings.n_scored_per_chunk).estimate, 4)
        yield Working("score", first + n_now, n_chunks, f"PPL {ppl}")
    return Completed()


def _chunk_scores(parts: Sequence[Scored], n_chunks: int) -> ChunkScores:
    def joined(name: str) -> bytes:
        """Return the values of all parts, chunk by chunk."""
        columns = [np.asarray(getattr(part, name), np.float32).reshape(n_chunks, -1) for part in parts]
        return np.hstack(columns).tobytes()

    values = {name: joined(name) for name in ("nll", "base_nll", "kld", "p_diff")}
    flags = np.hstack([np.asarray(part.same_top, np.int64).reshape(n_chunks, -1) for part in parts])
    same_top = tuple(flags.sum(axis=1).tolist()) if flags.size else ()
    return ChunkScores(n_chunks, **values, same_top=same_top)


def _scored_text(settings: QualitySettings, tokenized: Tokenized) -> ScoredText:
    """Raises UsageError for a text that is too short."""
    n_chunks = len(tokenized.tokens) // settings.n_ctx
    if n_chunks < 2:
        raise UsageError(
            f"{settings.text.name} has {counted(len(tokenized.tokens), 'token')}, but two chunks of"
            f" {format_count(settings.n_ctx)} are needed",
            "use a longer text, or lower --n-ctx",
        )
    sha256 = hashlib.sha256(np.asarray(tokenized.tokens, "<i4").tobytes()).hexdigest()
    return ScoredText(len(tokenized.tokens), n_chunks, sha256)


def earlier_scores(session: Session, n_chunks: int) -> tuple[int, tuple[ChunkScores, ...]]:
    """Return the number and the scores of the newest run with the same file, setup, text, base and programs.

    0 and nothing if there is none, or if it scored all `n_chunks`: a repeated command then scores again.
    """
    store, own = session.context.store, session.recorder.recording
    if store is None:
        return 0, ()
    for stored in store.runs_of_kind(own.head.kind):
        same_file = stored.subject.header_sha256 == own.head.subject.header_sha256
        is_over_here = stored.state != RUNNING and not stored.is_imported
        if not is_over_here or not same_file or stored.run_id == session.recorder.run_id:
            continue
        with contextlib.suppress(StoreError, UnknownName):
            found = read_recording(store, stored)
            scores = found.of(ChunkScores)
            if scores and _asked(found) == _asked(own):
                n_scored = sum(each.n_chunks for each in scores)
                return (stored.run_id, scores) if n_scored < n_chunks else (0, ())
    return 0, ()


def _asked(recording: Recording) -> object:
    head, settings = recording.head, recording.settings(QualitySettings)
    versions = head.environment and (head.environment.ggbench, head.environment.llama_cpp)
    return (
        head.setup,
        replace(settings, n_chunks=None),
        versions,
        recording.last(ScoredText),
        recording.last(ScoredBase),
    )
