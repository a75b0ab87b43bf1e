"""Sources of a base's log-probabilities, and destinations of a model's own.

If base and model run side by side, the base's rows are float32 and pass through an in-memory file of one request's
size. If both do not fit, the base is scored first, into a cache file with llama-perplexity's 16 bits per value.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from ggbench.engines.contract import Engine, RowsFile, Score, Source, Tokenize
from ggbench.engines.endings import OutOfMemory, drained, only, require_completed
from ggbench.engines.events import Memory, Tokenized
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.quality.record import QualitySettings, ScoredBase
from ggbench.files import disk_errors, require_room, temporary_folder
from ggbench.gguf_file.model_file import ModelFile
from ggbench.locks import held
from ggbench.paths import logits_dir
from ggbench.record import Record
from ggbench.runs.progress import Measuring, PointMeasured, Working
from ggbench.runs.session import Session, made_file, subject_of
from ggbench.show.names import quant_name
from ggbench.stats.logits import n_words
from ggbench.units import format_bytes

_ROWS_BYTES = 96 << 20
"""Bytes of float32 rows in memory at once: 512 rows (a whole ubatch) of a 49,152-token vocabulary, or 96 of the
largest."""

_LARGEST_VOCABULARY = 1 << 18
"""Used if the header does not say."""


def scoring_setup(settings: QualitySettings, setup: LlamaConfig, n_vocab: int | None) -> LlamaConfig:
    """Return the setup with room for all chunks decoded at once, and for the rows of one request.

    A request scores at most a ubatch of positions: more would need a second, small ubatch.
    """
    n_rows = min(_ROWS_BYTES // (4 * (n_vocab or _LARGEST_VOCABULARY)), setup.n_ubatch)
    at_once = max(1, min(n_rows // settings.n_seqs, settings.n_ctx))
    return replace(
        setup, n_ctx=settings.n_ctx_needed, n_seq_max=settings.n_seqs, n_outputs_max=settings.n_seqs * at_once
    )


class Scoring(Record):
    """The chunks of a text scored by one model."""

    session: Session
    setup: LlamaConfig
    """Made by `scoring_setup`."""
    text: str
    tokenized: Tokenized
    n_chunks: int

    @property
    def settings(self) -> QualitySettings:
        return self.session.settings(QualitySettings)

    @property
    def tokens(self) -> list[int]:
        return self.tokenized.tokens[: self.n_chunks * self.settings.n_ctx]

    @property
    def rows_bytes(self) -> int:
        """Bytes of the float32 rows scored by one request."""
        assert self.setup.n_outputs_max is not None
        return 4 * self.tokenized.n_vocab * self.setup.n_outputs_max

    def firsts(self, start: int = 0) -> range:
        """Return the first chunk number of each group decoded at once."""
        return range(start, self.n_chunks, self.settings.n_seqs)

    def count(self, first_chunk: int) -> int:
        """Return the number of chunks in the group starting here."""
        return min(self.settings.n_seqs, self.n_chunks - first_chunk)

    def requests(self, first_chunk: int) -> Iterator[Score]:
        """Split chunks decoded at once into requests: first the positions that are only read, then those scored."""
        n_ctx, bos, count = self.settings.n_ctx, self.tokenized.bos, self.count(first_chunk)
        n_skip = n_ctx // 2
        begins = range(first_chunk * n_ctx, (first_chunk + count) * n_ctx, n_ctx)
        chunks = [tuple(self.tokenized.tokens[begin : begin + n_ctx]) for begin in begins]
        with_bos = tuple(chunk if bos is None else (bos, *chunk[1:]) for chunk in chunks)
        assert self.setup.n_outputs_max is not None
        scored_at_once = self.setup.n_outputs_max // count
        starts = [*range(0, n_skip, self.setup.n_batch // count), *range(n_skip, n_ctx - 1, scored_at_once)]
        for start, stop in zip(starts, [*starts[1:], n_ctx - 1], strict=True):
            targets = tuple(chunk[start + 1 : stop + 1] if start >= n_skip else () for chunk in chunks)
            yield Score(with_bos, targets, start, stop, self.setup.threads or 1)


Rows: TypeAlias = Callable[[Score, int], RowsFile | None]
"""Returns where a request of the chunks from a number on reads the base's rows, or writes the model's own; None for a
model scored alone. Raises EngineEnded."""


def open_rows(scoring: Scoring, available_bytes: int, stack: contextlib.ExitStack) -> Measuring[Rows]:
    """Open the base of the session: a second engine, a file that it writes first, or nothing.

    The stack closes it. `available_bytes` of main memory were free before the model was opened. Raises UsageError or
    DoesNotFit for an unusable base, and EngineEnded.
    """
    session = scoring.session
    if session.base is None:
        return lambda request, first_chunk: None
    base = session.base
    file = yield from made_file(base.target, session.cancel)
    require_trained(file)
    setup = replace(scoring.setup, type_k=base.type_k, type_v=base.type_v)
    scored = ScoredBase(subject_of(base.target, file, setup), base.type_k, base.type_v)
    if _fits_beside(scoring, file, available_bytes):
        engine = session.context.launch(setup, session.cancel)
        stack.callback(engine.close)
        ending = drained(engine.open(Source(file.paths[0]), setup))[1]
        if not isinstance(ending, OutOfMemory):
            require_completed(ending)
            _require_same_tokens(engine, scoring, scored)
            session.recorder.observe(scored)
            return partial(_rows_beside, engine, stack.enter_context(_scratch_file(scoring.rows_bytes)))
        engine.close()
    session.recorder.observe(scored)
    path = yield from _kept_logits(scoring, setup, file, scored, stack)
    return partial(_kept_rows, path, scoring.settings)


def require_trained(file: ModelFile) -> None:
    """Raise Unsupported for a twin, and for a model that cannot read a text."""
    if file.is_twin:
        raise Unsupported(
            f"{file.name} is a twin: untrained weights have no quality", "use a published file instead"
        )
    if file.metadata.get("tokenizer.ggml.model", "none") == "none":
        raise Unsupported(
            f"{file.name} has no tokenizer, so it cannot read a text",
            "use a published file of the model, which has a tokenizer",
        )


def _kept_logits(
    scoring: Scoring, setup: LlamaConfig, file: ModelFile, scored: ScoredBase, stack: contextlib.ExitStack
) -> Measuring[Path]:
    """Return the cache file of the base's logits, writing it unless an earlier run did.

    `setup` is the base's; the base replaces the model while it is scored. The stack unlocks the cache. Raises like
    `open_rows`.
    """
    session, n_chunks = scoring.session, scoring.n_chunks
    path = _cache_path(scoring, setup, file)
    _lock_cache(stack)
    if path.exists():
        return path
    for other in path.parent.glob("*"):  # each takes gigabytes
        with contextlib.suppress(OSError):
            other.unlink()
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    stack.callback(aside.unlink, missing_ok=True)
    n_rows = scoring.settings.n_scored_per_chunk * n_chunks
    n_bytes = 2 * n_words(scoring.tokenized.n_vocab) * n_rows
    _reserve(aside, n_bytes)
    name = quant_name(scored.subject)
    yield PointMeasured(
        f"the model and its base do not fit into memory together: {name} is scored first, into a file of "
        f"{format_bytes(n_bytes)} in ggbench's cache",
        scored,
    )
    require_completed(drained(session.engine.open(Source(file.paths[0]), setup))[1])
    _require_same_tokens(session.engine, scoring, scored)
    for first in scoring.firsts():
        yield Working("score", first, n_chunks, f"base {name}")
        for request in scoring.requests(first):
            asked = replace(request, rows=_kept_rows(aside, scoring.settings, request, first, writes=True))
            require_completed((yield from session.ask(asked))[1])
    aside.replace(path)
    require_completed((yield from session.open(scoring.setup)))
    return path


def _cache_path(scoring: Scoring, setup: LlamaConfig, file: ModelFile) -> Path:
    """Return a name derived from everything that affects the logits: file, load settings, llama.cpp version and
    tokens.
    """
    state, environment = file.paths[0].stat(), scoring.session.environment
    decisive = (
        str(file.paths[0].absolute()),
        state.st_size,
        state.st_mtime_ns,
        setup,
        None if environment is None else environment.llama_cpp,
        scoring.settings.n_ctx,
        scoring.settings.n_seqs,
        scoring.tokenized.n_vocab,
    )
    digest = hashlib.sha256(msgspec.json.encode(decisive) + np.asarray(scoring.tokens, "<i4").tobytes())
    return logits_dir() / f"{digest.hexdigest()[:16]}.rows"


def _lock_cache(stack: contextlib.ExitStack) -> None:
    """Keep other processes out of the cache of logits until the stack is closed. Raises UsageError if one is there."""
    with contextlib.suppress(OSError):  # a folder that cannot be created cannot be written, which has a message
        logits_dir().mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(held(logits_dir()))
        except BlockingIOError:
            what = "another ggbench is using the cached logits of a base"
            raise UsageError(what, "wait until it has ended, then run the command again") from None


@contextlib.contextmanager
def _scratch_file(n_bytes: int) -> Iterator[str]:
    """Yield the path of a temporary file that this user's processes can open; in memory on Linux."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("ggbench-rows")
        try:
            os.ftruncate(descriptor, n_bytes)
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with temporary_folder() as folder:
            path = folder / "rows"
            path.touch()
            os.truncate(path, n_bytes)
            yield str(path)


