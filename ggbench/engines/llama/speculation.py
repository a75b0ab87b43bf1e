"""Speculative decoding in llama.cpp's worker: a model and its draft, timed as llama-server runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ggbench.engines.contract import DraftText, Speculate, without_gc
from ggbench.engines.events import Event, Speculated, SpeculativeStep, TextDrafted
from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.context_cells import fill
from ggbench.engines.llama.model import LlamaModel, new_batch
from ggbench.engines.protocol import Refusal

_FIRST_TOKEN = 5
"""SPEC_VOCAB_CHECK_START_TOKEN_ID of llama.cpp's speculative.cpp: special tokens before it may differ."""
_TARGET_TOP_K, _DRAFT_TOP_K = 40, 10
"""What llama-server's samplers keep of the logits, by default and of a draft."""


def speculate(model: LlamaModel, request: Speculate, emit: Callable[[Event], None]) -> None:
    """Time the steps of `Speculate`. Raises Refusal, also for a model that cannot forget the last tokens."""
    draft = model.draft
    with ExitStack() as stack:
        timer = _Timer(stack, model, draft, request)
        for each in filter(None, (model, draft)):
            fill(each, request.n_depth)
        timer.step(max(request.n_drafted))
        stack.enter_context(without_gc())
        for _ in range(request.n_passes):
            single_ns, sampler_ns = timer.singles(request.n_single)
            emit(Speculated(single_ns, sampler_ns, [timer.step(k) for k in request.n_drafted]))


def draft_text(model: LlamaModel, request: DraftText, emit: Callable[[Event], None]) -> None:
    """Generate the text of `DraftText` twice. Raises Refusal."""
    draft = model.draft
    if draft is None:
        raise Refusal("decode", "no draft is loaded")
    prompt = model.tokenize(request.text, "decode")
    with ExitStack() as stack:
        generator = _Generator(stack, model, draft, request.n_drafted)
        stack.enter_context(without_gc())
        times, texts, accepted = {}, {}, list[int]()
        for drafts in (request.drafts_first, not request.drafts_first):
            generator.read(prompt)
            n_gen, started = request.n_gen, time.perf_counter_ns()
            texts[drafts] = generator.drafted(n_gen, accepted) if drafts else generator.plain(n_gen)
            times[drafts] = time.perf_counter_ns() - started
    plain, drafted = texts[False], texts[True]
    differences = (at for at, (one, other) in enumerate(zip(plain, drafted, strict=False)) if one != other)
    emit(TextDrafted(len(plain), times[False], times[True], accepted, next(differences, None)))


class _Generator:
    """Generates greedily after a prompt; the last chosen token is not in a cache yet."""

    def __init__(self, stack: ExitStack, model: LlamaModel, draft: LlamaModel, k: int) -> None:
        self._models = model, draft
        self._target, self._draft = model.context("decode"), draft.context("decode")
        self._one, self._verify, self._reread = (
            stack.enter_context(new_batch([(0, 0, 0, has_all_logits or at == last) for at in range(last + 1)]))
            for last, has_all_logits in ((0, True), (k, True), (k, False))
        )
        self._target_sampler = stack.enter_context(_sampler(_TARGET_TOP_K))
        self._draft_sampler = stack.enter_context(_sampler(_DRAFT_TOP_K))
        self._k, self._n_past, self._token = k, 0, 0

    def read(self, prompt: Any) -> None:  # noqa: ANN401 - an array of a ctypes type
        for model in self._models:
            model.read(prompt)
        self._n_past = len(prompt)
        self._token = lib.llama_sampler_sample(self._target_sampler, self._target, -1)

    def plain(self, n_gen: int) -> list[int]:
        return [self._next(self._target, self._target_sampler) for _ in range(n_gen)]

    def _next(self, context: Any, sampler: Any) -> int:  # noqa: ANN401 - ctypes pointers
        """Decode the last token and choose the next."""
        self._one.token[0], self._one.pos[0] = self._token, self._n_past
        _require(lib.llama_decode(context, self._one))
        self._n_past += 1
        self._token = lib.llama_sampler_sample(sampler, context, -1)
        return self._token

    def drafted(self, n_gen: int, accepted: list[int]) -> list[int]:
        """Return at least `n_gen` tokens; add the number of accepted ones of each step to `accepted`."""
        tokens: list[int] = []
        while len(tokens) < n_gen:
            n_past, last = self._n_past, self._token
            batch = [last, *(self._next(self._draft, self._draft_sampler) for _ in range(self._k))]
            _forget(self._draft, n_past)
            for context, made in ((self._target, self._verify), (self._draft, self._reread)):
                for at, token in enumerate(batch):
                    made.token[at], made.pos[at] = token, n_past + at
                _require(lib.llama_decode(context, made))
            n_accepted = 0
            while True:
                self._token = lib.llama_sampler_sample(self._target_sampler, self._target, n_accepted)
                tokens.append(self._token)
                if n_accepted == self._k or self._token != batch[n_accepted + 1]:
                    break
                n_accepted += 1
            accepted.append(n_accepted)
            self._n_past = n_past + n_accepted + 1
            for context in (self._target, self._draft):
                _forget(context, self._n_past)
        return tokens


