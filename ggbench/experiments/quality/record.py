"""The quality of a quant: perplexity of a text, and divergence from a base."""

from __future__ import annotations

from typing import Annotated

from ggbench.errors import UsageError
from ggbench.fields import COUNT, TOKENS, FieldKind, Option
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.runs.run import Result, Run, Settings
from ggbench.stats.intervals import ChunkMean

N_CTX = 512
"""Tokens of a chunk, llama-perplexity's default."""


class TextSource(Record):
    """The scored text. Results for different texts are not comparable."""

    name: str
    """`pydoc_data.topics`, or the name of a file."""
    sha256: str
    """Hash of its UTF-8 bytes."""
    n_bytes: int | None
    """None if unknown."""
    path: str = ""
    """Absolute path; empty for Python's manual."""
    source: str = ""
    """Source of a text without a path: `Python 3.11.7`."""


_CHUNKS = Option("--chunks", "Score at most N chunks. Default: the whole text.", COUNT)
NO_BASE = "none"
"""The base of a run that measures only perplexity."""


class QualityRequest(Settings, Record):
    """The options of a quality run: its text and base are found before it starts."""

    text: Annotated[
        str | None,
        Option(
            "--text",
            "Text file in UTF-8 (default: Python's manual). Published tables have wiki.test.raw of WikiText-2.",
            FieldKind(metavar="FILE"),
        ),
    ] = None
    n_chunks: Annotated[int | None, _CHUNKS] = None
    """Maximum number of chunks to score; None for the whole text."""
    base: Annotated[
        str | None,
        Option(
            "--base",
            "Quant or file to compare with, or `none` (default: the largest on this disk).",
            FieldKind(metavar="QUANT"),
        ),
    ] = None
    n_ctx: Annotated[int, Option("-c", "Tokens of a chunk; the second half of each is scored.", TOKENS)] = N_CTX


class QualitySettings(Settings, Record):
    """Settings of scoring a text. Raises UsageError for impossible numbers."""

    text: TextSource
    n_ctx: int = N_CTX
    """Tokens of a chunk; its second half is scored."""
    n_chunks: Annotated[int | None, _CHUNKS] = None
    """Maximum number of chunks to score; None for the whole text."""
    n_seqs: int = 4
    """Chunks to decode at once."""

    def __post_init__(self) -> None:
        if self.n_ctx < 4:
            raise UsageError(f"a chunk of {self.n_ctx} tokens is too short to score", "use --n-ctx 4 or more")
        if self.n_chunks is not None and self.n_chunks < 1:
            raise UsageError("the number of chunks is below 1", "use 1 or more")

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of all chunks decoded at once."""
        return self.n_ctx * self.n_seqs

    @property
    def n_scored_per_chunk(self) -> int:
        """Scored positions per chunk: from the middle to the last but one."""
        return self.n_ctx - 1 - self.n_ctx // 2


class ScoredText(Record):
    """The text, tokenized by the model."""

    n_tokens: int
    n_chunks: int
    """Number of complete chunks."""
    tokens_sha256: str
    """Hash of the tokens as 32-bit integers; runs are comparable only if it agrees."""


class ScoredBase(Record):
    """The base of comparison."""

    subject: Subject
    type_k: str = "f16"
    type_v: str = "f16"


class ChunkScores(Record):
    """Scores of consecutive chunks of the text: float32 values of every position, as bytes in this machine's order.

    Comparisons with a base are empty without one.
    """

    n_chunks: int
    nll: bytes
    base_nll: bytes = b""
    kld: bytes = b""
    p_diff: bytes = b""
    same_top: tuple[int, ...] = ()
    """Positions of each chunk with the same most likely token; empty in recordings of version 0.2."""


class Divergence(Record):
    """The divergence of the model from its base."""

    kld: ChunkMean
    """In nats, over all positions."""
    kld_percentiles: tuple[tuple[float, float], ...]
    """Percentile and value, from 100 (the largest) to 0 (the least)."""
    same_top: ChunkMean
    """Share of positions with the same most likely token."""
    p_diff: ChunkMean
    """p of the true token minus the base's."""
    rms_p_diff: ChunkMean
    ln_ppl_ratio: ChunkMean
    """ln(PPL / PPL of the base), with the interval of the paired differences."""
    base_ppl: ChunkMean
    chunk_kld: tuple[float, ...] = ()
    """Mean KL divergence of each chunk, like `chunk_same_top` to pair runs over the same chunks; empty in results of
    version 0.2.
    """
    chunk_same_top: tuple[float, ...] = ()


class QualityResult(Result, Record):
    """Perplexity of a text, and divergence from the base, if given."""

    is_timed = False
    no_one_memory = "scored a text"

    text: TextSource
    n_ctx: int
    scored: ScoredText | None = None
    """None if the text was not tokenized."""
    n_chunks: int = 0
    """Number of scored chunks."""
    n_scored: int = 0
    """Number of scored positions."""
    ppl: ChunkMean | None = None
    chunk_nll: tuple[float, ...] = ()
    """Mean nll of each chunk, to pair runs over the same chunks."""
    base: ScoredBase | None = None
    divergence: Divergence | None = None


def result_of(run: Run) -> QualityResult | None:
    return run.result_as(QualityResult)
