"""Score a text: how well the model predicts each next token, alone or beside another model's log-probabilities."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggbench.engines.events import Event, Scored
from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.model import LlamaModel, LlamaRefused
from ggbench.engines.workloads import RowsFile, Score
from ggbench.stats.logits import Row, RowScorer, TokenScore, n_words, pack


def score(model: LlamaModel, request: Score, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused where llama.cpp does, and for logits that are no numbers."""
    context = model.context("score")
    if not request.start:
        model.clear_cache()
    n_scored = len(request.targets[0])
    _decode(context, request, n_scored)
    n_vocab = lib.llama_vocab_n_tokens(model.vocab)
    n_rows = n_scored * len(request.chunks)
    if not n_rows:
        lib.llama_synchronize(context)
        return emit(Scored())
    logits = np.ctypeslib.as_array(lib.llama_get_logits(context), shape=(n_rows, n_vocab))
    targets = [token for chunk in request.targets for token in chunk]
    with ExitStack() as stack:
        base = None if request.rows is None else stack.enter_context(_Rows(request.rows, n_vocab))
        numbers = [
            base.index(chunk, request.start + offset) if base else 0
            for chunk in range(len(request.chunks))
            for offset in range(n_scored)
        ]

        def score_each(first: int) -> list[TokenScore]:
            """Every `threads`-th row, from the first one on."""
            scorer = RowScorer(n_vocab)
            return [
                _score(scorer, logits[row], targets[row], base, numbers[row])
                for row in range(first, n_rows, request.threads)
            ]

        pool = stack.enter_context(ThreadPoolExecutor(request.threads))
        found: list[TokenScore] = [TokenScore(0.0)] * n_rows
        for first, scores in enumerate(pool.map(score_each, range(request.threads))):
            found[first :: request.threads] = scores
    if not all(np.isfinite(each.nll) for each in found):
        whose = "base" if base is not None and base.writes else "model"
        raise LlamaRefused("score", f"the {whose}'s logits are not numbers; its file may be broken")
    is_compared = base is not None and not base.writes
    if is_compared and not all(np.isfinite(each.base_nll + each.kld + each.p_diff) for each in found):
        raise LlamaRefused("score", "the base's log-probabilities are not numbers; its file may be broken")
    emit(
        Scored(
            [each.nll for each in found],
            [each.base_nll for each in found] if is_compared else [],
            [each.kld for each in found] if is_compared else [],
            [each.p_diff for each in found] if is_compared else [],
            sum(each.same_top for each in found),
        )
    )
    return None


def _score(scorer: RowScorer, logits: Row, token: int, base: _Rows | None, number: int) -> TokenScore:
    if base is None:
        return TokenScore(scorer.nll(logits, token))
    if base.writes:
        return TokenScore(base.write(number, logits, token, scorer))
    return scorer.score(scorer.log_probs(logits), token, base.read(number, scorer))


def _decode(context: Any, request: Score, n_scored: int) -> None:  # noqa: ANN401 - a ctypes pointer
    n_tokens = len(request.chunks) * (request.stop - request.start)
    batch = lib.llama_batch_init(n_tokens, 0, 1)
    try:
        batch.n_tokens = n_tokens
        index = 0
        for seq, chunk in enumerate(request.chunks):
            for position in range(request.start, request.stop):
                batch.token[index], batch.pos[index] = chunk[position], position
                batch.n_seq_id[index], batch.seq_id[index][0] = 1, seq
                batch.logits[index] = position < request.start + n_scored
                index += 1
        status = lib.llama_decode(context, batch)
    finally:
        lib.llama_batch_free(batch)
    if status:
        raise LlamaRefused("score", f"llama_decode returned {status} at position {request.start}")


class _Rows:
    """The rows of a file, mapped while a request is carried out."""

    def __init__(self, rows: RowsFile, n_vocab: int) -> None:
        self._rows, self._n_vocab = rows, n_vocab
        self.writes = rows.writes
        self._row_bytes = 4 * n_vocab if rows.format == "f32" else 2 * n_words(n_vocab)
        self._map: mmap.mmap | None = None

    def __enter__(self) -> _Rows:
        descriptor = os.open(self._rows.path, os.O_RDWR if self.writes else os.O_RDONLY)
        try:
            access = mmap.ACCESS_WRITE if self.writes else mmap.ACCESS_READ
            self._map = mmap.mmap(descriptor, 0, access=access)
        finally:
            os.close(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._map is not None:
            self._map.close()

    def index(self, chunk: int, position: int) -> int:
        """Number of a position's row in the file."""
        rows = self._rows
        return rows.first_row + chunk * rows.rows_per_chunk + position - rows.first_position

    def write(self, number: int, logits: Row, token: int, scorer: RowScorer) -> float:
        """Keep a row of the base; return the nll of the true token."""
        if self._rows.format == "f32":
            return -float(scorer.log_probs(logits, self._at(number, "f4"))[token])
        pack(logits, self._at(number, "u2"))
        return scorer.nll(logits, token)

    def read(self, number: int, scorer: RowScorer) -> Row:
        """Log-probabilities of the base."""
        return self._at(number, "f4") if self._rows.format == "f32" else scorer.unpack(self._at(number, "u2"))

    def _at(self, number: int, dtype: str) -> NDArray[Any]:
        assert self._map is not None
        first_byte = self._rows.first_byte + number * self._row_bytes
        return np.frombuffer(self._map, dtype, self._row_bytes // int(dtype[1]), first_byte)
