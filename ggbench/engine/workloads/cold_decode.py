"""Time single tokens of a model of few layers as they would take among many: behind a full cache, and read from memory.

In a model of many layers, the weights and the KV of each layer have left the CPU's caches by the time it is their turn
again. Those of a few layers would still be there, so other memory is read between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ggbench.engine.context_cells import decode_at, fill_with_copies, fill_with_prompt
from ggbench.engine.contract import Stage, Workload
from ggbench.engine.events import Event, PromptRead, Steps
from ggbench.engine.workloads.decode import without_gc

if TYPE_CHECKING:
    from ggbench.engine.llama_model import LlamaModel


class ColdDecode(Workload, frozen=True):
    """Use `n_depth` cells, time `n_gen` single tokens behind them, then a batch of `n_batch`.

    The cells are copies of a few, where llama.cpp takes copies: attention costs the same whatever they hold. Reports
    one `Steps`, and a `PromptRead` where there is a batch. The first token is decoded once more, untimed, before.
    """

    name: ClassVar[str] = "cold_decode"
    stage: ClassVar[Stage] = "decode"

    n_depth: int
    n_gen: int
    n_batch: int = 0
    evicted_bytes: int = 0
    """Read before each step, so that nothing of the step before is left in the CPU's caches; 0 reads nothing."""


REQUEST = ColdDecode


def carry_out(model: LlamaModel, request: ColdDecode, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused."""
    import numpy as np

    n_depth = max(1, request.n_depth)
    other = np.ones(request.evicted_bytes // 8, np.int64)
    if not fill_with_copies(model, n_depth, lambda _: None):
        fill_with_prompt(model, n_depth, lambda _: None)
    decode_at(model, n_depth, 1)
    step_ns = []
    with without_gc():
        for index in range(request.n_gen):
            other.sum()
            step_ns.append(decode_at(model, n_depth + 1 + index, 1))
    emit(Steps(n_depth + 2, step_ns, [], ""))
    if request.n_batch:
        first, started = n_depth + 1 + request.n_gen, time.perf_counter_ns()
        decode_at(model, first, request.n_batch)
        emit(PromptRead(request.n_batch, time.perf_counter_ns() - started))