class _Timer:
    """Times steps after `n_depth` cells, with batches made in advance: nothing else is inside a timed region."""

    def __init__(
        self, stack: ExitStack, model: LlamaModel, draft: LlamaModel | None, request: Speculate
    ) -> None:
        self._n_depth = request.n_depth
        self._target, self._draft = model.context("decode"), None if draft is None else draft.context("decode")
        tokens = list(model.prompt_tokens(max(request.n_drafted) + 1))

        def batch(n_tokens: int, *, has_all_logits: bool) -> Any:  # noqa: ANN401 - a structure of llama_cpp's
            last = n_tokens - 1
            rows = [
                (tokens[at], request.n_depth + at, 0, has_all_logits or at == last) for at in range(n_tokens)
            ]
            return stack.enter_context(new_batch(rows))

        self._single = batch(1, has_all_logits=True)
        self._verify = {k: batch(k + 1, has_all_logits=True) for k in request.n_drafted}
        self._target_sampler = stack.enter_context(_sampler(_TARGET_TOP_K))
        if draft is not None:
            # its vocabulary may lack the last of the model's tokens
            tokens = list(draft.prompt_tokens(max(request.n_drafted) + 1))
            self._drafted = batch(1, has_all_logits=True)
            self._reread = {k: batch(k + 1, has_all_logits=False) for k in request.n_drafted}
            self._draft_sampler = stack.enter_context(_sampler(_DRAFT_TOP_K))

    def singles(self, n_single: int) -> tuple[list[int], int]:
        """Return the nanoseconds of single tokens after an untimed one, and of choosing the next."""
        found, sampler_ns, clock = [], 0, time.perf_counter_ns
        for _ in range(1 + n_single):
            started = clock()
            status = lib.llama_decode(self._target, self._single)
            lib.llama_synchronize(self._target)
            decoded = clock()
            lib.llama_sampler_sample(self._target_sampler, self._target, -1)
            sampler_ns = clock() - decoded
            _require(status)
            _forget(self._target, self._n_depth)
            found.append(decoded - started)
        return found[1:], sampler_ns

    def step(self, k: int) -> SpeculativeStep:
        """Return the times of one step of `k` drafted tokens."""
        clock, verify, draft = time.perf_counter_ns, self._verify[k], self._draft
        llama_decode, llama_synchronize = lib.llama_decode, lib.llama_synchronize
        status = 0
        started = drafted_at = clock()
        if draft is not None:
            one, sample, sampler = self._drafted, lib.llama_sampler_sample, self._draft_sampler
            for at in range(k):
                one.pos[0] = self._n_depth + at
                _require(llama_decode(draft, one))  # without logits, a sampler would abort
                one.token[0] = sample(sampler, draft, -1)
            drafted_at = clock()
            _forget(draft, self._n_depth)
        verify_at = clock()
        status = status or llama_decode(self._target, verify)
        llama_synchronize(self._target)
        reread_at = reread_end = clock()
        if draft is not None:
            status = status or llama_decode(draft, self._reread[k])
            llama_synchronize(draft)
            reread_end = clock()
            _forget(draft, self._n_depth)
        _forget(self._target, self._n_depth)
        ended = clock()
        _require(status)
        return SpeculativeStep(
            k, drafted_at - started, reread_at - verify_at, reread_end - reread_at, ended - started
        )


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
