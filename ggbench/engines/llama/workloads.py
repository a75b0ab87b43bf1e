"""llama.cpp's workloads, in its worker. Each function raises Refusal if llama.cpp fails."""

from __future__ import annotations

import mmap
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggbench.engines.contract import (
    BatchAtDepth,
    BatchedDecode,
    Decode,
    DecodeAtDepth,
    Prefill,
    ProveContext,
    RowsFile,
    Score,
    Speculate,
    TakeTurn,
    Tokenize,
    Workload,
)
from ggbench.engines.events import Event, PromptRead, ReadingPrompts, Scored, Tokenized, TurnStarted
from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.context_cells import decode_at_depth, prove_context
from ggbench.engines.llama.model import LlamaModel, new_batch
from ggbench.engines.llama.speculation import speculate
from ggbench.engines.protocol import Refusal
from ggbench.engines.timed_steps import time_steps
from ggbench.stats.logits import Row, RowScorer, TokenScore, n_words, pack

Emit = Callable[[Event], None]


def carry_out(model: LlamaModel, request: Workload, emit: Emit) -> None:
    _CARRIED_OUT[type(request)](model, request, emit)


def _prefill(model: LlamaModel, request: Prefill, emit: Emit) -> None:
    n_prompts = request.warmup + request.repeat
    for number in range(n_prompts):

        def report(share: float, number: int = number) -> None:
            emit(ReadingPrompts((number + share) / n_prompts, request.n_prompt))

        report(0.0)
        elapsed_ns = model.read_prompts(request.n_prompt, 1, report)
        if number >= request.warmup:
            emit(PromptRead(request.n_prompt, elapsed_ns))


def _decode(model: LlamaModel, request: Decode, emit: Emit) -> None:
    elapsed_ns = model.read_prompts(
        request.n_prompt, 1, lambda share: emit(ReadingPrompts(share, request.n_prompt))
    )
    emit(PromptRead(request.n_prompt, elapsed_ns))
    _timed_decode(model, request, emit)


def _take_turn(model: LlamaModel, request: TakeTurn, emit: Emit) -> None:
    n_cached = model.keep(request.n_kept)
    tokens = model.prompt_tokens(request.n_prompt, n_cached)
    wait_ns = model.read(tokens, lambda share: emit(ReadingPrompts(share, len(tokens))), keeps_cache=True)
    emit(TurnStarted(n_cached, wait_ns))
    _timed_decode(model, request, emit)


def _timed_decode(model: LlamaModel, request: Decode, emit: Emit) -> None:
    """Decode greedily and past any end of generation, timing each step and each sampling."""
    context, clock, sampler = model.context("decode"), time.perf_counter_ns, model.sampler
    llama_sampler_sample = lib.llama_sampler_sample
    token = (lib.llama_token * 1)(llama_sampler_sample(sampler, context, -1))
    decode = _timed_call(context, lib.llama_batch_get_one(token, 1), request.n_gen)

    def step(index: int) -> tuple[int, int]:
        step_ns, decoded = decode(index)
        token[0] = llama_sampler_sample(sampler, context, -1)
        return step_ns, clock() - decoded

    time_steps(request.n_prompt, request.n_gen, step, emit)


def _timed_call(context: Any, batch: Any, n_gen: int) -> Callable[[int], tuple[int, int]]:  # noqa: ANN401 - of ctypes
    """Return a function that decodes the batch, and returns the nanoseconds and the time of its end.

    Nothing but the call and the clock is inside a timed region.
    """
    llama_decode, llama_synchronize, clock = lib.llama_decode, lib.llama_synchronize, time.perf_counter_ns

    def decode(index: int) -> tuple[int, int]:
        before = clock()
        status = llama_decode(context, batch)
        llama_synchronize(context)
        decoded = clock()
        if status:
            raise Refusal("decode", f"llama_decode returned {status} at step {index + 1} of {n_gen}")
        return decoded - before, decoded

    return decode


def _batched_decode(model: LlamaModel, request: BatchedDecode, emit: Emit) -> None:
    elapsed_ns = model.read_prompts(
        request.n_prompt, request.n_seqs, lambda share: emit(ReadingPrompts(share, request.n_prompt))
    )
    emit(PromptRead(request.n_prompt, elapsed_ns, request.n_seqs))
    n_vocab, n_seqs = lib.llama_vocab_n_tokens(model.vocab), request.n_seqs
    tokens = random.Random(n_vocab).choices(range(n_vocab), k=request.n_gen * n_seqs)
    with new_batch([(0, request.n_prompt, seq, True) for seq in range(n_seqs)]) as batch:
        decode = _timed_call(model.context("decode"), batch, request.n_gen)

        def step(index: int) -> tuple[int, None]:
            for seq in range(n_seqs):
                batch.token[seq], batch.pos[seq] = tokens[index * n_seqs + seq], request.n_prompt + index
            return decode(index)[0], None

        time_steps(request.n_prompt, request.n_gen, step, emit)


def _tokenize(model: LlamaModel, request: Tokenize, emit: Emit) -> None:
    vocab, tokens = model.vocab, model.tokenize(request.text, "score")
    bos = lib.llama_vocab_bos(vocab) if lib.llama_vocab_get_add_bos(vocab) else None
    emit(Tokenized(list(tokens), lib.llama_vocab_n_tokens(vocab), bos))


