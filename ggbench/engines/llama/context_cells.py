"""The cells of a llama.cpp context: using them without a prompt, and decoding behind them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel

_COPY = 1
"""The sequence that copied cells arrive as."""
_COPIED_CELLS, _COPIES = 32, 1024
"""Cells that are copied at once at least, and copies at most: each costs a walk over all cells."""
_MMAP_SLACK = 1 << 16
"""For what malloc adds to a block, and a page at its end."""


def fill_with_prompt(model: LlamaModel, n_cells: int, on_filled: Callable[[float], object]) -> None:
    """Use the first `n_cells` of the cache by decoding in all of them. Raises LlamaRefused."""
    from llama_cpp import llama_cpp as lib

    model.clear_cache()
    step = lib.llama_n_batch(model.context("decode"))
    for start in range(0, n_cells, step):
        decode_at(model, start, min(step, n_cells - start))
        on_filled(min(start + step, n_cells) / n_cells)


def fill_with_copies(model: LlamaModel, n_cells: int, on_filled: Callable[[float], object]) -> bool:
    """Use the first `n_cells` of an empty cache; False where llama.cpp does not take even one copy.

    A copy arrives as a sequence of its own, gives its cells to the first sequence too, and loses them when the next one
    arrives. The last cells' positions come before those of what is decoded next, because llama.cpp requires that a
    sequence continues where it ended; they also let a cache with a window reuse what has left it.
    """
    from llama_cpp import llama_cpp as lib

    from ggbench.engines.llama.memory_limits import beside_the_limit
    from ggbench.engines.llama.model import LlamaRefused

    context = model.context("decode")
    memory = lib.llama_get_memory(context)
    n_copied = min(lib.llama_n_batch(context), max(_COPIED_CELLS, n_cells // _COPIES))
    n_copies, n_rest = divmod(n_cells - 1, n_copied)
    model.clear_cache()
    if not n_copies:
        decode_at(model, 0, n_cells)
        return True
    decode_at(model, 0, n_copied)
    size = lib.llama_state_seq_get_size(context, 0)
    with beside_the_limit(size + _MMAP_SLACK):
        state = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data(context, state, size, 0) != size:
            return False
        model.clear_cache()
        decode_at(model, n_cells - n_rest - 1, n_rest + 1)
        for done in range(n_copies):
            if lib.llama_state_seq_set_data(context, state, size, _COPY) != size:
                if done:
                    raise LlamaRefused("decode", f"no cells for copy {done + 1} of {n_copies}")
                return False
            lib.llama_memory_seq_cp(memory, _COPY, 0, -1, -1)
            on_filled((done + 1) / n_copies)
        lib.llama_memory_seq_rm(memory, _COPY, -1, -1)
        del state
    return True


def decode_at(model: LlamaModel, position: int, n_tokens: int) -> int:
    """Decode tokens of the first sequence from that position on; return its nanoseconds. Raises LlamaRefused."""
    from ggbench.engines.llama.model import LlamaRefused

    status, elapsed_ns = try_decode_at(model, position, n_tokens)
    if status:
        raise LlamaRefused("decode", f"llama_decode returned {status} for {n_tokens} tokens at {position}")
    return elapsed_ns


def try_decode_at(model: LlamaModel, position: int, n_tokens: int) -> tuple[int, int]:
    """Return llama_decode's status for tokens of the first sequence from that position on, and its nanoseconds."""
    from llama_cpp import llama_cpp as lib

    context = model.context("decode")
    batch = lib.llama_batch_init(n_tokens, 0, 1)
    try:
        batch.n_tokens = n_tokens
        for index, token in enumerate(model.prompt_tokens(n_tokens)):
            batch.token[index], batch.pos[index] = token, position + index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
            batch.logits[index] = index == n_tokens - 1
        started = time.perf_counter_ns()
        status = lib.llama_decode(context, batch)
        lib.llama_synchronize(context)
        return int(status), time.perf_counter_ns() - started
    finally:
        lib.llama_batch_free(batch)
