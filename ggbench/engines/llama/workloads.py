"""How llama.cpp carries out the workloads, in its worker. Each function raises LlamaRefused where llama.cpp does."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from ggbench.engines.contract import Workload
from ggbench.engines.events import Event, PromptRead, ReadingPrompts, Steps, Tokenized
from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.context_cells import decode_at_depth, prove_context
from ggbench.engines.llama.model import LlamaModel, LlamaRefused, TokenText
from ggbench.engines.workloads import (
    FLUSH_NS,
    BatchedDecode,
    Decode,
    DecodeAtDepth,
    Prefill,
    ProveContext,
    Score,
    Tokenize,
    without_gc,
)


def carry_out(model: LlamaModel, request: Workload, emit: Callable[[Event], None]) -> None:
    """Carry out a workload. Raises LlamaRefused."""
    _CARRIED_OUT[type(request)](model, request, emit)


def _prefill(model: LlamaModel, request: Prefill, emit: Callable[[Event], None]) -> None:
    for number in range(request.warmup + request.repeat):
        elapsed_ns = model.read_prompts(request.n_prompt)
        if number >= request.warmup:
            emit(PromptRead(request.n_prompt, elapsed_ns))


def _decode(model: LlamaModel, request: Decode, emit: Callable[[Event], None]) -> None:
    emit(PromptRead(request.n_prompt, model.read_prompts(request.n_prompt)))
    with without_gc():
        _timed_decode(model, request, emit)


def _timed_decode(model: LlamaModel, request: Decode, emit: Callable[[Event], None]) -> None:
    """Decode greedily and past any end of generation, timing each step and each sampling.

    Nothing but the call and the clock is inside a timed region.
    """
    llama_decode, llama_synchronize = lib.llama_decode, lib.llama_synchronize
    llama_sampler_sample = lib.llama_sampler_sample
    n_gen, context = request.n_gen, model.context("decode")
    clock, sampler = time.perf_counter_ns, model.sampler
    token = (lib.llama_token * 1)(llama_sampler_sample(sampler, context, -1))
    batch = lib.llama_batch_get_one(token, 1)
    step_ns, sample_ns, tokens = (array(code, bytes(size * n_gen)) for code, size in (("q", 8), ("q", 8), ("i", 4)))
    text = TokenText(model.vocab)
    sent, sent_at = 0, clock()

    def send(end: int) -> None:
        steps, samples = step_ns[sent:end].tolist(), sample_ns[sent:end].tolist()
        emit(Steps(request.n_prompt + 1 + sent, steps, samples, text.add(tokens[sent:end])))

    for i in range(n_gen):
        tokens[i] = token[0]
        before = clock()
        status = llama_decode(context, batch)
        llama_synchronize(context)
        decoded = clock()
        if status:
            send(i)
            raise LlamaRefused("decode", f"llama_decode returned {status} at token {i + 1} of {n_gen}")
        token[0] = llama_sampler_sample(sampler, context, -1)
        sampled = clock()
        step_ns[i] = decoded - before
        sample_ns[i] = sampled - decoded
        if sampled - sent_at > FLUSH_NS or i + 1 == n_gen:
            send(i + 1)
            sent, sent_at = i + 1, clock()


def _batched_decode(model: LlamaModel, request: BatchedDecode, emit: Callable[[Event], None]) -> None:
    elapsed_ns = model.read_prompts(request.n_prompt, request.n_seqs, lambda share: emit(ReadingPrompts(share)))
    context = model.context("decode")
    started = time.perf_counter_ns()
    lib.llama_sampler_sample(model.sampler, context, -1)
    sample_ns = time.perf_counter_ns() - started
    emit(PromptRead(request.n_prompt, elapsed_ns, request.n_seqs, sample_ns))
    with without_gc():
        _timed_batches(model, request, emit)


def _timed_batches(model: LlamaModel, request: BatchedDecode, emit: Callable[[Event], None]) -> None:
    """Decode random tokens; nothing but the call and the clock is inside a timed region."""
    llama_decode, llama_synchronize = lib.llama_decode, lib.llama_synchronize
    n_gen, n_seqs, context = request.n_gen, request.n_seqs, model.context("decode")
    n_vocab = lib.llama_vocab_n_tokens(model.vocab)
    tokens = array("i", random.Random(n_vocab).choices(range(n_vocab), k=n_gen * n_seqs))
    clock = time.perf_counter_ns
    step_ns = array("q", bytes(8 * n_gen))
    batch = lib.llama_batch_init(n_seqs, 0, 1)
    try:
        batch.n_tokens = n_seqs
        for seq in range(n_seqs):
            batch.pos[seq], batch.logits[seq] = request.n_prompt, True
            batch.n_seq_id[seq], batch.seq_id[seq][0] = 1, seq
        sent, sent_at = 0, clock()
        for i in range(n_gen):
            for seq in range(n_seqs):
                batch.token[seq], batch.pos[seq] = tokens[i * n_seqs + seq], request.n_prompt + i
            before = clock()
            status = llama_decode(context, batch)
            llama_synchronize(context)
            decoded = clock()
            if status:
                emit(Steps(request.n_prompt + 1 + sent, step_ns[sent:i].tolist(), []))
                raise LlamaRefused("decode", f"llama_decode returned {status} at step {i + 1} of {n_gen}")
            step_ns[i] = decoded - before
            if decoded - sent_at > FLUSH_NS or i + 1 == n_gen:
                end = i + 1
                emit(Steps(request.n_prompt + 1 + sent, step_ns[sent:end].tolist(), []))
                sent, sent_at = end, clock()
    finally:
        lib.llama_batch_free(batch)


def _tokenize(model: LlamaModel, request: Tokenize, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused for a model without a tokenizer."""
    vocab = model.vocab
    if lib.llama_vocab_type(vocab) == lib.LLAMA_VOCAB_TYPE_NONE:
        raise LlamaRefused("score", "the model has no tokenizer, so it cannot read a text")
    text = request.text.encode()
    n_tokens = -lib.llama_tokenize(vocab, text, len(text), None, 0, True, False)
    buffer = (lib.llama_token * max(0, n_tokens))()
    if lib.llama_tokenize(vocab, text, len(text), buffer, n_tokens, True, False) != n_tokens:
        raise LlamaRefused("score", "the model's tokenizer could not read the text")
    adds_bos = lib.llama_vocab_get_add_bos(vocab)
    bos = lib.llama_vocab_bos(vocab) if adds_bos else None
    emit(Tokenized(list(buffer), lib.llama_vocab_n_tokens(vocab), bos))


def _score(model: LlamaModel, request: Score, emit: Callable[[Event], None]) -> None:
    from ggbench.engines.llama.scoring import score

    score(model, request, emit)


_CARRIED_OUT: Mapping[type[Workload], Callable[[LlamaModel, Any, Callable[[Event], None]], None]] = {
    Prefill: _prefill,
    Decode: _decode,
    BatchedDecode: _batched_decode,
    DecodeAtDepth: decode_at_depth,
    ProveContext: prove_context,
    Tokenize: _tokenize,
    Score: _score,
}
