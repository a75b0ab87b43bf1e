"""The workloads that Transformers can run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ggbench.engines.contract import BatchedDecode, Decode, Prefill, ProveContext, Workload
from ggbench.engines.events import ContextProven, Event, PromptRead, Proving
from ggbench.engines.timed_steps import time_steps

if TYPE_CHECKING:
    from ggbench.extras.transformers.model import TransformersModel

_PROOF_BATCH = 512
"""Tokens computed at once at the end of a context: llama.cpp's n_ubatch."""

Emit = Callable[[Event], None]


def carry_out(model: TransformersModel, request: Workload, emit: Emit) -> None:
    _CARRIED_OUT[type(request)](model, request, emit)


def _prefill(model: TransformersModel, request: Prefill, emit: Emit) -> None:
    for number in range(request.warmup + request.repeat):
        _, elapsed_ns = model.read_prompts(request.n_prompt)
        if number >= request.warmup:
            emit(PromptRead(request.n_prompt, elapsed_ns))


def _decode(model: TransformersModel, request: Decode, emit: Emit) -> None:
    """Decode greedily and past any end of generation, timing each step and each sampling."""
    logits, elapsed_ns = model.read_prompts(request.n_prompt)
    emit(PromptRead(request.n_prompt, elapsed_ns))
    clock = time.perf_counter_ns
    tokens = _most_likely(logits)

    def step(_: int) -> tuple[int, int]:
        nonlocal tokens
        logits, step_ns = model.timed_step(tokens)
        before = clock()
        tokens = _most_likely(logits)
        model.synchronize()
        return step_ns, clock() - before

    time_steps(request.n_prompt, request.n_gen, step, emit)


def _batched_decode(model: TransformersModel, request: BatchedDecode, emit: Emit) -> None:
    _, elapsed_ns = model.read_prompts(request.n_prompt)
    emit(PromptRead(request.n_prompt, elapsed_ns, request.n_seqs))
    tokens = model.random_tokens(request.n_seqs, request.n_gen)
    columns = [tokens[:, index : index + 1].contiguous() for index in range(request.n_gen)]

    def step(index: int) -> tuple[int, None]:
        return model.timed_step(columns[index])[1], None

    time_steps(request.n_prompt, request.n_gen, step, emit)


def _prove_context(model: TransformersModel, request: ProveContext, emit: Emit) -> None:
    """Compute a batch and one more token in the last cells, after cells with copies."""
    n_cells = model.n_cells
    n_batch = min(_PROOF_BATCH, n_cells - 2)
    model.clear()
    for share in model.fill(n_cells - n_batch - 1):
        emit(Proving(share))
    model.timed_step(model.random_tokens(1, n_batch))
    model.timed_step(model.random_tokens(1, 1))
    full = int(model.cache.get_seq_length()) == n_cells
    left_bytes = model.left_bytes
    model.clear()
    emit(ContextProven(full, left_bytes))


def _most_likely(logits: Any) -> Any:  # noqa: ANN401 - tensors
    return logits[:, -1].argmax(-1, keepdim=True)


_CARRIED_OUT: Mapping[type[Workload], Callable[..., None]] = {
    Prefill: _prefill,
    Decode: _decode,
    BatchedDecode: _batched_decode,
    ProveContext: _prove_context,
}