def _reserve(path: Path, n_bytes: int) -> None:
    """Create a file of this size. Raises DoesNotFit or UsageError if it cannot be written."""
    hint = "point XDG_CACHE_HOME at another folder"
    require_room(path.parent, n_bytes, "the base's logits take", hint)
    with disk_errors(path.parent, hint), path.open("wb") as file:
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, n_bytes)  # a disk that fills up later would kill the worker
        file.truncate(n_bytes)


def _kept_rows(
    path: Path, settings: QualitySettings, request: Score, first_chunk: int, *, writes: bool = False
) -> RowsFile:
    """Return the rows of a request in the cache file."""
    per_chunk = settings.n_scored_per_chunk
    return RowsFile(str(path), "u16", first_chunk * per_chunk, per_chunk, settings.n_ctx // 2, writes)


def _rows_beside(engine: Engine, path: str, request: Score, first_chunk: int) -> RowsFile:
    """Have a second engine compute the base's rows right before the model needs them."""
    rows = RowsFile(path, "f32", 0, len(request.targets[0]), request.start, writes=True)
    require_completed(drained(engine.run(replace(request, rows=rows)))[1])
    return replace(rows, writes=False)


def _require_same_tokens(engine: Engine, scoring: Scoring, base: ScoredBase) -> None:
    """Raise UsageError for a base with another tokenizer."""
    if only(Tokenized, *drained(engine.run(Tokenize(scoring.text)))) != scoring.tokenized:
        name = quant_name(base.subject)
        raise UsageError(
            f"{name} tokenizes the text differently, so it cannot be the base of this model",
            "--base needs a quant of the same model",
        )


def _fits_beside(scoring: Scoring, base: ModelFile, available_bytes: int) -> bool:
    """Return whether the base and the open model fit in main memory; on a GPU, loading the base shows it.

    Linux overcommits, so in main memory loading would not show it.
    """
    session = scoring.session
    memory = Memory(buffers=() if session.allocated is None else session.allocated.buffers)
    if memory.weights_on_gpu or session.file is None:
        return True
    contexts_bytes = 2 * sum(each.total_bytes - each.weight_bytes for each in memory.buffers)
    weight_bytes = (session.file.weight_bytes or 0) + (base.weight_bytes or 0)
    return weight_bytes + contexts_bytes + scoring.rows_bytes <= available_bytes
