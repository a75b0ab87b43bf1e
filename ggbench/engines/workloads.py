"""What an engine can do with a model that is open; each engine's own folder says how it does it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import ClassVar, Literal

import msgspec

from ggbench.engines.contract import Stage, Workload

FLUSH_NS = 50_000_000
"""Samples are sent at most this often, so that sending them stays out of the measurement."""
PROMPT = (
    "Explain in simple words how a large language model turns a question into an answer, one token after another, and "
    "why the memory of the machine decides how fast it can go. Begin with the tokens, then the weights, then the cache."
)


class Prefill(Workload, frozen=True, tag="prefill"):
    """Read a prompt `repeat` times, after `warmup` that are not reported. Reports one `PromptRead` each."""

    stage: ClassVar[Stage] = "prefill"

    n_prompt: int
    repeat: int = 1
    warmup: int = 0


class Decode(Workload, frozen=True, tag="decode"):
    """Clear the cache, read a prompt, then time `n_gen` tokens. Reports a `PromptRead` and any number of `Steps`."""

    stage: ClassVar[Stage] = "decode"

    n_prompt: int
    n_gen: int


class BatchedDecode(Workload, frozen=True, tag="batched_decode"):
    """Clear the cache, read a prompt of its own for each of `n_seqs` sequences, then time `n_gen` steps of all of them.

    As in llama-batched-bench no prompt is shared and the decoded tokens are random, so each sequence goes its own way,
    as do the experts that it asks for, and nothing ends a generation. The context needs `n_seq_max` of at least
    `n_seqs`, and room for `n_seqs` x (n_prompt + n_gen) tokens. Reports any number of `ReadingPrompts`, a `PromptRead`,
    and any number of `Steps`, whose positions are those of one sequence.
    """

    stage: ClassVar[Stage] = "decode"

    n_prompt: int
    n_gen: int
    n_seqs: int

    @property
    def n_outputs(self) -> int:
        return self.n_seqs


class DecodeAtDepth(Workload, frozen=True, tag="decode_at_depth"):
    """Use `n_depth` cells, time `n_gen` single tokens behind them, then a batch of `n_batch`.

    The cells are copies of a few if llama.cpp takes copies: attention costs the same whatever they hold. One more
    token is decoded before, untimed. Reports a `Steps`, and a `PromptRead` if there is a batch.
    """

    stage: ClassVar[Stage] = "decode"

    n_depth: int
    n_gen: int
    n_batch: int = 0


class ProveContext(Workload, frozen=True, tag="prove_context"):
    """Decode a full n_ubatch and one more token at the far end of the context. Uses the context up.

    The context has to be for one sequence, since several share its cells out. Reports any
    number of `Proving` and one `ContextProven`.
    """

    stage: ClassVar[Stage] = "decode"


class Tokenize(Workload, frozen=True, tag="tokenize"):
    """Tokenize a text as llama-perplexity does. Reports a `Tokenized`.

    BOS comes first if the model adds one; the name of a special token in the text is read as plain text.
    """

    stage: ClassVar[Stage] = "score"

    text: str


class RowsFile(msgspec.Struct, frozen=True):
    """Rows of a vocabulary in a file that the base writes and the model that is compared with it reads.

    The row of position p of the k-th chunk of a request is `first_row` + k x `rows_per_chunk` + p - `first_position`.
    """

    path: str
    format: Literal["f32", "u16"]
    """float32 log-probabilities, or the levels of a base file of llama-perplexity."""
    first_byte: int
    """Offset of row 0."""
    first_row: int
    rows_per_chunk: int
    first_position: int
    writes: bool


class Score(Workload, frozen=True, tag="score"):
    """Decode positions `start` to `stop` of several chunks of a text at once, and score each that has a target.

    A request with `start` 0 clears the cache; the next one goes on where the last stopped. The context needs
    `n_seq_max` of at least the number of chunks, and `n_outputs_max` of the positions scored. Reports a `Scored`.
    """

    stage: ClassVar[Stage] = "score"

    chunks: tuple[tuple[int, ...], ...]
    """The tokens of each whole chunk, with BOS first if the model adds one."""
    targets: tuple[tuple[int, ...], ...]
    """For each chunk, the true next token of each position from `start` on; empty if none is scored."""
    start: int
    stop: int
    threads: int
    """Threads that score the rows; numpy computes outside Python's lock."""
    rows: RowsFile | None = None

    @property
    def n_outputs(self) -> int:
        return len(self.chunks) * len(self.targets[0])


AnyWorkload = Prefill | Decode | DecodeAtDepth | BatchedDecode | ProveContext | Tokenize | Score


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
