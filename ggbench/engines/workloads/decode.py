"""Time a decode token by token."""

from __future__ import annotations

import contextlib
import gc
import time
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import Event, PromptRead, Steps

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel

FLUSH_NS = 50_000_000
"""Samples are sent at most this often, so that sending them stays out of the measurement."""


class Decode(Workload, frozen=True):
    """Clear the cache, read a prompt, then time `n_gen` tokens. Reports a `PromptRead` and any number of `Steps`."""

    name: ClassVar[str] = "decode"
    stage: ClassVar[Stage] = "decode"

    n_prompt: int
    n_gen: int


REQUEST = Decode


def carry_out(model: LlamaModel, request: Decode, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused."""
    emit(PromptRead(request.n_prompt, model.read_prompts(request.n_prompt)))
    with without_gc():
        _decode(model, request, emit)


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Keep Python's garbage collector out of what is timed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _decode(model: LlamaModel, request: Decode, emit: Callable[[Event], None]) -> None:
    """Decode greedily and past any end of generation, timing each step and each sampling.

    Nothing but the call and the clock is inside a timed region.
    """
    from llama_cpp import llama_cpp as lib

    from ggbench.engines.llama.model import LlamaRefused, TokenText

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
