"""Time a few tokens behind a long context that was not read: for twins, whose cache need not make sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import Event, PromptRead, Steps
from ggbench.engines.llama.context_cells import decode_at, fill_with_copies, fill_with_prompt
from ggbench.engines.workloads.decode import without_gc

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel


class DecodeAtDepth(Workload, frozen=True):
    """Use `n_depth` cells, time `n_gen` single tokens behind them, then a batch of `n_batch`.

    The cells are copies of a few, where llama.cpp takes copies: attention costs the same whatever they hold. One more
    token is decoded before, untimed. Reports a `Steps`, and a `PromptRead` where there is a batch.
    """

    name: ClassVar[str] = "decode_at_depth"
    stage: ClassVar[Stage] = "decode"

    n_depth: int
    """At least 1."""
    n_gen: int
    n_batch: int = 0


REQUEST = DecodeAtDepth


def carry_out(model: LlamaModel, request: DecodeAtDepth, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused."""
    if not fill_with_copies(model, request.n_depth, lambda _: None):
        fill_with_prompt(model, request.n_depth, lambda _: None)
    decode_at(model, request.n_depth, 1)
    first = request.n_depth + 1
    with without_gc():
        step_ns = [decode_at(model, first + index, 1) for index in range(request.n_gen)]
        emit(Steps(first + 1, step_ns, [], ""))
        if request.n_batch:
            emit(PromptRead(request.n_batch, decode_at(model, first + request.n_gen, request.n_batch)))