def _score(model: LlamaModel, request: Score, emit: Emit) -> None:
    """Score rows of logits. Raises Refusal if llama.cpp fails, or for NaN and infinite logits."""
    context = model.context("score")
    if not request.start:
        model.clear_cache()
    _decode_chunks(context, request, len(request.targets[0]))
    if not request.n_outputs:
        lib.llama_synchronize(context)
        emit(Scored())
        return
    n_vocab = lib.llama_vocab_n_tokens(model.vocab)
    logits = np.ctypeslib.as_array(lib.llama_get_logits(context), shape=(request.n_outputs, n_vocab))
    if request.rows is None:
        emit(_scored(_score_rows(request, logits, None), None))
        return
    with closing(_Rows(request.rows, n_vocab)) as base:
        emit(_scored(_score_rows(request, logits, base), base))


def _score_rows(request: Score, logits: NDArray[Any], base: _Rows | None) -> list[TokenScore]:
    """Return the score of each row, computed in threads."""
    targets = [token for chunk in request.targets for token in chunk]
    n_scored, n_vocab = len(request.targets[0]), logits.shape[1]

    def score_each(first: int) -> list[TokenScore]:
        """Score every `threads`-th row, from `first` on."""
        scorer, found = RowScorer(n_vocab), []
        for row in range(first, len(targets), request.threads):
            chunk, offset = divmod(row, n_scored)
            found.append(_score_row(scorer, logits[row], targets[row], base, (chunk, request.start + offset)))
        return found

    found: list[TokenScore] = [TokenScore(0.0)] * len(targets)
    with ThreadPoolExecutor(request.threads) as pool:
        for first, scores in enumerate(pool.map(score_each, range(request.threads))):
            found[first :: request.threads] = scores
    return found


def _score_row(
    scorer: RowScorer, logits: Row, token: int, base: _Rows | None, position: tuple[int, int]
) -> TokenScore:
    """Return the score of a row, given by its chunk and its position there."""
    if base is None:
        return TokenScore(scorer.nll(logits, token))
    number = base.index(*position)
    if base.writes:
        return TokenScore(base.write(number, logits, token, scorer))
    return scorer.score(scorer.log_probs(logits), token, base.read(number, scorer))


def _scored(found: Sequence[TokenScore], base: _Rows | None) -> Scored:
    """Return the scores as an event. Raises Refusal for NaN and infinite logits."""
    is_base, is_compared = base is not None and base.writes, base is not None and not base.writes
    names = ("nll", "base_nll", "kld", "p_diff", "same_top") if is_compared else ("nll",)
    scores = {name: [getattr(each, name) for each in found] for name in names}
    if not np.isfinite(scores["nll"]).all():
        raise Refusal("score", f"the {'base' if is_base else 'model'}'s logits contain NaN or Inf")
    if not np.isfinite(list(scores.values())).all():
        raise Refusal("score", "the base logits contain NaN or Inf")
    return Scored(**scores)


def _decode_chunks(context: Any, request: Score, n_scored: int) -> None:  # noqa: ANN401 - a ctypes pointer
    rows: list[tuple[int, int, int, bool]] = []
    for seq, chunk in enumerate(request.chunks):
        rows += [
            (chunk[at], at, seq, at < request.start + n_scored) for at in range(request.start, request.stop)
        ]
    with new_batch(rows) as batch:
        status = lib.llama_decode(context, batch)
    if status:
        raise Refusal("score", f"llama_decode returned {status} at position {request.start}")


class _Rows:
    """The rows of a file, mapped until `close`."""

    def __init__(self, rows: RowsFile, n_vocab: int) -> None:
        self._rows = rows
        self.writes = rows.writes
        self._row_bytes = 4 * n_vocab if rows.format == "f32" else 2 * n_words(n_vocab)
        with Path(rows.path).open("r+b" if rows.writes else "rb") as file:
            access = mmap.ACCESS_WRITE if rows.writes else mmap.ACCESS_READ
            self._map = mmap.mmap(file.fileno(), 0, access=access)
        self.close = self._map.close

    def index(self, chunk: int, position: int) -> int:
        """Return the number of a position's row in the file."""
        rows = self._rows
        return rows.first_row + chunk * rows.rows_per_chunk + position - rows.first_position

    def write(self, number: int, logits: Row, token: int, scorer: RowScorer) -> float:
        """Store a row of the base; return the nll of the true token."""
        if self._rows.format == "f32":
            return -float(scorer.log_probs(logits, self._at(number, "f4"))[token])
        pack(logits, self._at(number, "u2"))
        return scorer.nll(logits, token)

    def read(self, number: int, scorer: RowScorer) -> Row:
        return self._at(number, "f4") if self._rows.format == "f32" else scorer.unpack(self._at(number, "u2"))

    def _at(self, number: int, dtype: str) -> NDArray[Any]:
        return np.frombuffer(self._map, dtype, self._row_bytes // int(dtype[1]), number * self._row_bytes)


_CARRIED_OUT: Mapping[type[Workload], Callable[[LlamaModel, Any, Emit], None]] = {
    Prefill: _prefill,
    Decode: _decode,
    TakeTurn: _take_turn,
    BatchedDecode: _batched_decode,
    DecodeAtDepth: decode_at_depth,
    BatchAtDepth: decode_at_depth,
    Speculate: speculate,
    ProveContext: prove_context,
    Tokenize: _tokenize,
    Score: _score,
}
