"""The cells of a llama.cpp context: fill them without a prompt, decode after them, and prove the last ones."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence

from ggbench.engines.contract import BatchAtDepth, DecodeAtDepth, ProveContext
from ggbench.engines.events import ContextProven, Event, PromptRead, Proving, Steps
from ggbench.engines.llama.c_functions import lib
from ggbench.engines.llama.memory_limits import beside_the_limit
from ggbench.engines.llama.model import LlamaModel, new_batch, throttled
from ggbench.engines.protocol import Refusal
from ggbench.engines.timed_steps import without_gc

_COPY = 1
"""The sequence of copied cells when they arrive."""
_COPIED_CELLS, _COPIES = 32, 1024
"""Minimum number of cells to copy at once, and maximum number of copies, as each walks over all cells."""
_STEPS_TOGETHER = 64
"""Number of steps at a depth to report at once."""
_MMAP_SLACK = 1 << 16
"""malloc's overhead of a block, and a page at its end."""
_NOT_COPIED = ("deepseek4", "glm5-next", "qwen4exp")
"""Architectures that find cells by position or have none for another sequence: llama.cpp aborts, or pools few."""
_NO_CELL_LEFT = 1
"""Result of llama_decode if it finds no free cell for a batch."""


def decode_at_depth(model: LlamaModel, request: DecodeAtDepth, emit: Callable[[Event], None]) -> None:
    fill(model, request.n_depth)
    decode_at(model, request.n_depth, 1)
    first = request.n_depth + 1
    with without_gc():
        for start in range(0, request.n_gen, _STEPS_TOGETHER):
            steps = range(start, min(start + _STEPS_TOGETHER, request.n_gen))
            emit(Steps(first + 1 + start, [decode_at(model, first + index, 1) for index in steps], []))
        if isinstance(request, BatchAtDepth) and request.n_batch:
            emit(PromptRead(request.n_batch, decode_at(model, first + request.n_gen, request.n_batch)))


def prove_context(model: LlamaModel, request: ProveContext, emit: Callable[[Event], None]) -> None:
    """Decode n_ubatch tokens, and one more in every slot, in the last cells, with all cells before in use.

    Attention covers all cells up to the last one in use, and tokens go into the first free cells whatever their
    position, so the cells before must be in use. A real prompt would cost the square of n_ctx; instead a few cells are
    decoded and copied through the state functions. The last batch and token then do the same work as in a real context,
    and llama.cpp has its data for every cell in use. This does not prove the batches between, nor the about 50 bytes
    that llama.cpp keeps for every distinct position.

    Slots with a cache of their own are filled by a prompt in the first, which is copied to the others: a state can only
    replace all cells of such a slot. In one shared cache the first slot takes all cells but the last of each slot.
    Raises Refusal.
    """
    context = model.context("decode")
    n_slots, n_cells = lib.llama_n_seq_max(context), lib.llama_n_ctx_seq(context)
    n_streams = lib.llama_n_ctx(context) // n_cells
    n_sharing = n_slots // n_streams
    n_each = max(1, min(lib.llama_n_ubatch(context) // n_slots, n_cells // n_sharing - 2))
    n_before = n_cells - n_sharing * (n_each + 1)
    if n_before < 1:
        raise Refusal("decode", f"{n_cells} cells are too few to decode twice in each of {n_slots} slots")
    slots = [n_before if slot < n_streams else 0 for slot in range(n_slots)]
    is_recurrent = lib.llama_model_is_recurrent(model.handle)
    on_filled = throttled(lambda share: emit(Proving(share)))
    model.clear_cache()
    if not is_recurrent and (n_streams > 1 or not fill_with_copies(model, n_before, on_filled)):
        fill_with_prompt(model, n_before, on_filled)
        for slot in range(1, n_streams):
            lib.llama_memory_seq_cp(lib.llama_get_memory(context), 0, slot, -1, -1)
    decode_in_slots(model, slots, n_each)
    ends = [position + n_each for position in slots]
    decode_in_slots(model, ends, 1)
    full = is_recurrent or try_decode_in_slots(model, [end + 1 for end in ends], 1)[0] == _NO_CELL_LEFT
    emit(ContextProven(full, model.left_bytes()))


def fill(model: LlamaModel, n_cells: int) -> None:
    """Fill the first `n_cells` of the cache, by copying if llama.cpp accepts that. Raises Refusal."""
    if not n_cells or not fill_with_copies(model, n_cells, lambda _: None):
        fill_with_prompt(model, n_cells, lambda _: None)


def fill_with_prompt(model: LlamaModel, n_cells: int, on_filled: Callable[[float], object]) -> None:
    """Fill the first `n_cells` of the cache by decoding. Raises Refusal."""
    model.clear_cache()
    step = lib.llama_n_batch(model.context("decode"))
    for start in range(0, n_cells, step):
        decode_at(model, start, min(step, n_cells - start))
        on_filled(min(start + step, n_cells) / n_cells)


def fill_with_copies(model: LlamaModel, n_cells: int, on_filled: Callable[[float], object]) -> bool:
    """Fill the first `n_cells` of an empty cache by copying; return False if llama.cpp does not accept even one copy.

    A copy arrives as a separate sequence, shares its cells with the first sequence, and loses them when the next one
    arrives. The last cells have the positions just before the next decoded token, because llama.cpp requires sequences
    to be contiguous; this also lets a cache with a window reuse cells outside it.
    """
    context = model.context("decode")
    if model.architecture in _NOT_COPIED:
        return False
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
                    raise Refusal("decode", f"no cells for copy {done + 1} of {n_copies}")
                return False
            lib.llama_memory_seq_cp(memory, _COPY, 0, -1, -1)
            on_filled((done + 1) / n_copies)
        lib.llama_memory_seq_rm(memory, _COPY, -1, -1)
        del state
    return True


def decode_at(model: LlamaModel, position: int, n_tokens: int) -> int:
    """Decode tokens of the first sequence from that position on; return its nanoseconds. Raises Refusal."""
    return decode_in_slots(model, [position], n_tokens)


def decode_in_slots(model: LlamaModel, positions: Sequence[int], n_tokens: int) -> int:
    """Decode `n_tokens` of each sequence from its position on, in one batch; return the nanoseconds.

    Raises Refusal.
    """
    status, elapsed_ns = try_decode_in_slots(model, positions, n_tokens)
    if status:
        at = ", ".join(map(str, dict.fromkeys(positions)))
        raise Refusal("decode", f"llama_decode returned {status} for {n_tokens} tokens at {at}")
    return elapsed_ns


def try_decode_in_slots(model: LlamaModel, positions: Sequence[int], n_tokens: int) -> tuple[int, int]:
    """Return llama_decode's status for tokens of each sequence from its position on, and its nanoseconds."""
    context = model.context("decode")
    tokens = list(enumerate(model.prompt_tokens(n_tokens)))
    rows = [
        (token, position + index, slot, index == n_tokens - 1)
        for slot, position in enumerate(positions)
        for index, token in tokens
    ]
    with new_batch(rows) as batch:
        started = time.perf_counter_ns()
        status = lib.llama_decode(context, batch)
        lib.llama_synchronize(context)
        return int(status), time.perf_counter_ns() - started
