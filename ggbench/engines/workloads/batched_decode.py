"""Time a decode of several sequences at once, one token of each in every step."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import Event, PromptRead, ReadingPrompts, Steps
from ggbench.engines.workloads.decode import FLUSH_NS, without_gc

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel


class BatchedDecode(Workload, frozen=True):
    """Clear the cache, read a prompt of its own for each of `n_seqs` sequences, then time `n_gen` steps of all of them.

    As in llama-batched-bench no prompt is shared and the decoded tokens are random, so each sequence goes its own way,
    as do the experts that it asks for, and nothing ends a generation. The context needs `n_seq_max` of at least
    `n_seqs`, and room for `n_seqs` x (n_prompt + n_gen) tokens. Reports any number of `ReadingPrompts`, a `PromptRead`,
    and any number of `Steps`, whose positions are those of one sequence.
    """

    name: ClassVar[str] = "batched_decode"
    stage: ClassVar[Stage] = "decode"

    n_prompt: int
    n_gen: int
    n_seqs: int

    @property
    def n_outputs(self) -> int:
        """One of each sequence in every step."""
        return self.n_seqs


REQUEST = BatchedDecode


def carry_out(model: LlamaModel, request: BatchedDecode, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused."""
    from llama_cpp import llama_cpp as lib

    elapsed_ns = model.read_prompts(request.n_prompt, request.n_seqs, lambda share: emit(ReadingPrompts(share)))
    context = model.context("decode")
    started = time.perf_counter_ns()
    lib.llama_sampler_sample(model.sampler, context, -1)
    sample_ns = time.perf_counter_ns() - started
    emit(PromptRead(request.n_prompt, elapsed_ns, request.n_seqs, sample_ns))
    with without_gc():
        _decode(model, request, emit)


def _decode(model: LlamaModel, request: BatchedDecode, emit: Callable[[Event], None]) -> None:
    """Decode random tokens; nothing but the call and the clock is inside a timed region."""
    from llama_cpp import llama_cpp as lib

    from ggbench.engines.llama.model import LlamaRefused

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
