"""Quality of a quant: perplexity, and the divergence from a base, of one text."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ggbench.errors import UsageError
from ggbench.fields import COUNT, DURATION, Option
from ggbench.models.subject import Subject
from ggbench.runs.run import Result, Run, Settings
from ggbench.stats.intervals import Estimate

N_CTX = 512
"""Tokens of a chunk, llama-perplexity's default."""


class TextSource(msgspec.Struct, frozen=True):
    """The scored text. Results for different texts are not comparable."""

    name: str
    """`pydoc_data.topics`, `wikitext-2`, or the name of a file."""
    sha256: str
    """Hash of its UTF-8 bytes."""
    n_bytes: int | None
    """None in an imported run, whose file does not name its text; the name is then `unknown text`, the hash empty."""
    path: str = ""
    """Absolute; empty for a text that is found by its name."""
    source: str = ""
    """Where a text without a path comes from: `Python 3.11.7`, or the repo `datasets/org/name`."""


class QualitySettings(Settings, msgspec.Struct, frozen=True):
    """Which text to score, and how much of it. Raises UsageError for numbers that make no run."""

    text: TextSource
    n_ctx: int = N_CTX
    """Tokens of a chunk; its second half is scored."""
    n_chunks: Annotated[int | None, Option("--chunks", "Score at most N chunks. Default: the whole text.", COUNT)] = (
        None
    )
    """Chunks to score at most; None scores all that the text has."""
    within_s: Annotated[
        float | None, Option("--within", "Score as many chunks of each row as fit into this time, e.g. 10m.", DURATION)
    ] = None
    """Stop before the chunks that would take longer than this in all; None sets no limit."""
    n_seqs: int = 4
    """Chunks that are decoded at once."""
    base_logits: str = ""
    """A file of llama-perplexity with the base's logits, to compare with; empty for none."""
    save_base_logits: str = ""
    """Where to write such a file; empty for nowhere."""

    def __post_init__(self) -> None:
        if self.n_ctx < 4:
            raise UsageError(f"a chunk of {self.n_ctx} tokens is too short to score", "use --n-ctx 4 or more")
        if self.n_chunks is not None and self.n_chunks < 1:
            raise UsageError("the number of chunks is below 1", "use 1 or more")

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of all the chunks that are decoded at once."""
        return self.n_ctx * self.n_seqs

    @property
    def n_scored_per_chunk(self) -> int:
        """Positions scored of each chunk: from the middle to the last but one."""
        return self.n_ctx - 1 - self.n_ctx // 2


class ScoredText(msgspec.Struct, frozen=True):
    """The text as the model's tokenizer reads it."""

    n_tokens: int
    n_chunks: int
    """Whole chunks that it has."""
    n_vocab: int
    tokens_sha256: str
    """Hash of the tokens as 32-bit integers: runs compare only if it agrees."""


class ScoredBase(msgspec.Struct, frozen=True):
    """Base that the model is compared with."""

    subject: Subject
    type_k: str = "f16"
    type_v: str = "f16"
    through_file: bool = False
    """Whether its log-probabilities came from a file with 16 bits for each, since memory did not hold both models."""


class ChunkScores(msgspec.Struct, frozen=True):
    """Some consecutive chunks of the text, scored; float32 values of every position, as bytes in this machine's order.

    What compares with a base is empty without one.
    """

    first_chunk: int
    n_chunks: int
    seconds: float
    nll: bytes
    base_nll: bytes = b""
    kld: bytes = b""
    p_diff: bytes = b""
    n_same_top: int = 0


class Divergence(msgspec.Struct, frozen=True):
    """How far the model is from its base."""

    kld: Estimate
    """In nats, over all positions."""
    kld_percentiles: tuple[tuple[float, float], ...]
    """Percent and value, from 100 (the largest) to 0 (the least)."""
    same_top: Estimate
    """Share of positions where both give the same token the highest probability."""
    p_diff: Estimate
    """p of the true token less the base's."""
    rms_p_diff: Estimate
    ln_ppl_ratio: Estimate
    """ln(PPL / PPL of the base); its error is that of the paired differences."""
    base_ppl: Estimate


class QualityResult(Result, msgspec.Struct, frozen=True):
    """Perplexity of a text, and the divergence from a base if one was given."""

    text: TextSource
    n_ctx: int
    scored: ScoredText | None = None
    """None if the text was not tokenized."""
    n_chunks: int = 0
    """Chunks that were scored."""
    n_scored: int = 0
    """Positions scored in them."""
    ppl: Estimate | None = None
    chunk_nll: tuple[float, ...] = ()
    """Mean nll of each chunk, so two runs over the same chunks can be paired."""
    base: ScoredBase | None = None
    base_chunk_nll: tuple[float, ...] = ()
    """The same for the base; empty without one."""
    divergence: Divergence | None = None


def result_of(run: Run) -> QualityResult | None:
    return run.result if isinstance(run.result, QualityResult) else None
