"""Speculative decoding in llama.cpp's worker: a model and its draft, timed as llama-server runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ggbench.engines.contract import Speculate
from ggbench.engines.events import Event, Speculated
from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.context_cells import fill
from ggbench.engines.llama.model import LlamaModel, new_batch
from ggbench.engines.protocol import Refusal
from ggbench.engines.timed_steps import without_gc

_FIRST_TOKEN = 5
"""SPEC_VOCAB_CHECK_START_TOKEN_ID of llama.cpp's speculative.cpp: special tokens before it may differ."""
_TARGET_TOP_K, _DRAFT_TOP_K = 40, 10
"""What llama-server's samplers keep of the logits, by default and of a draft."""


def speculate(model: LlamaModel, request: Speculate, emit: Callable[[Event], None]) -> None:
    """Time the steps of `Speculate`. Raises Refusal, also for a model that cannot forget the last tokens."""
    with ExitStack() as stack:
        pair = _Pair(stack, model, request.n_drafted, request.n_depth)
        for each in pair.models:
            fill(each, request.n_depth)
        pair.timed_step(max(request.n_drafted))
        stack.enter_context(without_gc())
        for _ in range(request.n_passes):
            single_ns, sampler_ns = pair.timed_singles(request.n_single)
            emit(Speculated(single_ns, sampler_ns, [pair.timed_step(k) for k in request.n_drafted]))


class _Pair:
    """A model and its draft, with batches made in advance: nothing else is inside a timed region."""

    def __init__(self, stack: ExitStack, model: LlamaModel, ks: Sequence[int], n_past: int) -> None:
        """The batches are for `n_past` cells in use. Raises Refusal without a draft."""
        draft = model.draft
        if draft is None:
            raise Refusal("decode", "no draft is loaded")
        self.models, self._n_past = (model, draft), n_past
        self.target, self.draft = model.context("decode"), draft.context("decode")

        def batch(of: LlamaModel, n_tokens: int, *, has_all_logits: bool) -> Any:  # noqa: ANN401 - a structure of llama_cpp's
            tokens, last = of.prompt_tokens(n_tokens), n_tokens - 1
            rows = [(token, n_past + at, 0, has_all_logits or at == last) for at, token in enumerate(tokens)]
            return stack.enter_context(new_batch(rows))

        # each by its own model's tokens: a draft's vocabulary may lack the last of the model's
        self.single, self.drafted = (batch(each, 1, has_all_logits=True) for each in self.models)
        self.verify = {k: batch(model, k + 1, has_all_logits=True) for k in ks}
        self.reread = {k: batch(draft, k + 1, has_all_logits=False) for k in ks}
        self.target_sampler = stack.enter_context(_sampler(_TARGET_TOP_K))
        self.draft_sampler = stack.enter_context(_sampler(_DRAFT_TOP_K))

    def timed_singles(self, n_single: int) -> tuple[list[int], int]:
        """Return the nanoseconds of single tokens after an untimed one, and of choosing the next."""
        found, sampler_ns, clock = [], 0, time.perf_counter_ns
        for _ in range(1 + n_single):
            started = clock()
            status = lib.llama_decode(self.target, self.single)
            lib.llama_synchronize(self.target)
            decoded = clock()
            lib.llama_sampler_sample(self.target_sampler, self.target, -1)
            sampler_ns = clock() - decoded
            _require(status)
            _forget(self.target, self._n_past)
            found.append(decoded - started)
        return found[1:], sampler_ns

    def timed_step(self, k: int) -> int:
        """Return the nanoseconds of one step of `k` drafted tokens."""
        clock, llama_decode, llama_synchronize = time.perf_counter_ns, lib.llama_decode, lib.llama_synchronize
        one, sample, sampler = self.drafted, lib.llama_sampler_sample, self.draft_sampler
        draft, verify, reread = self.draft, self.verify[k], self.reread[k]
        started = clock()
        for at in range(k):
            one.pos[0] = self._n_past + at
            _require(llama_decode(draft, one))  # without logits, a sampler would abort
            one.token[0] = sample(sampler, draft, -1)
        _forget(draft, self._n_past)
        status = llama_decode(self.target, verify)
        llama_synchronize(self.target)
        status = status or llama_decode(draft, reread)
        llama_synchronize(draft)
        _forget(draft, self._n_past)
        _forget(self.target, self._n_past)
        ended = clock()
        _require(status)
        return ended - started


def _forget(context: Any, n_past: int) -> None:  # noqa: ANN401 - a ctypes pointer
    """Remove all tokens after the first `n_past` from a cache."""
    if not lib.llama_memory_seq_rm(lib.llama_get_memory(context), 0, n_past, -1):
        raise Refusal("decode", "llama.cpp cannot remove the last tokens from this model's cache")


def _require(status: int) -> None:
    if status:
        raise Refusal("decode", f"llama_decode returned {status} in a step of speculative decoding")


@contextmanager
def _sampler(top_k: int) -> Iterator[Any]:
    """Yield a sampler that takes the most likely of the `top_k` tokens, in llama-server's way."""
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_k(top_k))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
    try:
        yield chain
    finally:
        lib.llama_sampler_free(chain)


def check_vocabularies(model: LlamaModel, draft: LlamaModel) -> None:
    """Raise Refusal for vocabularies that llama-server does not accept; twins, which have none, pass.

    Source: `common_speculative_are_compatible` in llama.cpp's speculative.cpp.
    """
    ours, theirs = model.vocab, draft.vocab
    if lib.LLAMA_VOCAB_TYPE_NONE in (lib.llama_vocab_type(ours), lib.llama_vocab_type(theirs)):
        return
    for what, differs in (
        ("tokenizers", lib.llama_vocab_type(ours) != lib.llama_vocab_type(theirs)),
        ("first tokens", _end(ours, "bos") != _end(theirs, "bos")),
        ("last tokens", _end(ours, "eos") != _end(theirs, "eos")),
    ):
        if differs:
            raise Refusal("load", f"the model and its draft have different {what}")
    for token in range(_FIRST_TOKEN, min(map(lib.llama_vocab_n_tokens, (ours, theirs)))):
        if lib.llama_vocab_get_text(ours, token) != lib.llama_vocab_get_text(theirs, token):
            raise Refusal("load", f"token {token} of the model's vocabulary differs from the draft's")


def _end(vocab: Any, name: str) -> int | None:  # noqa: ANN401 - a ctypes pointer
    """Return the token that a model adds before or after a text; None if it adds none."""
    is_added = getattr(lib, f"llama_vocab_get_add_{name}")(vocab)
    return int(getattr(lib, f"llama_vocab_{name}")(vocab)) if is_added else None
