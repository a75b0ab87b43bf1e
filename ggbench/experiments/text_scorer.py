"""The scoring behind `ggbench.experiments.quality`: one model alone, or in lockstep with a base.

A base's log-probabilities are float32 rows of the vocabulary. They pass from the base's worker to the model's through a
memory file of a few rows, so neither memory nor disk holds more; only a file of logits that a person asked for, or
gave, has the 16 bits of llama-perplexity.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from ggbench.catalog.texts import read_text
from ggbench.engine.contract import Engine, Source
from ggbench.engine.endings import Completed, Ending
from ggbench.engine.events import Event, Scored, Tokenized
from ggbench.engine.workloads.score import RowsFile, Score
from ggbench.engine.workloads.tokenize import Tokenize
from ggbench.errors import BadFile, DoesNotFit, Unsupported, UsageError
from ggbench.experiments.earlier_scores import earlier_scores
from ggbench.experiments.logits_file import LogitsFile, begin_logits_file, read_logits_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.memory import describe_ram
from ggbench.recording.experiment import Concluded, Conclusion
from ggbench.recording.progress import Point, Progress, Working
from ggbench.recording.session import Session, made_file, subject_of
from ggbench.records.memory import Memory
from ggbench.records.quality import ChunkScores, QualitySettings, ScoredBase, ScoredText
from ggbench.records.setup import LlamaSetup
from ggbench.stats.quality import floats, perplexity
from ggbench.units import format_bytes, format_count

_ROWS_BYTES = 1 << 26
"""Of float32 rows that are in memory at once: 64 rows of the largest vocabularies."""

_LARGEST_VOCABULARY = 1 << 18
"""Taken where the header does not say."""

_E = TypeVar("_E", bound=Event)


class _Ended(Exception):
    """An engine ended in something else than what it was asked for."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class _Rows(Protocol):
    """Where the base's rows are, or where the model's own go."""

    def of(self, request: Score, first_chunk: int) -> RowsFile | None:
        """The rows of a request, once they are there; None for a model that is scored alone. Raises _Ended."""
        ...


def score_text(session: Session) -> Generator[Progress, None, Conclusion]:
    """Score the text. Raises as `QualityExperiment.measure`."""
    settings = session.settings(QualitySettings)
    if not isinstance(session.setup, LlamaSetup):
        raise Unsupported("scoring a text needs llama.cpp", "name a GGUF file instead")
    text = read_text(settings.text)
    file = yield from session.prepare()
    _require_trained(file)
    available_bytes = describe_ram().available_bytes
    n_scored = settings.n_seqs * _scored_at_once(settings, session.setup, file.n_vocab or _LARGEST_VOCABULARY)
    setup = replace(session.setup, n_ctx=settings.n_ctx_needed, n_seq_max=settings.n_seqs, n_outputs_max=n_scored)
    with contextlib.ExitStack() as stack:
        try:
            _require_completed((yield from session.open(setup)))
            tokenized = _only(Tokenized, *(yield from session.ask(Tokenize(text))))
            scored = _scored_text(settings, tokenized)
            session.recorder.observe(scored)
            n_chunks = min(scored.n_chunks, settings.n_chunks or scored.n_chunks)
            tokens = tokenized.tokens[: n_chunks * settings.n_ctx]
            rows = yield from _rows(session, setup, text, tokenized, tokens, available_bytes, stack)
            conclusion = yield from _score(session, setup, tokenized, tokens, rows)
            if isinstance(conclusion, Completed) and isinstance(rows, _NewFileRows):
                rows.keep()
            return conclusion
        except _Ended as ended:
            return ended.ending


def _score(
    session: Session, setup: LlamaSetup, tokenized: Tokenized, tokens: Sequence[int], rows: _Rows
) -> Generator[Progress, None, Conclusion]:
    """Some chunks at a time, until the text or the time is spent."""
    settings = session.settings(QualitySettings)
    n_ctx, n_chunks, started = settings.n_ctx, len(tokens) // settings.n_ctx, time.monotonic()
    run_id, earlier = earlier_scores(session, n_chunks)
    for each in earlier:
        session.recorder.observe(each)
    n_before = sum(each.n_chunks for each in earlier)
    if earlier:
        yield Point(f"continues run {run_id}, which has scored {format_count(n_before)} chunks", run_id)
    yield Working("score", n_before, n_chunks, f"{format_count(n_chunks)} chunks of {format_count(n_ctx)} tokens")
    for first in range(n_before, n_chunks, settings.n_seqs):
        began, n_now = time.monotonic(), min(settings.n_seqs, n_chunks - first)
        n_done = first - n_before
        expected_s = (began - started) * (1 + n_now / n_done) if n_done else 0.0
        if settings.within_s is not None and expected_s > settings.within_s:
            return Concluded(reason=f"{format_count(first)} of {format_count(n_chunks)} chunks fitted into the time")
        chunks = [tuple(tokens[index * n_ctx : (index + 1) * n_ctx]) for index in range(first, first + n_now)]
        parts = []
        for request in _requests(settings, setup, tokenized, chunks):
            asked = msgspec.structs.replace(request, rows=rows.of(request, first))
            parts.append(_only(Scored, *(yield from session.ask(asked))))
        scores = _chunk_scores(parts, first, n_now, time.monotonic() - began)
        session.recorder.observe(scores)
        session.recorder.keep_readings()
        yield Point("", scores)
        yield Working("score", first + n_now, n_chunks, _so_far(session))
    return Completed()


