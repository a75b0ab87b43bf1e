"""A decode: its settings and its result."""

from __future__ import annotations

from typing import Annotated, Any, Self

from ggbench.engines.llama.config import whole_steps
from ggbench.errors import UsageError
from ggbench.fields import COUNT, DEPTH_LIST, SLOTS, TOKENS, Option
from ggbench.record import Record
from ggbench.runs.run import DecodeTiming, Settings, require_positive

N_PROMPT = 25
"""Prompt tokens before a timed decode, as in the article (section 6.4)."""

N_GEN_OPTION = Option(
    "-n --n-gen",
    "Number of tokens to decode, e.g. 1k, which is 1024. Default: 10000, or 128 at each depth of -d.",
    TOKENS,
    shown="",
    name="n",
    is_always_stated=True,
)
N_GEN_AT_DEPTH = 128
"""Default number of tokens to decode at each depth: llama-bench's tg128."""


class DecodeSettings(Settings, Record):
    """Settings of a decode. Raises UsageError for impossible numbers."""

    n_gen: Annotated[int, N_GEN_OPTION] = 10_000
    """Tokens to decode and time in each repetition."""
    n_prompt: int = N_PROMPT
    """Tokens in the cache before the first timed one; 0 only in an imported run."""
    repeat: Annotated[
        int, Option("-r --repeat", "Decode N times in one run, and fit all samples together.", COUNT)
    ] = 1
    n_warmup: int = 8
    """Tokens decoded before anything is timed."""
    depths: Annotated[
        tuple[int, ...],
        Option(
            "-d --n-depth",
            "Decode at these depths, e.g. 0,4k,16k, in turns of -r. Tokens in the cache before, like llama-bench -d.",
            DEPTH_LIST,
        ),
    ] = ()
    """Tokens in the cache before each window of `n_gen` tokens; empty for one decode after its prompt."""
    n_seqs: Annotated[
        int,
        Option(
            "-np --parallel",
            "Decode for N users at once. Each has a prompt and a cache of its own; a step gives each a token.",
            SLOTS,
            shown="",
        ),
    ] = 1

    def __post_init__(self) -> None:
        if self.n_gen < 1 or self.n_warmup < 0:
            raise UsageError("the number of tokens to decode is below 1", "use 1 or more")
        if self.n_prompt < 0:
            raise UsageError(f"the prompt length is {self.n_prompt}", "use at least 0")
        require_positive("the repeat", self.repeat)
        if self.depths and self.n_seqs > 1:
            inputs = ",".join(map(str, self.depths))
            raise UsageError(
                "--n-depth fills the cache of one sequence",
                f"use ggbench speed --inputs {inputs} -np {self.n_seqs}",
            )

    @classmethod
    def of_options(cls, **values: Any) -> Self:  # noqa: ANN401 - the fields' own types
        """Return the given settings; with depths, `n_gen` defaults to 128."""
        return cls(**({"n_gen": N_GEN_AT_DEPTH} if values.get("depths") else {}) | values)

    @property
    def n_ctx_needed(self) -> int:
        """Maximum number of tokens in the KV cache; several sequences are each padded to llama.cpp's steps."""
        n_tokens = max((*self.depths, 1) if self.depths else (self.n_prompt,)) + max(self.n_gen, self.n_warmup)
        return n_tokens if self.n_seqs == 1 else self.n_seqs * whole_steps(n_tokens)

    @property
    def decodes(self) -> tuple[tuple[int, int], ...]:
        """One for each depth and repetition; unknown for several sequences, whose steps take longer than one's."""
        starts = self.depths or (self.n_prompt,)
        return tuple((start, self.n_gen) for start in starts) * self.repeat if self.n_seqs == 1 else ()


class DecodeResult(DecodeTiming):
    """Summary of token latency against position."""
