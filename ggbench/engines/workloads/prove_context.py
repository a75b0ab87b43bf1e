"""Prove that a context works to its last cell, by decoding there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import ContextProven, Event, Proving
from ggbench.engines.llama.context_cells import decode_at, fill_with_copies, fill_with_prompt, try_decode_at

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel

_NO_CELL_LEFT = 1
"""What llama_decode returns where it finds no free cell for a batch."""
_TRUSTED_SHARE = 0.03
"""Of the batch at the far end: from here on, about a layer, its own speed says how long the rest takes."""


class ProveContext(Workload, frozen=True):
    """Decode a full n_ubatch and one more token at the far end of the context. Uses the context up.

    The context has to be for one sequence, since several share its cells out. Reports any
    number of `Proving` and one `ContextProven`.
    """

    name: ClassVar[str] = "prove_context"
    stage: ClassVar[Stage] = "decode"


REQUEST = ProveContext


def carry_out(model: LlamaModel, request: ProveContext, emit: Callable[[Event], None]) -> None:
    """Decode a full n_ubatch and one more token in the last cells of the context, with every cell before them used.

    Attention runs over as many cells as lie below the last one in use, and tokens go into the first free cells whatever
    their position, so the cells before have to be used. A real prompt would cost the square of n_ctx; a few cells are
    decoded and copied through the state functions instead, which leaves the last batch and the last token the work that
    they have in a real context, and takes what llama.cpp keeps of every cell in use. Not shown is what only the batches
    between would do, and the some 50 bytes that llama.cpp keeps of every distinct position. Raises LlamaRefused.
    """
    from llama_cpp import llama_cpp as lib

    from ggbench.engines.llama.model import LlamaRefused, throttled

    started = time.perf_counter()
    context = model.context("decode")
    if lib.llama_n_seq_max(context) > 1:
        raise LlamaRefused("decode", "only a context for one sequence can be proven")
    n_ctx = lib.llama_n_ctx(context)
    n_batch_tokens = min(lib.llama_n_ubatch(context), n_ctx - 2)
    n_before = n_ctx - n_batch_tokens - 1
    fill: Literal["copied", "decoded", "none"] = "copied"
    on_filled = throttled(lambda share: emit(Proving("fill", share)))
    model.clear_cache()
    with _counted_nodes(context) as nodes:
        decode_at(model, 0, 1)
        n_nodes = nodes.n_done
        if lib.llama_model_is_recurrent(model.handle):
            fill = "none"
            model.clear_cache()
        elif not fill_with_copies(model, n_before, on_filled):
            fill = "decoded"
            fill_with_prompt(model, n_before, on_filled)
        nodes.report(n_nodes, emit)
        batch_ns = decode_at(model, n_before, n_batch_tokens)
    token_ns = decode_at(model, n_ctx - 1, 1)
    full = fill == "none" or try_decode_at(model, n_ctx, 1)[0] == _NO_CELL_LEFT
    seconds = time.perf_counter() - started
    emit(ContextProven(seconds, n_batch_tokens, batch_ns, token_ns, fill, full, model.left_bytes()))


class _Nodes:
    """Those of a graph that the CPU has computed; of a GPU's nothing is known before the end."""

    def __init__(self) -> None:
        self.n_done = 0
        self._on_node: Callable[[], object] = lambda: None

    def count(self, _: object) -> bool:
        """The callback that could abort a graph, and does not."""
        self.n_done += 1
        self._on_node()
        return False

    def report(self, n_nodes: int, emit: Callable[[Event], None]) -> None:
        """Report how far the next graph has come, which has as many nodes, and how long the rest should take."""
        from ggbench.engines.llama.model import throttled

        started, self.n_done = time.perf_counter(), 0

        def report_share(share: float) -> None:
            left_s = (time.perf_counter() - started) * (1 - share) / share
            emit(Proving("batch", share, left_s if share >= _TRUSTED_SHARE else None))

        on_share = throttled(report_share)
        self._on_node = lambda: on_share(min(1.0, self.n_done / n_nodes)) if n_nodes else None


@contextlib.contextmanager
def _counted_nodes(context: object) -> Iterator[_Nodes]:
    """Count the nodes of what is computed until the end of the block."""
    from llama_cpp import llama_cpp as lib

    nodes = _Nodes()
    callback = lib.ggml_abort_callback(nodes.count)
    lib.llama_set_abort_callback(context, callback, None)
    try:
        yield nodes
    finally:
        lib.llama_set_abort_callback(context, lib.ggml_abort_callback(), None)