def _requests(
    settings: QualitySettings, setup: LlamaSetup, tokenized: Tokenized, chunks: Sequence[tuple[int, ...]]
) -> Iterator[Score]:
    """The chunks in parts: first what is only read, then what is scored, as much at once as `_ROWS_BYTES` hold."""
    n_ctx, n_skip = settings.n_ctx, settings.n_ctx // 2
    bos = () if tokenized.bos is None else (tokenized.bos,)
    with_bos = tuple((*bos, *chunk[len(bos) :]) for chunk in chunks)
    scored_at_once = _scored_at_once(settings, setup, tokenized.n_vocab)
    starts = [*range(0, n_skip, setup.n_batch // settings.n_seqs), *range(n_skip, n_ctx - 1, scored_at_once)]
    for start, stop in zip(starts, [*starts[1:], n_ctx - 1], strict=True):
        targets = tuple(chunk[start + 1 : stop + 1] if start >= n_skip else () for chunk in chunks)
        yield Score(with_bos, targets, start, stop, setup.threads or 1)


def _scored_at_once(settings: QualitySettings, setup: LlamaSetup, n_vocab: int) -> int:
    """Positions of each chunk whose rows are in memory at once."""
    return max(1, min(setup.n_batch, _ROWS_BYTES // (4 * n_vocab), settings.n_ctx * settings.n_seqs) // settings.n_seqs)


def _chunk_scores(parts: Sequence[Scored], first_chunk: int, n_chunks: int, seconds: float) -> ChunkScores:
    """What the parts found, one chunk after the other."""

    def joined(name: str) -> bytes:
        columns = [np.asarray(getattr(part, name), np.float32).reshape(n_chunks, -1) for part in parts]
        return np.hstack(columns).tobytes()

    return ChunkScores(
        first_chunk,
        n_chunks,
        seconds,
        joined("nll"),
        joined("base_nll"),
        joined("kld"),
        joined("p_diff"),
        sum(part.n_same_top for part in parts),
    )


def _so_far(session: Session) -> str:
    """`PPL 12.36 ± 0.52`, of the chunks that were scored."""
    nll = floats(b"".join(each.nll for each in session.recorder.recording.of(ChunkScores)))
    ppl = perplexity(nll)
    return f"PPL {ppl.mean:.4g} ± {ppl.error:.2g}"


def _rows(
    session: Session,
    setup: LlamaSetup,
    text: str,
    tokenized: Tokenized,
    tokens: Sequence[int],
    available_bytes: int,
    stack: contextlib.ExitStack,
) -> Generator[Progress, None, _Rows]:
    """Where the base's rows are to be had: from a file, from a second engine, or nowhere."""
    settings, base = session.settings(QualitySettings), session.base
    if settings.base_logits:
        return _FileRows(_checked_file(Path(settings.base_logits), settings, tokenized, tokens), writes=False)
    if settings.save_base_logits:
        n_chunks = len(tokens) // settings.n_ctx
        new = _NewFileRows(Path(settings.save_base_logits), settings.n_ctx, tokenized.n_vocab, n_chunks, tokens)
        stack.callback(new.discard)
        return new
    if base is None:
        return _NoRows()
    file = yield from made_file(base.target, session.cancel)
    _require_trained(file)
    _require_room(session, file, available_bytes)
    base_setup = replace(setup, type_k=base.type_k, type_v=base.type_v)
    session.recorder.observe(ScoredBase(subject_of(base.target, file, base_setup), base.type_k, base.type_v))
    engine = session.rig.launch(setup, session.cancel)
    stack.callback(engine.close)
    _require_completed(_follow(engine.open(Source(file.paths[0]), base_setup))[1])
    if _only(Tokenized, *_follow(engine.run(Tokenize(text)))) != tokenized:
        raise UsageError(
            f"{base.target.model} {base.target.quant} reads the text as other tokens, so it is no base for this model",
            "--base takes a quant of the same model",
        )
    return _Lockstep(engine, tokenized.n_vocab, stack)


class _NoRows:
    """A model that is scored alone."""

    def of(self, request: Score, first_chunk: int) -> RowsFile | None:
        return None


class _FileRows:
    """Rows of a file of logits."""

    def __init__(self, file: LogitsFile, *, writes: bool) -> None:
        self._file, self._writes = file, writes

    def of(self, request: Score, first_chunk: int) -> RowsFile | None:
        file = self._file
        per_chunk, first_position = file.rows_per_chunk, file.n_ctx // 2
        return RowsFile(
            str(file.path), "u16", file.first_byte, first_chunk * per_chunk, per_chunk, first_position, self._writes
        )


class _NewFileRows(_FileRows):
    """Rows of a file that is being written, aside until every chunk is in it."""

    def __init__(self, path: Path, n_ctx: int, n_vocab: int, n_chunks: int, tokens: Sequence[int]) -> None:
        if path.exists():
            raise UsageError(f"{path.name} exists already", "name another file for --save-base-logits")
        self._path, self._aside = path, path.with_name(f".{path.name}.{os.getpid()}.part")
        super().__init__(begin_logits_file(self._aside, n_ctx, n_vocab, n_chunks, tokens), writes=True)

    def keep(self) -> None:
        """Give the whole file its name."""
        self._aside.rename(self._path)

    def discard(self) -> None:
        """Remove what was written where it was not kept."""
        self._aside.unlink(missing_ok=True)


class _Lockstep:
    """A second engine, which computes the base's rows right before the model needs them."""

    def __init__(self, engine: Engine, n_vocab: int, stack: contextlib.ExitStack) -> None:
        self._engine = engine
        descriptor = os.memfd_create("ggbench-rows")
        stack.callback(os.close, descriptor)
        os.ftruncate(descriptor, max(_ROWS_BYTES, 4 * n_vocab * 64))
        self._path = f"/proc/{os.getpid()}/fd/{descriptor}"

    def of(self, request: Score, first_chunk: int) -> RowsFile | None:
        n_positions = len(request.targets[0])
        rows = RowsFile(self._path, "f32", 0, 0, n_positions, request.start, writes=True)
        _require_completed(_follow(self._engine.run(msgspec.structs.replace(request, rows=rows)))[1])
        return msgspec.structs.replace(rows, writes=False)


def _checked_file(path: Path, settings: QualitySettings, tokenized: Tokenized, tokens: Sequence[int]) -> LogitsFile:
    """The file, if it is of this text, read by this vocabulary. Raises BadFile."""
    file = read_logits_file(path)
    n_known = min(len(file.tokens), len(tokens))
    reason = ""
    if file.n_vocab != tokenized.n_vocab:
        reason = (
            f"its vocabulary has {format_count(file.n_vocab)} tokens, the model's {format_count(tokenized.n_vocab)}"
        )
    elif file.n_ctx != settings.n_ctx:
        reason = f"its chunks have {format_count(file.n_ctx)} tokens; --n-ctx {file.n_ctx} does the same"
    elif list(file.tokens[:n_known]) != list(tokens[:n_known]):
        reason = "it is of another text, or of a model with another tokenizer"
    elif len(file.tokens) < len(tokens):
        n_chunks = len(file.tokens) // file.n_ctx
        reason = f"it has {format_count(n_chunks)} chunks; --chunks {n_chunks} scores those"
    if reason:
        raise BadFile(f"{path.name} cannot be the base: {reason}", "save one with --save-base-logits")
    return file


def _scored_text(settings: QualitySettings, tokenized: Tokenized) -> ScoredText:
    """Raises UsageError for a text that is too short."""
    n_chunks = len(tokenized.tokens) // settings.n_ctx
    if n_chunks < 2:
        raise UsageError(
            f"{settings.text.name} has {format_count(len(tokenized.tokens))} tokens, and two chunks of "
            f"{format_count(settings.n_ctx)} are needed",
            "give a longer text or a smaller --n-ctx",
        )
    sha256 = hashlib.sha256(np.asarray(tokenized.tokens, "<i4").tobytes()).hexdigest()
    return ScoredText(len(tokenized.tokens), n_chunks, tokenized.n_vocab, sha256)


def _require_trained(file: ModelFile) -> None:
    if file.is_twin:
        raise Unsupported(
            f"{file.name} is a twin: weights without training have no quality", "name a published file instead"
        )


def _require_room(session: Session, base: ModelFile, available_bytes: int) -> None:
    """Raise DoesNotFit where main memory does not hold both models; what does not fit a GPU fails as it loads.

    Linux grants more memory than there is, so a load alone would not show it.
    """
    memory = Memory(buffers=() if session.allocated is None else session.allocated.buffers)
    if memory.weights_on_gpu or session.file is None:
        return
    contexts = 2 * sum(each.total_bytes - each.weight_bytes for each in memory.buffers)
    needed = (session.file.weight_bytes or 0) + (base.weight_bytes or 0) + contexts + _ROWS_BYTES
    if needed > available_bytes:
        raise DoesNotFit(
            f"the model and its base need {format_bytes(needed)} together, and {format_bytes(available_bytes)} of main "
            "memory are free",
            "score one after the other: --save-base-logits FILE with the base, then --base-logits FILE",
        )


def _require_completed(ending: Ending) -> None:
    if not isinstance(ending, Completed):
        raise _Ended(ending)


def _only(kind: type[_E], events: Sequence[Event], ending: Ending) -> _E:
    """The one event of that type. Raises _Ended."""
    _require_completed(ending)
    (found,) = (event for event in events if isinstance(event, kind))
    return found


def _follow(items: Iterator[Event | Ending]) -> tuple[list[Event], Ending]:
    """All events, and the ending."""
    *events, ending = items
    assert isinstance(ending, Ending)
    return [event for event in events if not isinstance(event, Ending)], ending
