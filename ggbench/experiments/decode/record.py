"""A decode: its settings and what it found."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ggbench.errors import UsageError
from ggbench.fields import COUNT, TOKENS, Option
from ggbench.runs.run import DecodeTiming, Settings, require_positive

N_PROMPT = 25
"""Tokens of prompt before a decode is timed, as in the article (section 6.4)."""

N_GEN_OPTION = Option(
    "-n --n-gen",
    "Number of tokens to decode, e.g. 1k, which is 1024; fewer than 247 are too few for W and B.",
    TOKENS,
    name="n",
    is_always_stated=True,
)


class DecodeSettings(Settings, msgspec.Struct, frozen=True):
    """How many tokens to decode. Raises UsageError for numbers that make no run."""

    n_gen: Annotated[int, N_GEN_OPTION] = 10_000
    """Tokens to decode and time in each repetition."""
    n_prompt: int = N_PROMPT
    """Tokens in the cache before the first that is timed; 0 only in an imported run."""
    repeat: Annotated[int, Option("-r --repeat", "Measure N times, and fit all samples together.", COUNT)] = 1
    n_warmup: int = 8
    """Tokens decoded before anything is timed."""
    depths: tuple[int, ...] = ()
    """Tokens in the cache before each window of `n_gen` of an imported run; empty for one decode after its prompt."""

    def __post_init__(self) -> None:
        if self.n_gen < 1 or self.n_warmup < 0:
            raise UsageError("the number of tokens to decode is below 1", "give 1 or more")
        if self.n_prompt < 0:
            raise UsageError(f"a prompt length is {self.n_prompt}", "it has to be at least 0")
        require_positive("the repeat", self.repeat)

    @property
    def n_ctx_needed(self) -> int:
        """Tokens that the run puts into the KV cache at most."""
        return self.n_prompt + max(self.n_gen, self.n_warmup)


class DecodeResult(DecodeTiming, frozen=True):
    """Latency of every token against its position, reduced."""
