"""A decode: its settings and what it found."""

from __future__ import annotations

import msgspec

from ggbench.errors import UsageError
from ggbench.runs.run import Result, Settings, require_positive
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit, b_ratio, w_ratio
from ggbench.stats.serving import Serving

N_PROMPT = 25
"""Tokens of prompt before a decode is timed, as in the article (section 6.4)."""


class DecodeSettings(Settings, msgspec.Struct, frozen=True):
    """How many tokens to decode. Raises UsageError for numbers that make no run."""

    n_gen: int
    """Tokens to decode and time in each repetition."""
    n_prompt: int = N_PROMPT
    """Tokens in the cache before the first that is timed; 0 only in an imported run."""
    repeat: int = 1
    n_warmup: int = 8
    """Tokens decoded before anything is timed."""
    depths: tuple[int, ...] = ()
    """Of an imported run: tokens in the cache before each window of `n_gen`; empty of one decode from its prompt."""

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


class DecodeResult(Result, msgspec.Struct, frozen=True):
    """Latency of every token against its position, reduced."""

    n_prompt: int
    n_gen: int
    """Tokens decoded and timed, over all repetitions."""
    prefill_ms: float | None = None
    """Median time to read the prompt."""
    fit: LineFit | None = None
    latency: LatencySummary | None = None
    limit: DecodeLimit | None = None
    """Of the memory that the weights lie in; None where its bandwidth, or what a token reads, is unknown."""
    unsteady: str = ""
    """Why the samples should not be trusted; empty where the machine was steady."""
    serving: Serving | None = None
    """How a server answered; None where an engine on this machine ran the model."""

    @property
    def w_ratio(self) -> float | None:
        """Measured W over the limit's; 1.0 is the physical limit."""
        return w_ratio(self.fit, self.limit)

    @property
    def b_ratio(self) -> float | None:
        """The limit's B over the measured; 1.0 is the physical limit."""
        return b_ratio(self.fit, self.limit)

    def b_w16_ms(self, bpw: float | None) -> float | None:
        """B as if every weight had 16 bits, to compare quants (article, section 6.4)."""
        return None if self.fit is None or self.fit.b_ms is None or not bpw else self.fit.b_ms * 16 / bpw
